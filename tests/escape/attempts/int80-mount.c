// class: kernel
// promise: the 32-bit entry point is no way round the filter
// refused: ENOSYS
// weak: opens
#include "attempt.h"

int main(void)
{
    long rc;

    signal(SIGSYS, SIG_IGN);
    __asm__ volatile("int $0x80"
                     : "=a"(rc)
                     : "a"(310 /* unshare */), "b"(CLONE_NEWUSER)
                     : "memory");
    errno = rc < 0 ? (int)-rc : 0;
    return verdict(rc < 0 ? -1 : rc, "int 0x80 unshare");
}
