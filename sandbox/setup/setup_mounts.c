/*
 * A sandbox's file systems, put together inside its namespaces of what the keeper has made (box/mounts.c):
 * overlays, /proc, /dev, pivot_root, and what is seen of /proc.
 */
#include "config.h" /* _GNU_SOURCE */

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/file.h"
#include "cove/libc.h"
#include "cove/mem.h"
#include "cove/weak.h"
#include "sandbox/setup/procfiles.h"
#include "sandbox/setup/setup_private.h"

static int put_mount(int tree, const char *target)
{
    return move_mount(tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* The new root is put together here until pivot_root. Any directory would do, and every Linux has this one. The
 * mount namespace is the sandbox's, so the host does not see what is mounted. */
#define NEW "/tmp"

/* An overlay takes only mounts that are attached in our namespace. All of them are attached to the same place,
 * each over the one before, and named by their descriptors. */
static int attach_all(const struct box_mounts *m, struct cove_err *e)
{
    int bad = put_mount(m->files, NEW);

    for (unsigned i = 0; !bad && i < m->root.count; i++)
        bad = put_mount(m->root.fd[i], NEW);
    for (unsigned i = 0; !bad && i < m->usr.count; i++)
        bad = put_mount(m->usr.fd[i], NEW);
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

enum { FD_PATH = 32 };

/*
 * Opens a directory of the new root itself, without following links. A tenant may have made a link in its place,
 * and until pivot_root a link would be followed from the host's root: the mount would land elsewhere, where
 * nothing covers it.
 */
static int open_mount_point(const char *name, int *ret, char path[FD_PATH], struct cove_err *e)
{
    AUTO_CLOSE int root = open(NEW, O_PATH | O_DIRECTORY | O_CLOEXEC);

    *ret = root < 0 ? -1 : openat(root, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*ret < 0)
        return cove_fail_errno(e, COVE_INVALID, "/%s of the template", name);
    snprintf(path, FD_PATH, "/proc/self/fd/%d", *ret);
    return 0;
}

static int stage_root(const struct box_mounts *m, struct cove_err *e)
{
    AUTO_CLOSE int usr = -1;
    char path[FD_PATH];

    if (attach_all(m, e) < 0 || overlay(&m->root, m->files, UPPER_ROOT, WORK_ROOT, NEW, e) < 0)
        return -1;
    if (m->usr.count == 0)
        return 0;
    if (open_mount_point("usr", &usr, path, e) < 0)
        return -1;
    return overlay(&m->usr, m->files, UPPER_USR, WORK_USR, path, e);
}

/* /dev/shm is a bind of a folder of /dev's tmpfs, which saves a file system. It is not noexec: programs map
 * files in it executable (libffi). */
static int mount_shm(struct cove_err *e)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_NODEV, .attr_clr = MOUNT_ATTR_NOEXEC };
    AUTO_CLOSE int tree = open_tree(AT_FDCWD, NEW "/dev/shm", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
        put_mount(tree, NEW "/dev/shm") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /dev/shm");
    return 0;
}

static int mount_proc(struct cove_err *e)
{
    AUTO_CLOSE int point = -1;
    char path[FD_PATH];

    if (open_mount_point("proc", &point, path, e) < 0)
        return -1;
    if (mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /proc");
    return 0;
}

static int attach_dev(int dev, struct cove_err *e)
{
    AUTO_CLOSE int point = -1;
    char path[FD_PATH];

    if (open_mount_point("dev", &point, path, e) < 0)
        return -1;
    if (move_mount(dev, "", point, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "attaching /dev");
    return 0;
}

static int mount_api_filesystems(const struct box_mounts *m, struct cove_err *e)
{
    if (mount_proc(e) < 0 || attach_dev(m->dev, e) < 0)
        return -1;
    /* All sandboxes together have kernel.pty.max terminals, 3072 as a rule: without a maximum one would take them all. */
    if (mount("devpts", NEW "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /dev/pts");
    return mount_shm(e);
}

/* Puts the new root over the old one, then removes the old one with all of the host's mounts in it. */
static int pivot(struct cove_err *e)
{
    if (chdir(NEW) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "leaving the old root");
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

int setup_mounts(const struct box_mounts *m, struct cove_err *e)
{
    if (stage_root(m, e) < 0 || mount_api_filesystems(m, e) < 0 || pivot(e) < 0)
        return -1;
    return close_proc(e);
}
