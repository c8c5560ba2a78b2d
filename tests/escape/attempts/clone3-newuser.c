// class: namespaces
// promise: clone3, whose flags a filter cannot see, makes no namespace either
// refused: ENOSYS
// weak: opens
#include "attempt.h"
#include <linux/sched.h>

int main(void)
{
    struct clone_args args = { .flags = CLONE_NEWUSER | CLONE_NEWNS, .exit_signal = SIGCHLD };
    long pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0)
        _exit(0);
    return verdict(pid, "clone3(CLONE_NEWUSER)");
}
