// class: devices
// promise: the machine's ports stay closed
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_iopl, 3));
}
