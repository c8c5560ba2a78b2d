// class: kernel
// promise: io_uring, which no filter sees into, is closed
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    char params[256] = { 0 };

    return TRY(syscall(SYS_io_uring_setup, 4, params));
}
