// class: kernel
// promise: no page faults handled by user space
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */));
}
