/* Two seccomp programs for test_init.c, by hand: libseccomp is not what is tested. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#define LOAD_NUMBER             BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define RETURN(what)            BPF_STMT(BPF_RET | BPF_K, what)
#define IF_ANSWER(number, what) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), RETURN(what)

static const struct sock_filter no_mkdir[] = {
    LOAD_NUMBER,
#ifdef SYS_mkdir
    IF_ANSWER(SYS_mkdir, SECCOMP_RET_ERRNO | EPERM),
#endif
    IF_ANSWER(SYS_mkdirat, SECCOMP_RET_ERRNO | EPERM),
    RETURN(SECCOMP_RET_ALLOW),
};

static const struct sock_filter notify_exec[] = {
    LOAD_NUMBER,
    IF_ANSWER(SYS_execve, SECCOMP_RET_USER_NOTIF),
    IF_ANSWER(SYS_execveat, SECCOMP_RET_USER_NOTIF),
    RETURN(SECCOMP_RET_ALLOW),
};

static int filter_file(const struct sock_filter *code, size_t bytes)
{
    int fd = memfd_create("filter", MFD_CLOEXEC);

    assert_int_equal(write(fd, code, bytes), bytes);
    return fd;
}
