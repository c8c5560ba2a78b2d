/*
 * The mount namespace in which every sandbox begins. A new mount namespace is a copy of the one that its maker is in. A
 * copy of the host's would have all of the host's mounts; a sandbox would have to get rid of them by pivot_root, and
 * pivot_root visits every thread of the machine. So the keeper makes an empty mount namespace once, and is in it while it
 * clones a sandbox's first process (build.c).
 *
 *   /        an empty tmpfs, read-only
 *   /proc    a /proc that shows no process. A user namespace may mount a /proc of its own only where it sees another
 *            one in full. This one belongs to a pid namespace whose only process has ended
 *   /dev     where the set-up attaches the sandbox's /dev until it has a root
 *   /layers  where the set-up attaches the sandbox's layers (setup/setup_mounts.c)
 *
 * The set-up mounts the sandbox's root over "/". What is below can be reached by no path, as the initramfs below the root of
 * every Linux: "..", chroot() and setns() all end in the topmost mount. And below there is nothing but this
 * and the sandbox's own layers.
 */
#include "sandbox/box/empty_ns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/setup_plan.h"

/* ------------------------------------------------------------------ in the child */

enum { ATTRS = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC };

/* Any directory would do: the host does not see what is mounted here. */
#define PLACE "/tmp"

static int mount_root(struct cove_err *e)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", PLACE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,mode=0755") < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "an empty tmpfs");
    if (mkdir(PLACE "/proc", 0555) < 0 || mkdir(PLACE "/dev", 0555) < 0 ||
        mkdir(PLACE SETUP_LAYERS, 0555) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "an empty tmpfs");
    return 0;
}

/* The /proc is not read-only: a sandbox could then mount only a read-only one. */
static int mount_proc(struct cove_err *e)
{
    if (mount("proc", PLACE "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "mounting a /proc");
    return 0;
}

static int leave_host(struct cove_err *e)
{
    struct mount_attr attr = { .attr_set = ATTRS | MOUNT_ATTR_RDONLY };

    if (chdir(PLACE) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "leaving the host's root");
    if (mount_setattr(AT_FDCWD, "/", 0, &attr, sizeof(attr)) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "a read-only root");
    return 0;
}

/* Tells the result and waits: the namespace is the keeper's as soon as the keeper has opened it, and its /proc is empty
 * when this process has ended. */
static _Noreturn void fill(int out)
{
    struct cove_err err = { 0 };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mount_root(&err) == 0 && mount_proc(&err) == 0)
        leave_host(&err);
    if (write(out, &err, sizeof(err)) == (ssize_t)sizeof(err))
        pause();
    _exit(1);
}

/* ------------------------------------------------------------------ in the keeper */

static int open_ns(pid_t pid, int in, int *ret, struct cove_err *e)
{
    struct cove_err remote;
    char path[48];

    if (read(in, &remote, sizeof(remote)) != (ssize_t)sizeof(remote))
        return cove_fail(e, COVE_INTERNAL, "its maker ended early");
    if (remote.code != COVE_OK) {
        *e = remote;
        return -1;
    }
    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    *ret = open(path, O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INTERNAL, "%s", path) : 0;
}

static int make_filled(int *ret, struct cove_err *e)
{
    struct clone_args clone = { .flags = CLONE_NEWNS | CLONE_NEWPID, .exit_signal = SIGCHLD };
    int pair[2], rc;
    long pid;

    if (pipe2(pair, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "pipe");
    pid = syscall(SYS_clone3, &clone, sizeof(clone));
    if (pid == 0)
        fill(pair[1]);
    close(pair[1]);
    rc = pid < 0 ? cove_fail_errno(e, COVE_UNSUPPORTED, "creating namespaces")
                 : open_ns((pid_t)pid, pair[0], ret, e);
    close(pair[0]);
    if (pid > 0) {
        kill((pid_t)pid, SIGKILL);
        waitpid((pid_t)pid, NULL, 0);
    }
    return rc;
}

/* Goes there and back. Coming back leads to the root of the keeper's mount namespace: a keeper whose root is another one,
 * after chroot(), would be elsewhere then. (The kernel lets such a keeper make no user namespace either.) */
static int try_out(const struct empty_ns *ns, struct cove_err *e)
{
    struct stat before, after;

    if (stat("/", &before) < 0 || empty_ns_enter(ns) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED,
                               "entering it (CAP_SYS_CHROOT and CAP_SYS_ADMIN)");
    empty_ns_leave(ns);
    if (stat("/", &after) < 0 || before.st_dev != after.st_dev || before.st_ino != after.st_ino)
        return cove_fail(e, COVE_UNSUPPORTED, "the keeper was started in a chroot");
    return 0;
}

int empty_ns_make(struct empty_ns *ret, struct cove_err *e)
{
    AUTO_CLOSE int empty = -1;
    AUTO_CLOSE int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct empty_ns ns;

    if (own < 0 || cwd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "the keeper's own mount namespace");
    if (make_filled(&empty, e) < 0)
        return cove_context(e, "an empty mount namespace");
    ns = (struct empty_ns){ empty, own, cwd };
    if (try_out(&ns, e) < 0)
        return cove_context(e, "an empty mount namespace");
    take_fd(&empty);
    take_fd(&own);
    take_fd(&cwd);
    *ret = ns;
    return 0;
}

int empty_ns_enter(const struct empty_ns *ns)
{
    return setns(ns->empty, CLONE_NEWNS);
}

/* setns() has changed the working directory to the root as well. */
void empty_ns_leave(const struct empty_ns *ns)
{
    int error = errno;

    if (setns(ns->own, CLONE_NEWNS) < 0 || fchdir(ns->cwd) < 0)
        abort(); /* the keeper would look for all its files in there */
    errno = error;
}
