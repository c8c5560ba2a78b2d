// class: devices
// promise: no block device is made
// refused: EACCES
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(mknod("/workspace/disk", S_IFBLK | 0666, makedev(254, 0)));
}
