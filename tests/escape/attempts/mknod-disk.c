// class: devices
// promise: no block device is made
// refused: EACCES
#include "attempt.h"

int main(void)
{
    return TRY(mknod("/workspace/disk", S_IFBLK | 0666, makedev(254, 0)));
}
