/*
 * fsync() by a child of the keeper's own. On a busy disk one call can take longer than the keeper's loop
 * may stand still, and a sandbox that is put into the store needs several.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

enum { SYNC_NAMES = 8 };

struct sync_run {
    struct job job;
    uint32_t box;
    sync_done done; /* NULL: nobody wants to know */
};

/* The files of the directory that is descriptor 0. All of them are sent on their way first, so that the file system
 * knows their blocks when the first fsync() writes its journal: then it writes the journal once, not once for each
 * file. A file system that cannot send one off by itself does so in fsync(). */
static int sync_files(const char *const *names)
{
    int fds[SYNC_NAMES], count = 0, rc = 0;

    for (; *names && count < SYNC_NAMES; names++) {
        int fd = openat(0, *names, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd >= 0) {
            sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
            fds[count++] = fd;
        } else if (errno != ENOENT) {
            return -1;
        }
    }
    for (int i = 0; i < count && rc == 0; i++)
        rc = fsync(fds[i]);
    return *names ? -1 : rc;
}

/* Nothing but the directory stays open: connections must end when the keeper closes them. */
static void child(const struct sync_task *task)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(task->dir, 0) < 0 || close_range(1, ~0U, 0) < 0 || sync_files(task->names) < 0)
        _exit(1);
    _exit(fsync(0) < 0);
}

static void on_exit_of(struct watch *w, uint32_t events)
{
    struct sync_run *run = container_of(w, struct sync_run, job.exit);
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    sync_done done = run->done;
    uint32_t box = run->box;
    int status = job_reap(&run->job);

    (void)events;
    free(run);
    if (done)
        done(k, box, WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int sync_run_start(struct keeper *k, const struct sync_task *task, struct sync_run **ret,
                   struct cove_err *e)
{
    struct sync_run *run = calloc(1, sizeof(*run));
    struct boxed b = { .sock = -1 };

    if (!run)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    *run = (struct sync_run){ .box = task->box, .done = task->done };
    b.pid = fork();
    if (b.pid == 0)
        child(task);
    b.pidfd = b.pid > 0 ? pidfd_open(b.pid, 0) : -1;
    if (b.pidfd < 0) {
        free(run);
        return cove_fail_errno(e, COVE_INTERNAL, "starting to sync the store");
    }
    fcntl(b.pidfd, F_SETFD, FD_CLOEXEC);
    if (job_watch(k, &run->job, &b, on_exit_of, e) < 0) {
        free(run);
        return -1;
    }
    *ret = run;
    return 0;
}

void sync_run_abandon(struct sync_run *run)
{
    if (!run)
        return;
    run->done = NULL;
    job_kill(&run->job);
}
