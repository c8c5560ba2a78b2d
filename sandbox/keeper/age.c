/*
 * Archives are encrypted by age, a program of Debian's without a library: the keeper puts it between the
 * saver and the archive. It runs as the workers' user, in a network namespace with nothing in it, and
 * has its input, its output and, to decrypt, the identity in a file that exists in memory only.
 */
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

#define AGE "/usr/bin/age"

enum { IDENTITY_FD = 3, IDENTITY_MAX = 64 * 1024 };

static int place(int from, int at)
{
    int high = fcntl(from, F_DUPFD_CLOEXEC, 100);

    return high < 0 || dup2(high, at) != at ? -1 : 0;
}

static void child(const struct keeper *k, const void *arg)
{
    const struct age_task *task = arg;
    char recipient[sizeof(k->config.store_recipient)];
    char *const encrypt[] = { "age", "-r", recipient, NULL };
    char *const decrypt[] = { "age", "-d", "-i", "/dev/fd/3", NULL };
    char *const env[] = { "LC_ALL=C.UTF-8", NULL };
    gid_t gid = k->worker_gid;
    sigset_t none;

    text_copy(recipient, sizeof(recipient), k->config.store_recipient);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    if (place(task->in, 0) < 0 || place(task->out, 1) < 0 ||
        (task->identity >= 0 && place(task->identity, IDENTITY_FD) < 0) ||
        unshare(CLONE_NEWNET | CLONE_NEWIPC) < 0 || setgroups(1, &gid) < 0 ||
        setresgid(gid, gid, gid) < 0 ||
        setresuid(k->worker_uid, k->worker_uid, k->worker_uid) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        _exit(126);
    execve(AGE, task->identity >= 0 ? decrypt : encrypt, env);
    _exit(AGE_MISSING);
}

int age_start(struct keeper *k, const struct age_task *task, struct job **ret, struct cove_err *e)
{
    const struct job_child c = {
        .name = "age", .run = child, .arg = task, .index = task->box, .done = task->done
    };

    return job_fork(k, &c, ret, e);
}

/* Only root may read the operator's file, so the process of age gets a copy of its own. */
int age_open_identity(const struct keeper *k, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    AUTO_FREE char *text = NULL;
    size_t len = 0;

    if (!k->config.store_identity[0])
        return cove_fail(e, COVE_UNSUPPORTED,
                         "the archive is encrypted, and store_identity is not configured");
    if (file_read(k->config.store_identity, IDENTITY_MAX, &text, &len, e) < 0)
        return -1;
    fd = memfd_create("cove-identity", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0)
        return cove_fail_errno(e, COVE_INTERNAL, "identity");
    explicit_bzero(text, len);
    *ret = take_fd(&fd);
    return 0;
}
