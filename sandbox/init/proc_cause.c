/* Why a process ended: somebody's kill, or one of the sandbox's limits. */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

static bool ended_by(const struct cove_end *end, int signo)
{
    return end->signal == signo || (!end->signal && end->exit_code == 128 + signo);
}

enum { DISK_FULL_BYTES = 256 * 1024 }; /* a disk with less than this left counts as full */

static bool is_full(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

/* Overlays of older kernels have no files without a name: there the file has a name for a
 * moment. */
static int open_scratch(void)
{
    char name[] = "/.cove-XXXXXX";
    int fd = open("/", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || is_full(errno))
        return fd;
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

/* statfs() does not show this quota, so it is tried out. */
static bool quota_is_full(void)
{
    int fd = open_scratch();
    bool full;

    if (fd < 0)
        return is_full(errno);
    full = fallocate(fd, 0, 0, DISK_FULL_BYTES) < 0 && is_full(errno);
    close(fd);
    return full;
}

static bool disk_is_full(const struct init *in, uint64_t *ret_limit)
{
    struct statfs fs;

    if (in->disk_bytes) {
        *ret_limit = in->disk_bytes;
        return quota_is_full();
    }
    if (statfs("/", &fs) < 0 || fs.f_blocks == 0 ||
        (fs.f_bavail * (uint64_t)fs.f_bsize >= DISK_FULL_BYTES && fs.f_ffree > 0))
        return false;
    *ret_limit = fs.f_blocks * (uint64_t)fs.f_bsize;
    return true;
}

void proc_tell_cause(struct init *in, struct proc *p)
{
    struct cove_end *end = &p->end;

    if (p->kill_cause && ended_by(end, p->kill_signo)) {
        end->cause = p->kill_cause;
        end->limit = p->kill_limit;
    } else if (ended_by(end, SIGKILL) && cgroup_oom_kills(in) > p->oom_before) {
        end->cause = END_MEMORY;
        end->limit = cgroup_memory_limit(in);
    } else if ((end->signal || end->exit_code) && cgroup_pids_refused(in) > p->pids_before) {
        end->cause = END_PIDS;
        end->limit = cgroup_pids_limit();
    } else if ((end->signal || end->exit_code) && disk_is_full(in, &end->limit)) {
        end->cause = END_DISK;
    }
}
