/*
 * What each kind of process may still do once it serves: a table with one row per kind.
 *
 * seccomp: EPERM for every system call that is neither in the common list nor in the row's own lists.
 * No row but cove-auth's has execve or fork, none but that one, the builder's and the unpacking saver's
 * opens a file for writing; no row has ptrace, mount,
 * namespaces or a change of identity. clone3 answers ENOSYS, because seccomp cannot look at its
 * flags, which lie in memory; libc then uses clone, whose flags can be checked.
 *
 * Landlock: of the host's files a process reads what its row names. A kernel without Landlock leaves
 * the seccomp filter alone.
 *
 * tests/hostile/test_confinement.py lists all processes of a running server and what confines each.
 */
#include "process/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"

/* A system call, allowed only if one argument has a value under a mask; mask 0: always. */
struct call {
    int number;
    unsigned arg;
    uint64_t mask, value;
};

#define ANY(name)                                                                                  \
    {                                                                                              \
        .number = SCMP_SYS(name)                                                                   \
    }
#define IF(name, n, m, v)                                                                          \
    {                                                                                              \
        .number = SCMP_SYS(name), .arg = (n), .mask = (m), .value = (uint64_t)(v)                  \
    }
#define END_OF_CALLS                                                                               \
    {                                                                                              \
        .number = -1                                                                               \
    }

/* Only the process's own limits: all our processes have one user id, so the kernel would let each change the others'. */
#define OWN_LIMITS IF(prlimit64, 0, UINT32_MAX, 0)

#define NEW_NAMESPACES                                                                             \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |     \
     CLONE_NEWCGROUP)
#define OPEN_TO_WRITE (O_ACCMODE | O_CREAT | O_TRUNC)

static const struct call common[] = {
    /* moving bytes, waiting */
    ANY(read), ANY(readv), ANY(write), ANY(writev), ANY(recvmsg), ANY(recvfrom), ANY(sendmsg),
    ANY(sendto), ANY(poll), ANY(ppoll), ANY(epoll_wait), ANY(epoll_pwait), ANY(epoll_ctl),
    ANY(shutdown),
    /* descriptors */
    ANY(close), ANY(fcntl), ANY(accept), ANY(accept4), ANY(connect), ANY(setsockopt),
    ANY(getsockopt), ANY(getsockname), ANY(fstat), ANY(newfstatat), ANY(statx),
    /* memory; data never becomes code */
    ANY(munmap), ANY(mremap), ANY(madvise), ANY(brk), IF(mprotect, 2, PROT_EXEC, 0),
    /* signals, time, random numbers, own ids */
    ANY(futex), ANY(rt_sigaction), ANY(rt_sigprocmask), ANY(rt_sigreturn), ANY(sigaltstack),
    ANY(restart_syscall), ANY(exit), ANY(exit_group), ANY(clock_gettime), ANY(clock_nanosleep),
    ANY(nanosleep), ANY(gettimeofday), ANY(getrandom), ANY(getpid), ANY(gettid), ANY(getuid),
    ANY(geteuid), ANY(getgid), ANY(getegid), END_OF_CALLS
};

/* Only a process that compiles patterns needs executable memory: for PCRE2's JIT, whenever the policy is loaded. */
static const struct call plain_memory[] = { IF(mmap, 2, PROT_EXEC, 0), END_OF_CALLS };
static const struct call jit_memory[] = { ANY(mmap), END_OF_CALLS };

static const struct call reading_files[] = { IF(openat, 2, OPEN_TO_WRITE, O_RDONLY),
                                             IF(open, 1, OPEN_TO_WRITE, O_RDONLY),
                                             ANY(pread64),
                                             ANY(lseek),
                                             ANY(fstatfs),
                                             ANY(readlink),
                                             ANY(readlinkat),
                                             END_OF_CALLS };

static const struct call worker_calls[] = {
    ANY(pwrite64), ANY(splice), ANY(select), ANY(pselect6), ANY(pipe2), ANY(dup), ANY(dup3),
    ANY(memfd_create), ANY(ftruncate), ANY(ioctl), ANY(inotify_init1),
    /* threads */
    IF(clone, 0, CLONE_THREAD, CLONE_THREAD), ANY(set_robust_list), ANY(rseq), ANY(sched_yield),
    ANY(sched_getaffinity), ANY(rt_sigtimedwait), OWN_LIMITS, END_OF_CALLS
};

/* A thread for each sandbox that starts. */
static const struct call starter_calls[] = { IF(clone, 0, CLONE_THREAD, CLONE_THREAD),
                                             ANY(set_robust_list),
                                             ANY(rseq),
                                             ANY(sched_yield),
                                             ANY(sched_getaffinity),
                                             OWN_LIMITS,
                                             END_OF_CALLS };

/* A thread for each build; records, logs and uploaded files lie in a directory of its own. */
static const struct call builder_calls[] = {
    ANY(openat),    ANY(unlinkat),  ANY(unlink),       ANY(renameat), ANY(rename), ANY(getdents64),
    ANY(ftruncate), ANY(pwrite64),  ANY(memfd_create), ANY(pipe2),    ANY(fsync),  ANY(utimensat),
    ANY(statfs),    ANY(fdatasync), ANY(fadvise64),    END_OF_CALLS
};

/* The gate listens on proxy ports that it is asked for later, and keeps its bindings in a file that
 * the keeper opened. */
static const struct call gate_calls[] = { ANY(bind), ANY(listen), ANY(pread64), ANY(pwrite64),
                                          END_OF_CALLS };

/* libcurl resolves names in threads, by libc: that reads /etc, asks the kernel for this machine's
 * addresses, and sends its questions in pairs. */
static const struct call fetch_calls[] = { IF(clone, 0, CLONE_THREAD, CLONE_THREAD),
                                           IF(socketpair, 0, UINT32_MAX, AF_UNIX),
                                           ANY(set_robust_list),
                                           ANY(rseq),
                                           ANY(sched_yield),
                                           ANY(sched_getaffinity),
                                           OWN_LIMITS,
                                           ANY(bind),
                                           ANY(getpeername),
                                           ANY(sendmmsg),
                                           ANY(pipe2),
                                           ANY(uname),
                                           IF(ioctl, 1, UINT32_MAX, FIONREAD),
                                           END_OF_CALLS };

/*
 * cove-auth runs PAM modules, which the operator chooses, in children of its own. They read and write
 * files (failure counts), talk to directories and syslog, and may run a program of /usr; all of that
 * under this filter too. Each child closes more files to itself (helpers/auth/cage.c).
 */
static const struct call auth_calls[] = {
    /* processes and their limits */
    IF(clone, 0, NEW_NAMESPACES, 0), ANY(fork), ANY(vfork), ANY(execve), ANY(wait4), ANY(waitid),
    ANY(kill), ANY(tgkill), ANY(alarm), ANY(setitimer), ANY(set_robust_list), ANY(rseq),
    ANY(set_tid_address), ANY(arch_prctl), ANY(prctl), ANY(prlimit64), ANY(getrlimit),
    ANY(setrlimit), ANY(getppid), ANY(getpgrp), ANY(getpgid), ANY(getsid), ANY(setsid),
    ANY(sched_yield), ANY(sched_getaffinity), ANY(mlock), ANY(munlock),
    /* files, within what Landlock leaves */
    ANY(openat), ANY(open), ANY(pread64), ANY(pwrite64), ANY(lseek), ANY(access), ANY(faccessat),
    ANY(faccessat2), ANY(stat), ANY(lstat), ANY(statfs), ANY(fstatfs), ANY(readlink),
    ANY(readlinkat), ANY(getdents64), ANY(unlink), ANY(rename), ANY(fchmod), ANY(fchown),
    ANY(ftruncate), ANY(fsync), ANY(flock), ANY(umask), ANY(getcwd), ANY(fadvise64),
    ANY(landlock_create_ruleset), ANY(landlock_add_rule), ANY(landlock_restrict_self),
    /* descriptors and sockets */
    ANY(dup), ANY(dup2), ANY(dup3), ANY(pipe), ANY(pipe2), ANY(select), ANY(pselect6), ANY(ioctl),
    ANY(socketpair), ANY(bind), ANY(getpeername), ANY(sendmmsg), ANY(recvmmsg), ANY(close_range),
    /* identity */
    ANY(getgroups), ANY(getresuid), ANY(getresgid), ANY(capget), ANY(capset), ANY(setuid),
    ANY(setgid), ANY(setreuid), ANY(setregid), ANY(setresuid), ANY(setresgid), ANY(setfsuid),
    ANY(setfsgid), ANY(setgroups),
    /* the machine and the time */
    ANY(uname), ANY(sysinfo), ANY(time), ANY(clock_getres), END_OF_CALLS
};

/* A saver that reads a sandbox's files. They are its root directory, so it can open nothing else. */
static const struct call pack_calls[] = {
    ANY(getdents64), ANY(stat),        ANY(lstat),      ANY(readlinkat),      ANY(fchdir),
    ANY(chdir),      ANY(statfs),      ANY(getxattr),   ANY(lgetxattr),       ANY(fgetxattr),
    ANY(listxattr),  ANY(llistxattr),  ANY(flistxattr), ANY(ioctl),           ANY(dup),
    ANY(fsync),      ANY(fadvise64),   ANY(access),     ANY(getcwd),          OWN_LIMITS,
    ANY(dup2),       ANY(sched_yield), ANY(umask),      ANY(set_robust_list), ANY(rseq),
    END_OF_CALLS
};

/* Packing compresses in a second thread and reads back in a third. Sanitizers ask about a thread's cpus. */
static const struct call packing_calls[] = { IF(clone, 0, CLONE_THREAD, CLONE_THREAD),
                                             ANY(sched_getaffinity), ANY(sync_file_range),
                                             END_OF_CALLS };

/* A saver that unpacks an archive into a new sandbox's files. */
static const struct call unpack_calls[] = {
    ANY(openat),    ANY(mkdir),     ANY(mkdirat),   ANY(mknod),     ANY(mknodat),   ANY(symlink),
    ANY(symlinkat), ANY(link),      ANY(linkat),    ANY(unlink),    ANY(unlinkat),  ANY(rmdir),
    ANY(rename),    ANY(renameat),  ANY(chown),     ANY(lchown),    ANY(fchown),    ANY(fchownat),
    ANY(chmod),     ANY(fchmod),    ANY(fchmodat),  ANY(utimensat), ANY(futimesat), ANY(setxattr),
    ANY(lsetxattr), ANY(fsetxattr), ANY(ftruncate), ANY(truncate),  ANY(pwrite64),  ANY(utimes),
    END_OF_CALLS
};

#define OWN_DIR "" /* stands for the directory that confine() is told */

static const struct confinement {
    const char *name;
    const struct call *calls[5];
    int families[5]; /* of sockets; 0 ends them */
    struct confine_paths paths;
    bool all_files;    /* no Landlock: its root directory has only the files that it works on */
    bool has_children; /* its list says what it may signal, for its children */
} kinds[CONFINE_KINDS] = {
    [CONFINE_WORKER] = { .name = "worker",
                         .calls = { worker_calls, reading_files, jit_memory },
                         .families = { AF_UNIX },
                         .paths.readable = { OWN_DIR, "/etc", "/usr" } },
    [CONFINE_JUDGE] = { .name = "judge",
                        .calls = { reading_files, jit_memory },
                        .families = { AF_UNIX },
                        .paths.readable = { OWN_DIR } },
    [CONFINE_GATE] = { .name = "gate",
                       .calls = { gate_calls, plain_memory },
                       .families = { AF_UNIX, AF_INET } },
    [CONFINE_PACK] = { .name = "saver that reads",
                       .calls = { pack_calls, packing_calls, reading_files, plain_memory },
                       .all_files = true },
    [CONFINE_UNPACK] = { .name = "saver that unpacks",
                         .calls = { pack_calls, reading_files, plain_memory, unpack_calls },
                         .all_files = true },
    [CONFINE_RESOLVER] = { .name = "resolver",
                           .calls = { plain_memory },
                           .families = { AF_INET, AF_INET6 } },
    [CONFINE_STARTER] = { .name = "starter",
                          .calls = { starter_calls, reading_files, jit_memory },
                          .families = { AF_UNIX },
                          .paths.readable = { OWN_DIR } },
    [CONFINE_FETCH] = { .name = "fetch",
                        .calls = { fetch_calls, reading_files, plain_memory },
                        .families = { AF_INET, AF_INET6, AF_NETLINK },
                        .paths.readable = { "/etc", "/run/systemd/resolve",
                                            "/usr/share/ca-certificates" } },
    [CONFINE_BUCKET] = { .name = "bucket",
                         .calls = { fetch_calls, reading_files, plain_memory },
                         .families = { AF_INET, AF_INET6, AF_NETLINK },
                         .paths.readable = { "/etc", "/run/systemd/resolve",
                                             "/usr/share/ca-certificates" } },
    [CONFINE_BUILDER] = { .name = "builder",
                          .calls = { starter_calls, reading_files, jit_memory, builder_calls },
                          .families = { AF_UNIX },
                          .paths = { .readable = { OWN_DIR }, .writable = { OWN_DIR } } },
    [CONFINE_AUTH] = { .name = "auth",
                       .has_children = true,
                       .calls = { auth_calls, jit_memory },
                       .families = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK },
                       .paths = { .readable = { "/etc", "/usr", "/run", "/var/lib", "/dev", "/proc",
                                                OWN_DIR },
                                  .writable = { "/run/faillock", "/dev/null" },
                                  .runnable = { "/usr" } } },
};

/* ------------------------------------------------------------------ seccomp */

static int add_call(scmp_filter_ctx ctx, const struct call *c)
{
    struct scmp_arg_cmp cmp = { c->arg, SCMP_CMP_MASKED_EQ, c->mask, c->value };

    return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, c->number, c->mask ? 1 : 0, &cmp);
}

/* A call that this architecture does not have needs no rule: its number is not -1, which ends the
 * list, but some other negative one. */
static int add_calls(scmp_filter_ctx ctx, const struct call *calls, struct cove_err *e)
{
    for (size_t i = 0; calls && calls[i].number != -1; i++) {
        int rc = calls[i].number < 0 ? 0 : add_call(ctx, &calls[i]);

        if (rc < 0)
            return cove_fail(e, COVE_INTERNAL, "seccomp: system call %d", calls[i].number);
    }
    return 0;
}

/* abort() and threads signal their own process. Any other process of ours has the same user id: a worker
 * that was taken over could stop the judge or the gate for everybody. */
static int add_own_signals(scmp_filter_ctx ctx, struct cove_err *e)
{
    const struct call own = IF(tgkill, 0, UINT32_MAX, getpid());

    return add_call(ctx, &own) < 0 ? cove_fail(e, COVE_INTERNAL, "seccomp: tgkill") : 0;
}

static int add_rules(scmp_filter_ctx ctx, const struct confinement *c, struct cove_err *e)
{
    if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) < 0)
        return cove_fail(e, COVE_INTERNAL, "seccomp: clone3");
    for (size_t i = 0; i < ARRAY_SIZE(c->families) && c->families[i]; i++)
        if (seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)c->families[i])) < 0)
            return cove_fail(e, COVE_INTERNAL, "seccomp: sockets");
    if (add_calls(ctx, common, e) < 0 || (!c->has_children && add_own_signals(ctx, e) < 0))
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(c->calls); i++)
        if (add_calls(ctx, c->calls[i], e) < 0)
            return -1;
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
        return cove_fail_errno(e, COVE_UNSUPPORTED, "seccomp: loading the filter");
    }
    return 0;
}

static int confine_calls(const struct confinement *c, struct cove_err *e)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int rc;

    if (!ctx)
        return cove_fail(e, COVE_INTERNAL, "seccomp: out of memory");
    rc = add_rules(ctx, c, e) < 0 || load_filter(ctx, e) < 0 ? -1 : 0;
    seccomp_release(ctx);
    return rc;
}

/* ------------------------------------------------------------------ all of it */

static void put_dir(const char **paths, const char *dir)
{
    for (size_t i = 0; i < CONFINE_PATHS_MAX && paths[i]; i++)
        if (strcmp(paths[i], OWN_DIR) == 0)
            paths[i] = dir;
}

int confine(enum confine_kind kind, const char *own_dir, struct cove_err *e)
{
    return confine_writing(kind, own_dir, NULL, e);
}

int confine_writing(enum confine_kind kind, const char *own_dir, const char *work_dir,
                    struct cove_err *e)
{
    const struct confinement *c = &kinds[kind];
    struct confine_paths paths = c->paths;

    put_dir(paths.readable, own_dir);
    put_dir(paths.writable, work_dir);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "prctl");
    if ((!c->all_files && confine_files(&paths, e) < 0) || confine_calls(c, e) < 0)
        return cove_context(e, "confining the %s", c->name);
    return 0;
}
