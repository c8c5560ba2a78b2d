// class: kernel
// promise: no memory that the kernel itself cannot see
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_memfd_secret, 0));
}
