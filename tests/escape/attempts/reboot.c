// class: kernel
// promise: the machine is not restarted
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    /* CAD on is harmless if it works; EINVAL: a pid namespace has no such switch */
    return PAST(syscall(SYS_reboot, 0xfee1dead, 672274793, 0x89ABCDEF, NULL), EINVAL);
}
