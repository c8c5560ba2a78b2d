// class: devices
// promise: nothing is typed into a terminal
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    int pty = open("/dev/ptmx", O_RDWR | O_NOCTTY);

    return pty < 0 ? refused("ptmx") : TRY(ioctl(pty, TIOCSTI, "x"));
}
