// class: kernel
// promise: no memory that the kernel itself cannot see
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_memfd_secret, 0));
}
