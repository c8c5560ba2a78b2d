// class: processes
// promise: init's descriptors are not copied
// refused: EPERM
// as: root
// weak: opens
#include "attempt.h"

int main(void)
{
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);

    return fd < 0 ? refused("pidfd_open") : TRY(syscall(SYS_pidfd_getfd, fd, 5, 0));
}
