/*
 * A process that works on the files of a sandbox: packs them into an archive, or unpacks an archive into
 * them. With its order it becomes root of a user namespace with the ids of that one sandbox, so it is root over those
 * files (it reads a file of mode 000) and nobody elsewhere; it has no network. It can read world-readable
 * files of the host until it makes the sandbox's files its root directory, before it reads any of them.
 *
 * Its namespaces are made, and its program is loaded, before it has an order: nobody has mapped the ids of its user
 * namespace then, so it cannot become root of anything, and waits. That takes longer than the work on a small sandbox, so a
 * process can be started ahead (sandbox/keeper/saver_run.c).
 */
#include "sandbox/box/boxed.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

static void become(const struct boxed_program *program, int sock)
{
    char *const env[] = { "LC_ALL=C.UTF-8", NULL };
    char title[64];
    char *const argv[] = { title, NULL };
    int exe = fcntl(program->exe, F_DUPFD_CLOEXEC, 100), high = fcntl(sock, F_DUPFD_CLOEXEC, 100);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t none;

    snprintf(title, sizeof(title), "%s", program->title);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    /* All capabilities are those of the new namespaces, and say nothing about the host. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || userns_keep_capabilities(~0ULL, NULL) < 0 ||
        dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(high, BOXED_SOCK_FD) < 0)
        _exit(127);
    execveat(exe, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
}

/* ------------------------------------------------------------------ in the keeper */

/* The id `owner` owns the namespaces: what the kernel counts per user is charged to it, not to root, and the process has
 * that id until it gets its order. execve would take the ambient capabilities away if the real id were another. */
static long clone_owned_by(uid_t owner, int *ret_pidfd)
{
    struct clone_args clone = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                 CLONE_NEWUTS | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
    };
    struct uid_loan loan;
    long pid = -1;

    if (uid_borrow(owner, &loan) < 0)
        return -1;
    if (syscall(SYS_setresuid, owner, -1, -1) == 0) {
        pid = syscall(SYS_clone3, &clone, sizeof(clone));
        if (pid == 0)
            return 0; /* the child keeps the id */
        if (syscall(SYS_setresuid, 0, -1, -1) < 0)
            abort();
    }
    uid_give_back(&loan);
    return pid;
}

int boxed_start(const struct boxed_program *program, uid_t owner, struct boxed *ret,
                struct cove_err *e)
{
    struct boxed b = { .pidfd = -1 };
    int pair[2];
    long pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "socket to a job");
    pid = clone_owned_by(owner, &b.pidfd);
    if (pid == 0)
        become(program, pair[1]);
    close(pair[1]);
    b.pid = (pid_t)pid;
    b.sock = pair[0];
    if (pid < 0) {
        close(b.sock);
        return cove_fail_errno(e, COVE_UNSUPPORTED, "creating namespaces");
    }
    *ret = b;
    return 0;
}

/* Makes a mount of the files with the process's ids. Where the files are a mount that only the sandbox has
 * attached, the kernel makes no second one: then the process gets the directory itself, whose files have the
 * sandbox's ids already. */
static int map_files(const struct boxed_order *order, pid_t pid, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int userns = -1;
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "user namespace");
    *order->ret_attach = 1;
    if (mounts_map_files(order->files->dir, userns, order->read_only, ret, e) == 0)
        return 0;
    if (!order->files->is_mount || !order->read_only)
        return -1;
    *order->ret_attach = 0;
    *ret = fcntl(order->files->dir, F_DUPFD_CLOEXEC, 0);
    return *ret < 0 ? cove_fail_errno(e, COVE_INTERNAL, "files of the sandbox") : 0;
}

int boxed_order(pid_t pid, int sock, const struct boxed_order *order, struct cove_err *e)
{
    AUTO_CLOSE int files = -1;
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int fds[3] = { order->in >= 0 ? order->in : null, order->out >= 0 ? order->out : null };

    if (null < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "/dev/null");
    if (userns_write_maps(pid, &order->ids, e) < 0 ||
        (order->files && map_files(order, pid, &files, e) < 0))
        return -1;
    fds[2] = files;
    return msg_send(sock,
                    &(struct msg_out){ order->type, .body = order->body, .body_len = order->size,
                                       .fds = fds, .fd_count = files >= 0 ? 3 : 2 },
                    MSG_DONTWAIT, e);
}
