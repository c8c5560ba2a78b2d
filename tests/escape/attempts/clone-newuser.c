// class: namespaces
// promise: clone makes no user namespace
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);

    if (pid == 0)
        _exit(0);
    return verdict(pid, "clone(CLONE_NEWUSER)");
}
