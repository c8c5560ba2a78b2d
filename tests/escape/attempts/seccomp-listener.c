// class: kernel
// promise: a process does not put its own listener over the policy's
// refused: EINVAL
// control: host
#include "attempt.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

int main(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = { 4, filter };

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return TRY(
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog));
}
