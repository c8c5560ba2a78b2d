/*
 * The launcher: a child of init that makes the processes of commands.
 *
 * A process that starts a command under a filter costs most where the kernel reads the filter (it
 * compiles the program and tries every syscall number), and where it copies page tables and then,
 * page by page, what either side writes. The launcher has the filter already, and what it makes
 * inherits the filter and borrows the launcher's memory until its execve, as with vfork(). The launcher
 * sleeps meanwhile. init never waits for it: the sandbox's root can stop or kill the launcher as it can
 * stop or kill any process but init.
 *
 * What it makes are init's children (CLONE_PARENT), so init reaps them. Each tells init its pid and then
 * waits for a SPARE_JOB. Where exec-time policy holds, each first installs a second, short filter,
 * which asks about execve: the listener of a filter belongs to one command and all that it starts.
 *
 * The filter that the launcher installs lets some calls pass that a profile may refuse, if a random
 * number stands in their sixth argument, which none of them has. That number is known in this process's memory
 * only, which nothing in the sandbox can read.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/text.h"
#include "cove/weak.h"
#include "sandbox/init/init_private.h"

#if defined(__x86_64__)
enum { COMPAT_EXECVE = 11, COMPAT_EXECVEAT = 358 };
#elif defined(__aarch64__)
enum { COMPAT_EXECVE = 11, COMPAT_EXECVEAT = 387 };
#endif

enum { ARG5 = offsetof(struct seccomp_data, args[5]) };

static uint64_t pass;
/* The profile asks about execve. Then every process does, also one whose spawn lacks SPAWN_NOTIFY. */
static bool asks;

/* --------------------------------------------------------------- filters */

/* Calls that a profile may refuse to commands: those of this file, then those of exec.c. */
static const int our_calls[] = {
    SYS_clone3,    SYS_seccomp,   SYS_setsid,   SYS_prctl,     SYS_prlimit64,
    SYS_setgroups, SYS_setresgid, SYS_setfsuid, SYS_setresuid,
};

/* The profile's program for all commands: our calls pass, and where the program asks about an
   execve, it allows it here and the second filter asks. */
static struct sock_fprog filter_of_all(const struct sock_fprog *profile)
{
    struct sock_fprog all = exec_let_pass(profile, our_calls, ARRAY_SIZE(our_calls), pass);

    for (size_t i = 0; i < all.len; i++)
        if (all.filter[i].code == (BPF_RET | BPF_K) && all.filter[i].k == SECCOMP_RET_USER_NOTIF) {
            all.filter[i].k = SECCOMP_RET_ALLOW;
            asks = true;
        }
    return all;
}

/* Asks about each execve, except our own one (exec.c: exec_ours()). What the other filter refuses stays refused: the
   kernel takes the stricter of both answers. */
static int ask_about_execve(void)
{
    const struct sock_filter code[] = {
        /* 0 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        /* 1 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 0, 7),
        /* 2 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* 3 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 1, 0),
        /* 4 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execveat, 8, 7),
        /* 5 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG5),
        /* 6 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)pass, 0, 6),
        /* 7 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG5 + 4),
        /* 8 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(pass >> 32), 3, 4),
        /* 9 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* 10 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, COMPAT_EXECVE, 2, 0),
        /* 11 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, COMPAT_EXECVEAT, 1, 0),
        /* 12 */ BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        /* 13 */ BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog filter = { ARRAY_SIZE(code), (struct sock_filter *)code };

    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                        SECCOMP_FILTER_FLAG_SPEC_ALLOW | SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter,
                        0L, 0L, pass);
}

/* --------------------------------------------------------------- a process for one command */

/* Put the strings and descriptors of the job, as init has packed it, into their places in this
   process's own memory. */
static int unpack_job(const struct msg *m, struct exec_job *job)
{
    static LARGE char *argv[MAX_ARGS + 1], *env[MAX_ENV + 16];
    const struct spare_job *body = m->body;
    const char *at = (const char *)(body + 1), *end = (const char *)m->body + m->body_len;
    size_t next = 0;

    if (body->argc > MAX_ARGS || body->envc > MAX_ENV + 15 || body->group_count > MAX_GROUPS)
        return -1;
    job->cwd = msg_next_str(&at, end);
    for (uint32_t i = 0; i < body->argc; i++)
        argv[i] = (char *)msg_next_str(&at, end);
    for (uint32_t i = 0; i < body->envc; i++)
        env[i] = (char *)msg_next_str(&at, end);
    argv[body->argc] = env[body->envc] = NULL; /* the command before may have had more of them */
    job->argv = argv;
    job->env = env;
    job->cwd_is_home = body->cwd_is_home;
    job->pty = body->pty;
    job->max_open_files = body->max_open_files;
    job->max_file_bytes = body->max_file_bytes;
    job->user.uid = body->uid;
    job->user.gid = body->gid;
    job->user.group_count = body->group_count;
    memcpy(job->user.groups, body->groups, sizeof(body->groups));
    memcpy(job->user.name, body->user, sizeof(body->user));
    for (int fd = 0; fd < 3; fd++)
        job->stdio[fd] = body->stdio & (1U << fd) && next < m->fd_count ? m->fds[next++] : fd;
    return 0;
}

static int tell_ready(int sock, bool notify)
{
    const struct spare_ready body = { .pid = (uint32_t)getpid() };
    int listener = notify ? ask_about_execve() : -1;

    if (notify && listener < 0)
        return -1;
    return msg_send(sock,
                    &(struct msg_out){ SPARE_READY, MSG_BODY(body), .fds = &listener,
                                       .fd_count = notify ? 1 : 0 },
                    0, NULL);
}

static void become_job(int sock)
{
    static const struct msg_rule taken[] = {
        { SPARE_JOB, sizeof(struct spare_job), MSG_MAX_BYTES, 0, 3 },
        { 0 },
    };
    static LARGE char buf[MSG_MAX_BYTES];
    static LARGE struct exec_job job;
    struct cove_err e = { 0 };
    struct msg m;

    if (msg_recv(sock, buf, sizeof(buf), taken, 0, &m, NULL) != 1 || unpack_job(&m, &job) < 0)
        return; /* init has closed the socket: this process is not wanted any more */
    exec_become(&job, pass, &e);
    msg_send(sock, &(struct msg_out){ MSG_ERROR, MSG_BODY(e) }, 0, NULL);
}

/* Runs in the launcher's memory, on the launcher's stack, while the launcher sleeps. */
static __attribute__((noinline, noreturn)) void spare(int sock, bool notify)
{
    syscall(SYS_setsid, 0L, 0L, 0L, 0L, 0L, pass);
    prctl(PR_SET_NAME, "cove-spare");
    sock = exec_keep_only(sock);
    if (sock >= 0 && tell_ready(sock, notify) == 0)
        become_job(sock);
    _exit(EXIT_NOT_STARTED);
}

/* A system call that returns twice on one stack must not be made by a function of libc, which would return twice
   as well: the child would overwrite the place where the launcher's return address is. */
static inline __attribute__((always_inline)) long clone3_sharing(struct clone_args *args)
{
#if defined(__x86_64__)
    register uint64_t sixth __asm__("r9") = pass;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(args), "S"(sizeof(*args)), "r"(sixth)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long result __asm__("x0") = (long)args;
    register long size __asm__("x1") = sizeof(*args);
    register uint64_t sixth __asm__("x5") = pass;
    register long number __asm__("x8") = SYS_clone3;

    __asm__ volatile("svc #0" : "+r"(result) : "r"(size), "r"(sixth), "r"(number) : "memory");
#else
#error "clone3() for this machine"
    long result = -1;
#endif
    return result;
}

static __attribute__((noinline)) void launch(int sock, int cgroup_fd, bool notify)
{
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_PARENT | CLONE_INTO_CGROUP,
        .cgroup = (uint64_t)cgroup_fd,
    };
    struct cove_err e = { 0 };
    long pid = clone3_sharing(&args);

    if (pid == 0)
        spare(sock, notify);
    if (pid > 0)
        return;
    exec_fail_clone((int)-pid, &e);
    msg_send(sock, &(struct msg_out){ MSG_ERROR, MSG_BODY(e) }, MSG_DONTWAIT, NULL);
}

/* --------------------------------------------------------------- the launcher itself */

static int set_up(const struct sock_fprog *profile)
{
    struct sock_fprog filter;

    text_random(&pass, sizeof(pass));
    filter = filter_of_all(profile);
    if (exec_raise_all_caps() < 0)
        return -1;
    return filter.len == 0 ? -1 /* too long: its commands are started in the ordinary way */
                           : (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                          SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter);
}

static int launcher(const struct sock_fprog *profile, int sock)
{
    static const struct msg_rule taken[] = { { SPARE_ORDER, sizeof(uint32_t), 0, 2, 2 }, { 0 } };
    _Alignas(8) char buf[64];
    struct msg m;

    exec_begin();
    prctl(PR_SET_NAME, "cove-launcher");
    sock = exec_keep_only(sock);
    if (sock < 0 || set_up(profile) < 0)
        return EXIT_NOT_STARTED;
    while (msg_recv(sock, buf, sizeof(buf), taken, 0, &m, NULL) == 1) {
        uint32_t notify;

        memcpy(&notify, m.body, sizeof(notify));
        launch(m.fds[0], m.fds[1], notify || asks);
        msg_close_fds(&m);
    }
    return 0;
}

pid_t launcher_start(const struct sock_fprog *profile, int sock)
{
    struct clone_args args = { .exit_signal = SIGCHLD };
    long pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0)
        _exit(launcher(profile, sock));
    return (pid_t)pid;
}
