// class: devices
// promise: nothing is typed into a terminal by a request number with bits above the 32 that the kernel looks at
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    int pty = open("/dev/ptmx", O_RDWR | O_NOCTTY);

    return pty < 0 ? refused("ptmx") : TRY(syscall(SYS_ioctl, pty, TIOCSTI | (1ul << 40), "x"));
}
