// class: namespaces
// promise: nobody joins namespaces by a pidfd
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);

    return fd < 0 ? refused("pidfd_open") : TRY(setns(fd, CLONE_NEWNS | CLONE_NEWPID));
}
