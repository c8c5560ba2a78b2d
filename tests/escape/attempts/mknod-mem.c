// class: devices
// promise: no /dev/mem is made
// refused: EACCES
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(mknod("/workspace/mem", S_IFCHR | 0666, makedev(1, 1)));
}
