/*
 * The seccomp filter of workers and judge: a list of what moving bytes takes, EPERM for all else.
 * No execve, no fork, no socket but unix ones, no file opened for writing, no ptrace, no mount, no
 * change of identity.
 *
 * mmap() with PROT_EXEC stays allowed: PCRE2's JIT compiles the deny-list into such memory whenever
 * the policy is reloaded. mprotect() with PROT_EXEC is not needed for that, and refused.
 */
#include "process/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "cove/mem.h"

static const int allowed[] = {
    /* moving bytes */
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(pread64),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(pwrite64),
    SCMP_SYS(recvmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(splice),
    SCMP_SYS(lseek),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(select),
    SCMP_SYS(pselect6),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(shutdown),
    /* descriptors */
    SCMP_SYS(close),
    SCMP_SYS(pipe2),
    SCMP_SYS(fcntl),
    SCMP_SYS(dup),
    SCMP_SYS(dup3),
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
    SCMP_SYS(connect),
    SCMP_SYS(setsockopt),
    SCMP_SYS(getsockopt),
    SCMP_SYS(getsockname),
    SCMP_SYS(memfd_create),
    SCMP_SYS(ioctl),
    SCMP_SYS(inotify_init1),
    /* looking at files (opening them: rules below) */
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(statx),
    SCMP_SYS(fstatfs),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(ftruncate),
    /* memory */
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(brk),
    /* threads and signals */
    SCMP_SYS(futex),
    SCMP_SYS(clone3),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(tgkill),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    /* time, chance, who am I */
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getrandom),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(prlimit64),
};

/* Allowed only when an argument, under a mask, has a value. */
static const struct {
    int syscall;
    struct scmp_arg_cmp cmp;
} conditional[] = {
    { SCMP_SYS(openat), { 2, SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY } },
    { SCMP_SYS(open), { 1, SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY } },
    { SCMP_SYS(mprotect), { 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0 } },
    { SCMP_SYS(clone), { 0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD } },
};

static int add_sockets(scmp_filter_ctx ctx, const int *families, struct cove_err *e)
{
    for (; *families; families++)
        if (seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)*families)) < 0)
            return cove_fail(e, COVE_INTERNAL, "seccomp: sockets");
    return 0;
}

static int add_rules(scmp_filter_ctx ctx, const int *families, struct cove_err *e)
{
    if (add_sockets(ctx, families, e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
        if (seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0) < 0)
            return cove_fail(e, COVE_INTERNAL, "seccomp: rule %zu", i);
    for (size_t i = 0; i < ARRAY_SIZE(conditional); i++)
        if (seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, conditional[i].syscall, 1,
                                   &conditional[i].cmp) < 0)
            return cove_fail(e, COVE_INTERNAL, "seccomp: condition %zu", i);
    return 0;
}

static int load_filter(scmp_filter_ctx ctx, struct cove_err *e)
{
    int rc;

    /* A tree instead of a chain: a hundred comparisons per system call become seven. */
    seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    rc = seccomp_load(ctx);
    if (rc < 0) {
        errno = -rc;
        return cove_fail_errno(e, COVE_UNSUPPORTED, "seccomp: loading the worker's filter");
    }
    return 0;
}

/* families: of sockets, 0 ends them. run_dir NULL: no file at all. */
static int confine(const char *run_dir, const int *families, struct cove_err *e)
{
    scmp_filter_ctx ctx;
    int rc;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "prctl");
    if (confine_files(run_dir, e) < 0)
        return -1;
    ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!ctx)
        return cove_fail(e, COVE_INTERNAL, "seccomp: out of memory");
    rc = add_rules(ctx, families, e) < 0 || load_filter(ctx, e) < 0 ? -1 : 0;
    seccomp_release(ctx);
    return rc;
}

int confine_self(const char *run_dir, struct cove_err *e)
{
    static const int families[] = { AF_UNIX, 0 };

    return confine(run_dir, families, e);
}

int confine_resolver(struct cove_err *e)
{
    static const int families[] = { AF_INET, AF_INET6, 0 };

    return confine(NULL, families, e);
}
