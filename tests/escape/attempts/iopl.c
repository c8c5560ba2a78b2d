// class: devices
// promise: the machine's ports stay closed
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_iopl, 3));
}
