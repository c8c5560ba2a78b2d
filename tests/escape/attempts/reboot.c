// class: kernel
// promise: the machine is not restarted
// refused: EPERM
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_reboot, 0xfee1dead, 672274793,
                       0x89ABCDEF /* CAD on: harmless if it works */, NULL));
}
