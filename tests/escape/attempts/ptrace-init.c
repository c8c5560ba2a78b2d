// class: processes
// promise: init is not traced
// refused: EPERM
// as: root
// weak: opens
#include "attempt.h"

int main(void)
{
    long rc = ptrace(PTRACE_ATTACH, 1, NULL, NULL);

    if (rc == 0) { /* got it: let it go again, or nobody is left to tell */
        waitpid(1, NULL, __WALL);
        ptrace(PTRACE_DETACH, 1, NULL, NULL);
    }
    return verdict(rc, "PTRACE_ATTACH of init");
}
