/*
 * The child's side of a spawn: a copy of init that becomes the command. It tells init over a socket
 * how far it came (start.c).
 *
 * The child is never one that init waits for in the kernel (CLONE_VFORK, which would spare the copy
 * of page tables): the sandbox's root can stop the child before its execve, and init would sleep
 * for as long as the sandbox likes.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/text.h"
#include "cove/weak.h"
#include "sandbox/init/init_private.h"

static struct rlimit files_at_start; /* what the keeper gave us, before we raised our own */

/*
 * A random number in the sixth argument, which none of these calls has, tells our calls from those of
 * commands. Our own execve needs no verdict: the worker has checked this argv before it asked for the spawn,
 * and no code of the sandbox runs yet. Letting it pass spares two wake-ups. A child of the launcher has the command's
 * filter already, which may refuse what the child needs, or answer as if it were done (`else pretend`). The number is
 * gone with the memory that execve replaces, and nobody inside can read a filter.
 */
static uint64_t pass;

static long call(long number, long a, long b, long c)
{
    return syscall(number, a, b, c, 0L, 0L, pass);
}

/* --------------------------------------------------------------- in the child, step by step */

/*
 * When memory runs out, the kernel kills what is largest, and rings count as init's: make commands
 * the better choice. Raising needs no privilege. A process may lower its own again, which can cost
 * it its own sandbox only.
 */
static void prefer_as_oom_victim(void)
{
    AUTO_CLOSE int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : write(fd, "500", 3);

    (void)n; /* without /proc there is nothing better to do */
}

static int set_limit(int which, uint64_t value, const char *name, struct cove_err *e)
{
    struct rlimit limit = { value, value };

    if (call(SYS_prlimit64, 0, which, (long)&limit) < 0)
        return cove_fail_errno(e, COVE_INVALID, "setting the limit of %s", name);
    return 0;
}

/*
 * 1, not 0: when the host pipes core dumps to a program, the kernel runs that program, as the
 * host's root, for every limit but 1. No core file is as small as that either. Where our own limit
 * is 0 already, it stays. Init sets this for itself and every command inherits it: under a
 * command's filter the call only pretends to succeed.
 */
static void no_core_dumps(void)
{
    if (set_limit(RLIMIT_CORE, 1, "core files", NULL) < 0)
        set_limit(RLIMIT_CORE, 0, "core files", NULL);
}

static int set_limits(const struct exec_job *job, struct cove_err *e)
{
    if (job->max_file_bytes && set_limit(RLIMIT_FSIZE, job->max_file_bytes, "file size", e) < 0)
        return -1;
    if (job->max_open_files)
        return set_limit(RLIMIT_NOFILE, job->max_open_files, "open files", e);
    call(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)&files_at_start);
    return 0;
}

static int set_stdio(const struct exec_job *job, struct cove_err *e)
{
    for (int fd = 0; fd < 3; fd++) {
        int flags = job->stdio[fd] == fd ? fcntl(fd, F_SETFD, 0) : dup2(job->stdio[fd], fd);

        if (flags < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "descriptor %d of a command", fd);
    }
    if (job->pty && ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "taking the terminal");
    syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
    return 0;
}

static enum cove_code code_of_cwd(void)
{
    return errno == EACCES ? COVE_FORBIDDEN : errno == ENOENT ? COVE_NOT_FOUND : COVE_INVALID;
}

/* Groups first, then the directory, which is looked up with the user's rights, then the user. Capabilities
   stay permitted: installing a filter needs one, and no process of the same user that has fewer can look into this
   one, which may share the launcher's memory. */
static int set_identity(const struct exec_job *job, struct cove_err *e)
{
    const struct user *u = &job->user;

    if (call(SYS_setgroups, (long)u->group_count, (long)u->groups, 0) < 0 ||
        call(SYS_setresgid, u->gid, u->gid, u->gid) < 0)
        return cove_fail_errno(e, COVE_INVALID, "becoming group %u", u->gid);
    call(SYS_setfsuid, u->uid, 0, 0);
    if (chdir(job->cwd) < 0 && !(job->cwd_is_home && chdir("/") == 0))
        return cove_fail_errno(e, code_of_cwd(), "cwd '%s'", job->cwd);
    if (call(SYS_prctl, PR_SET_KEEPCAPS, 1, 0) < 0 ||
        call(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
        return cove_fail_errno(e, COVE_INVALID, "becoming user '%s'", u->name);
    return 0;
}

/* Put those of the wanted capabilities into force, beside those that are, that this process is permitted to have. */
static int raise_caps(uint32_t wanted, struct cove_err *e)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[2];

    if (syscall(SYS_capget, &head, caps) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "reading capabilities");
    caps[0].effective |= caps[0].permitted & wanted;
    if (syscall(SYS_capset, &head, caps) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "setting capabilities");
    return 0;
}

#define LOAD(offset) (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)
#define IF_EQUAL(value, yes, no)                                                                   \
    (struct sock_filter)                                                                           \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), (uint8_t)(yes), (uint8_t)(no))

struct sock_fprog exec_let_pass(const struct sock_fprog *profile, const int *calls, size_t count,
                                uint64_t number)
{
    static LARGE struct sock_filter code[BPF_MAXINSNS];
    const uint32_t sixth = offsetof(struct seccomp_data, args[5]);
    const size_t prefix = count + 8;
    struct sock_filter *at = code;

    if (profile->len > BPF_MAXINSNS - prefix)
        return (struct sock_fprog){ 0 };
    *at++ = LOAD(offsetof(struct seccomp_data, arch));
    *at++ = IF_EQUAL(NATIVE_ARCH, 0, prefix - 2);
    *at++ = LOAD(offsetof(struct seccomp_data, nr));
    for (size_t i = 1; i <= count; i++)
        *at++ = IF_EQUAL(calls[i - 1], count - i, i == count ? 5 : 0);
    *at++ = LOAD(sixth);
    *at++ = IF_EQUAL(number, 0, 3);
    *at++ = LOAD(sixth + 4);
    *at++ = IF_EQUAL(number >> 32, 0, 1);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    memcpy(at, profile->filter, profile->len * sizeof(*at));
    return (struct sock_fprog){ (unsigned short)(profile->len + prefix), code };
}

static int exec_ours(const char *file, char **argv, char **env)
{
    return (int)call(SYS_execve, (long)file, (long)argv, (long)env);
}

static int send_listener(const struct exec_job *job, int listener, struct cove_err *e)
{
    return msg_send(job->sock, &(struct msg_out){ MSG_DONE, .fds = &listener, .fd_count = 1 }, 0,
                    e);
}

/*
 * Last before execve, so that the filter judges the command and not our set-up. CAP_SYS_ADMIN takes
 * the place of no_new_privs, so that set-uid programs still work inside. For a user other than
 * root, execve drops all of it.
 */
static int set_filter(const struct exec_job *job, struct cove_err *e)
{
    unsigned flags = SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    struct sock_fprog filter = job->filter;
    long listener;

    if (job->filter.len == 0 || weak("seccomp"))
        return 0;
    if (raise_caps(1U << CAP_SYS_ADMIN, e) < 0)
        return -1;
    if (job->notify) {
        flags |= SECCOMP_FILTER_FLAG_NEW_LISTENER;
        text_random(&pass, sizeof(pass));
        filter = exec_let_pass(&job->filter, &(int){ SYS_execve }, 1, pass);
        if (filter.len == 0)
            filter = job->filter; /* too long: our own execve is asked about like any other */
    }
    listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
    if (listener < 0)
        return cove_fail_errno(e, COVE_INVALID, "installing the seccomp filter");
    return job->notify ? send_listener(job, (int)listener, e) : 0;
}

static void set_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* --------------------------------------------------------------- execve */

static const struct {
    int errnum;
    enum cove_code code;
} exec_codes[] = {
    { ENOENT, COVE_NOT_FOUND }, { ENOTDIR, COVE_NOT_FOUND }, { EACCES, COVE_FORBIDDEN },
    { EPERM, COVE_FORBIDDEN },  { E2BIG, COVE_TOO_LARGE },   { ENOMEM, COVE_LIMIT },
    { EAGAIN, COVE_LIMIT },
};

static int fail_exec(const struct exec_job *job, int errnum, struct cove_err *e)
{
    enum cove_code code = COVE_INVALID;

    for (size_t i = 0; i < ARRAY_SIZE(exec_codes); i++)
        if (exec_codes[i].errnum == errnum)
            code = exec_codes[i].code;
    errno = errnum;
    return cove_fail_errno(e, code, "command '%.100s'", job->argv[0]);
}

static const char *path_of(const struct exec_job *job)
{
    for (char **env = job->env; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "";
}

/* As execvp() does it, but without allocating: a file that may not be run is remembered, and the
   search goes on. */
static int exec_in_path(const struct exec_job *job, struct cove_err *e)
{
    int errnum = ENOENT;
    char file[MSG_PATH_MAX];

    for (const char *dir = path_of(job); *dir;) {
        size_t len = strcspn(dir, ":");

        if ((size_t)snprintf(file, sizeof(file), "%.*s/%s", (int)len, len ? dir : ".",
                             job->argv[0]) < sizeof(file))
            exec_ours(file, job->argv, job->env);
        if (errno != ENOENT && errno != ENOTDIR)
            errnum = errno;
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            break;
        dir += len + (dir[len] == ':');
    }
    return fail_exec(job, errnum, e);
}

static int exec_command(const struct exec_job *job, struct cove_err *e)
{
    if (!strchr(job->argv[0], '/'))
        return exec_in_path(job, e);
    exec_ours(job->argv[0], job->argv, job->env);
    return fail_exec(job, errno, e);
}

void exec_begin(void)
{
    setsid();
    umask(022);
    prefer_as_oom_victim();
}

/* Of all that init has open the child keeps its socket only: a copy of somebody's pipe or
   connection would keep it open. */
int exec_keep_only(int sock)
{
    int at = sock == 3 ? 3 : dup3(sock, 3, O_CLOEXEC);

    syscall(SYS_close_range, 4U, ~0U, 0);
    return at;
}

static int child(struct exec_job *job)
{
    struct cove_err e = { 0 };

    exec_begin();
    if (set_stdio(job, &e) == 0 && (job->sock = exec_keep_only(job->sock)) >= 0 &&
        set_limits(job, &e) == 0 && set_identity(job, &e) == 0) {
        set_signals();
        if (set_filter(job, &e) == 0)
            exec_command(job, &e);
    }
    msg_send(job->sock, &(struct msg_out){ MSG_ERROR, MSG_BODY(e) }, 0, NULL);
    return EXIT_NOT_STARTED;
}

int exec_fail_clone(int errnum, struct cove_err *e)
{
    errno = errnum;
    if (errnum == EAGAIN)
        return cove_fail_errno(e, COVE_LIMIT, "no more processes in this sandbox");
    return cove_fail_errno(e, errnum == ENOMEM ? COVE_LIMIT : COVE_INTERNAL, "starting a process");
}

/* --------------------------------------------------------------- for the launcher, and set-up */

int exec_become(struct exec_job *job, uint64_t our_pass, struct cove_err *e)
{
    pass = our_pass;
    if (set_limits(job, e) < 0 || set_stdio(job, e) < 0 || set_identity(job, e) < 0)
        return -1;
    set_signals();
    return exec_command(job, e);
}

int exec_raise_all_caps(void)
{
    return raise_caps(~0U, NULL);
}

void exec_setup(void)
{
    getrlimit(RLIMIT_NOFILE, &files_at_start);
    no_core_dumps();
}

pid_t exec_start(const struct exec_job *job, int cgroup_fd, struct cove_err *e)
{
    struct clone_args args = { .exit_signal = SIGCHLD };
    long pid;

    if (cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup_fd;
    }
    pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        struct exec_job ours = *job;

        _exit(child(&ours));
    }
    return pid < 0 ? exec_fail_clone(errno, e) : (pid_t)pid;
}
