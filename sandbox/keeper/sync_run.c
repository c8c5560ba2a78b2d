/*
 * fsync() by a child of the keeper's own. On a busy disk one call can take longer than the keeper's loop
 * may stand still, and a sandbox that is put into the store needs several.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

enum { SYNC_NAMES = 8 };

/* The files of the directory that is descriptor 0. All of them are sent on their way first, so that the file system
 * knows their blocks when the first fsync() writes its journal: then it writes the journal once, not once for each
 * file. A file system that cannot send one off by itself does so in fsync(). */
static int sync_files(const char *const *names)
{
    static const char *const none[] = { NULL };
    int fds[SYNC_NAMES], count = 0, rc = 0;

    if (!names)
        names = none;
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
static void child(const struct keeper *k, const void *arg)
{
    const struct sync_task *task = arg;

    (void)k;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(task->dir, 0) < 0 || close_range(1, ~0U, 0) < 0 || sync_files(task->names) < 0)
        _exit(1);
    _exit(fsync(0) < 0);
}

int sync_run_start(struct keeper *k, const struct sync_task *task, struct job **ret,
                   struct cove_err *e)
{
    const struct job_child c = {
        .name = "a sync", .run = child, .arg = task, .index = task->box, .done = task->done
    };

    return job_fork(k, &c, ret, e);
}
