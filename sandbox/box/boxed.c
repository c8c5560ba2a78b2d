/*
 * A process that works on the files of a sandbox: packs them into an archive, or unpacks an archive into
 * them. It has the ids of that one sandbox in a user namespace of its own, so it is root over those
 * files (it reads a file of mode 000) and nobody elsewhere; it has no network. It can read world-readable
 * files of the host until the program has loaded its libraries and makes the sandbox's files its root
 * directory.
 */
#include "sandbox/box/boxed.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "sandbox/box/mounts.h"

/* ------------------------------------------------------------------ in the child */

static bool wait_for_maps(int sock)
{
    static const struct msg_rule rules[] = { { MSG_DONE, 0, 0, 0, 0 }, { 0 } };
    char buf[64];
    struct msg m;

    return msg_recv(sock, buf, sizeof(buf), rules, 0, &m, NULL) == 1;
}

static int place(int from, int at)
{
    int fd = from >= 0 ? fcntl(from, F_DUPFD, 100) : open("/dev/null", O_RDWR);

    return fd < 0 || dup2(fd, at) != at || close(fd) < 0 ? -1 : 0;
}

static void become(const struct boxed_args *args, int sock)
{
    char *const env[] = { "LC_ALL=C.UTF-8", NULL };
    char title[64];
    char *const argv[] = { title, NULL };
    int exe = fcntl(args->exe, F_DUPFD_CLOEXEC, 100), high = fcntl(sock, F_DUPFD_CLOEXEC, 100);
    sigset_t none;

    snprintf(title, sizeof(title), "%s", args->title);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (!wait_for_maps(high) || setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 ||
        setresuid(0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        place(args->in, 0) < 0 || place(args->out, 1) < 0 || dup2(high, BOXED_SOCK_FD) < 0)
        _exit(127);
    execveat(exe, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
}

/* ------------------------------------------------------------------ in the keeper */

/* The sandbox's own id owns the namespaces, as it owns those of the sandbox: what the kernel counts per user is
 * charged to that id, not to root. */
static long clone_owned_by(uid_t owner, int *ret_pidfd)
{
    struct clone_args clone = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                 CLONE_NEWUTS | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
    };
    struct uid_loan loan;
    long pid;

    if (uid_borrow(owner, &loan) < 0)
        return -1;
    pid = syscall(SYS_clone3, &clone, sizeof(clone));
    if (pid != 0)
        uid_give_back(&loan); /* the child keeps the sandbox's id */
    return pid;
}

/* Makes a mount of the files with the process's ids. Where the files are a mount that only the sandbox has
 * attached, the kernel makes no second one: then the process gets the directory itself, whose files have the
 * sandbox's ids already. */
static int map_files(const struct boxed_args *args, pid_t pid, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int userns = -1;
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "user namespace");
    *args->ret_attach = 1;
    if (mounts_map_files(args->files->dir, userns, args->read_only, ret, e) == 0)
        return 0;
    if (!args->files->is_mount || !args->read_only)
        return -1;
    *args->ret_attach = 0;
    *ret = fcntl(args->files->dir, F_DUPFD_CLOEXEC, 0);
    return *ret < 0 ? cove_fail_errno(e, COVE_INTERNAL, "files of the sandbox") : 0;
}

static int give_order(const struct boxed_args *args, pid_t pid, int sock, struct cove_err *e)
{
    AUTO_CLOSE int files = -1;

    if (userns_write_maps(pid, &args->ids, e) < 0 ||
        (args->files && map_files(args, pid, &files, e) < 0) ||
        msg_send(sock, &(struct msg_out){ MSG_DONE }, MSG_DONTWAIT, e) < 0)
        return -1;
    return msg_send(sock,
                    &(struct msg_out){ args->order_type, .body = args->order,
                                       .body_len = args->order_size, .fds = &files,
                                       .fd_count = files >= 0 },
                    MSG_DONTWAIT, e);
}

int boxed_start(const struct boxed_args *args, struct boxed *ret, struct cove_err *e)
{
    struct boxed b = { .pidfd = -1 };
    int pair[2];
    long pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "socket to a job");
    pid = clone_owned_by(args->ids.base, &b.pidfd);
    if (pid == 0) {
        close(pair[0]);
        become(args, pair[1]);
    }
    close(pair[1]);
    b.pid = (pid_t)pid;
    b.sock = pair[0];
    if (pid < 0) {
        close(b.sock);
        return cove_fail_errno(e, COVE_UNSUPPORTED, "creating namespaces");
    }
    if (give_order(args, b.pid, b.sock, e) < 0) {
        kill(b.pid, SIGKILL);
        waitpid(b.pid, NULL, 0);
        close(b.pidfd);
        close(b.sock);
        return -1;
    }
    *ret = b;
    return 0;
}
