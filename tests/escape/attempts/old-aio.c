// class: exhaustion
// promise: no sandbox takes the asynchronous I/O that the kernel bounds for all processes together
// refused: ENOSYS
// control: host
#include "attempt.h"

int main(void)
{
    unsigned long context = 0;

    return TRY(syscall(SYS_io_setup, 128, &context));
}
