/*
 * A sandbox's file systems, put together inside its namespaces of what the keeper has made (box/mounts.c):
 * /proc with what is seen of it, /dev, overlays. It begins in an empty mount namespace (box/empty_ns.c). There it arranges
 * /proc and /dev while the keeper makes the sandbox's files. Then the sandbox's root covers that of the namespace, and
 * /proc and /dev are moved into it.
 */
#include "config.h" /* _GNU_SOURCE */

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/file.h"
#include "cove/libc.h"
#include "cove/mem.h"
#include "cove/setup_plan.h"
#include "cove/weak.h"
#include "sandbox/setup/procfiles.h"
#include "sandbox/setup/setup_private.h"

/* ------------------------------------------------------------------ /proc and /dev */

/* It covers the /proc of the empty mount namespace, which shows no process. */
int setup_proc(struct cove_err *e)
{
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /proc");
    return 0;
}

static int put_mount(int tree, const char *target)
{
    return move_mount(tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* All sandboxes together have kernel.pty.max terminals, 3072 as a rule: without a maximum one would take them all. */
static int mount_pts(struct cove_err *e)
{
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /dev/pts");
    return 0;
}

/* /dev/shm is a bind of a folder of /dev's tmpfs, which saves a file system. It is not noexec: programs map
 * files in it executable (libffi). */
static int mount_shm(struct cove_err *e)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_NODEV, .attr_clr = MOUNT_ATTR_NOEXEC };
    AUTO_CLOSE int tree = open_tree(AT_FDCWD, "/dev/shm", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
        put_mount(tree, "/dev/shm") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /dev/shm");
    return 0;
}

/*
 * Called while /proc/sys/user can still be written: from here on this user namespace has no room for another
 * namespace of any kind. seccomp refuses to make them as well; this also stops a process that gets round seccomp.
 */
static int forbid_namespaces(int sysctl_dir, struct cove_err *e)
{
    static const char *const kinds[] = {
        "user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"
    };
    char path[48];

    for (size_t i = 0; !weak("namespaces") && i < ARRAY_SIZE(kinds); i++) {
        snprintf(path, sizeof(path), "max_%s_namespaces", kinds[i]);
        if (write_file_at(sysctl_dir, path, "0", e) < 0)
            return -1;
    }
    return 0;
}

/* The kernel makes a temporary mount namespace for each detached mount, so the limit on namespaces is set after
 * the last of these mounts. */
static int close_proc(struct cove_err *e)
{
    AUTO_CLOSE int sysctl_dir = open("/proc/sys/user", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (sysctl_dir < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "/proc/sys/user");
    if (procfiles_setup(e) < 0)
        return -1;
    return forbid_namespaces(sysctl_dir, e);
}

int setup_dev(int dev, struct cove_err *e)
{
    if (put_mount(dev, "/dev") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "attaching /dev");
    if (mount_pts(e) < 0 || mount_shm(e) < 0)
        return -1;
    return close_proc(e);
}

/* ------------------------------------------------------------------ the root */

/* Where the new root is mounted: "/.." is the topmost mount over the empty root, "/" only our root until chroot(). A build
 * that is weakened for tests leaves the empty root in reach. */
#define NEW_ROOT (weak("root") ? SETUP_LAYERS : "/..")

/* An overlay takes only mounts that are attached in our namespace. All of them are attached to the same place,
 * each over the one before, and named by their descriptors. They stay there, below the new root: to unmount them the
 * kernel waits for all cpus, 0.3 ms on a busy machine. */
static int attach_layers(const struct box_mounts *m, struct cove_err *e)
{
    int bad = put_mount(m->files, SETUP_LAYERS);

    for (unsigned i = 0; !bad && i < m->root.count; i++)
        bad = put_mount(m->root.fd[i], SETUP_LAYERS);
    for (unsigned i = 0; !bad && i < m->usr.count; i++)
        bad = put_mount(m->usr.fd[i], SETUP_LAYERS);
    return bad ? cove_fail_errno(e, COVE_INTERNAL, "attaching the sandbox's layers") : 0;
}

/* "volatile" skips the sync at the end: a sandbox's files do not outlive it, unless saved from
 * inside. */
static int overlay(const struct layers *lower, int files, const char *upper, const char *work,
                   const char *target, struct cove_err *e)
{
    struct buf options;
    int rc = 0;

    buf_init(&options, 4096); /* the kernel takes a page */
    for (unsigned i = 0; i < lower->count; i++)
        buf_addf(&options, "%s/proc/self/fd/%d", i ? ":" : "lowerdir=", lower->fd[i]);
    buf_addf(&options, ",upperdir=/proc/self/fd/%d/%s,workdir=/proc/self/fd/%d/%s", files, upper,
             files, work);
    buf_addf(&options, ",userxattr,volatile");
    if (options.overflow)
        rc = cove_fail(e, COVE_LIMIT, "overlay on %s: too many layers", target);
    else if (mount("overlay", target, "overlay", MS_NODEV, options.data) < 0)
        rc = cove_fail_errno(e, COVE_INTERNAL, "overlay on %s", target);
    buf_done(&options);
    return rc;
}

/*
 * Opens a directory of the new root itself, without following links. A tenant may have made a link in its place: the
 * mount would land elsewhere, where nothing covers it.
 */
static int open_mount_point(const char *name, int *ret, struct cove_err *e)
{
    *ret = open(name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INVALID, "/%s of the template", name) : 0;
}

/* Moves /proc or /dev, with all that is mounted in it, into the new root. */
static int move_in(const char *from, const char *name, struct cove_err *e)
{
    AUTO_CLOSE int point = -1;

    if (open_mount_point(name, &point, e) < 0)
        return -1;
    if (move_mount(AT_FDCWD, from, point, "", MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "moving %s", from);
    return 0;
}

/*
 * Mounts the new root over the empty one and makes it ours. That covers the empty root for good: no path leads below the
 * topmost mount. pivot_root would take the empty root away, but it visits every thread of the machine: 2 ms with 4,000
 * sandboxes.
 */
static int enter_root(const struct box_mounts *m, struct cove_err *e)
{
    if (overlay(&m->root, m->files, UPPER_ROOT, WORK_ROOT, NEW_ROOT, e) < 0)
        return -1;
    if (chdir(NEW_ROOT) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "the new root");
    if (move_in("/proc", "proc", e) < 0 || move_in("/dev", "dev", e) < 0)
        return -1;
    if (chroot(".") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "entering the new root");
    return 0;
}

static int mount_usr(const struct box_mounts *m, struct cove_err *e)
{
    AUTO_CLOSE int usr = -1;
    char path[32];

    if (m->usr.count == 0)
        return 0;
    if (open_mount_point("usr", &usr, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", usr);
    return overlay(&m->usr, m->files, UPPER_USR, WORK_USR, path, e);
}

int setup_root(const struct box_mounts *m, struct cove_err *e)
{
    if (attach_layers(m, e) < 0 || enter_root(m, e) < 0)
        return -1;
    return mount_usr(m, e);
}
