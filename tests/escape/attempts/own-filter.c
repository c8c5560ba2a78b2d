// class: exhaustion
// promise: no seccomp filter of a program's own takes the memory in which the kernel compiles the filters of all
// refused: EINVAL
// control: host
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "attempt.h"

int main(void)
{
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { 1, &allow };

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0) {
        printf("ESCAPED: the filter is installed\n");
        return ESCAPED;
    }
    return TRY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
}
