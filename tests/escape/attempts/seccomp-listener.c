// class: kernel
// promise: a process does not put its own listener over the policy's
// refused: EPERM
#include "attempt.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

int main(void)
{
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog prog = { 1, &allow };

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return TRY(
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog));
}
