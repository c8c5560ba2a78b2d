/*
 * A sandbox's file systems. The keeper makes detached mounts while it has the host's privileges
 * (ids mapped, device nodes); the sandbox's own set-up, already inside its namespaces, attaches
 * them, puts the overlays together and pivots. No host path is looked up inside: the checkout or
 * state_dir may lie where the sandbox's ids could not even search.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/weak.h"
#include "sandbox/box/mounts.h"
#include "sandbox/box/procfiles.h"

static int put_mount(int tree, const char *target)
{
    return move_mount(tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* ------------------------------------------------------------------ the keeper's part */

/* A copy of a shared mount is shared with it, and under systemd all mounts are: what the sandbox's
 * set-up puts on the copy would appear on the host's /usr as well. So the copy is made private. */
static int clone_tree(int dir, int userns_fd, uint64_t attrs, int *ret, struct cove_err *e)
{
    struct mount_attr attr = { .attr_set = attrs, .propagation = MS_PRIVATE };
    AUTO_CLOSE int tree = open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (tree < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "open_tree");
    if (userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)userns_fd;
    }
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "mount with mapped ids");
    *ret = take_fd(&tree);
    return 0;
}

static const struct {
    const char *name;
    unsigned major, minor;
} device_nodes[] = {
    { "null", 1, 3 },   { "zero", 1, 5 },    { "full", 1, 7 },
    { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};

static const struct {
    const char *name, *target;
} device_links[] = {
    { "fd", "/proc/self/fd" },       { "stdin", "/proc/self/fd/0" },
    { "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
    { "ptmx", "pts/ptmx" },
};

static int fill_dev(int dev, const struct id_range *ids, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(device_nodes); i++) {
        const char *name = device_nodes[i].name;
        dev_t number = makedev(device_nodes[i].major, device_nodes[i].minor);

        if (mknodat(dev, name, S_IFCHR | 0666, number) < 0 ||
            fchownat(dev, name, ids->base, ids->base, 0) < 0 || fchmodat(dev, name, 0666, 0) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "/dev/%s", name);
    }
    for (size_t i = 0; i < ARRAY_SIZE(device_links); i++) {
        const char *name = device_links[i].name;

        if (symlinkat(device_links[i].target, dev, name) < 0 ||
            fchownat(dev, name, ids->base, ids->base, AT_SYMLINK_NOFOLLOW) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "/dev/%s", name);
    }
    if (mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 0755) < 0 ||
        fchmodat(dev, "shm", 01777, 0) < 0 || fchownat(dev, "shm", ids->base, ids->base, 0) < 0 ||
        fchownat(dev, "", ids->base, ids->base, AT_EMPTY_PATH) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "/dev");
    return 0;
}

/* A tmpfs of the host's, so that its device nodes work inside; each sandbox has inodes of its own.
 * /dev/shm lies in it too, so its size is that of shared memory and a little more. */
static int make_dev(const struct id_range *ids, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    AUTO_CLOSE int mnt = -1;

    if (fs < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "fsopen tmpfs");
    if (fsconfig(fs, FSCONFIG_SET_STRING, "size", "65m", 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", "16384", 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "tmpfs for /dev");
    mnt = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    if (mnt < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "tmpfs for /dev");
    if (fill_dev(mnt, ids, e) < 0)
        return -1;
    *ret = take_fd(&mnt);
    return 0;
}

/* tmpfs maps ids from Linux 6.3 on. Before that its files belong to the host's ids of the sandbox. */
static int give_files(int files, const struct id_range *ids, struct cove_err *e)
{
    static const char *const dirs[] = { UPPER_ROOT, WORK_ROOT, UPPER_USR, WORK_USR };

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (fchownat(files, dirs[i], ids->base, ids->base, AT_SYMLINK_NOFOLLOW) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "files of the sandbox");
    return 0;
}

static int prepare_files(int files, bool is_mount, int userns_fd, const struct id_range *ids,
                         int *ret, struct cove_err *e)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns_fd };

    if (!is_mount)
        return clone_tree(files, userns_fd, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, ret, e);
    if (mount_setattr(files, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 &&
        give_files(files, ids, e) < 0)
        return -1;
    *ret = fcntl(files, F_DUPFD_CLOEXEC, 0);
    return *ret < 0 ? cove_fail_errno(e, COVE_INTERNAL, "files of the sandbox") : 0;
}

int mounts_map_files(int files, int userns_fd, bool read_only, int *ret, struct cove_err *e)
{
    uint64_t attrs = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;

    return clone_tree(files, userns_fd, read_only ? attrs | MOUNT_ATTR_RDONLY : attrs, ret, e);
}

static int prepare_layers(const struct layers *from, int userns_fd, struct layers *to,
                          struct cove_err *e)
{
    const uint64_t attrs = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID;

    for (unsigned i = 0; i < from->count; i++) {
        int fd = -1;

        if (clone_tree(from->fd[i], userns_fd, attrs, &fd, e) < 0 || layers_add(to, fd, e) < 0)
            return -1;
    }
    return 0;
}

int mounts_prepare(const struct template *t, int files, bool is_mount, int userns_fd,
                   const struct id_range *ids, struct box_mounts *ret, struct cove_err *e)
{
    struct box_mounts m = NO_MOUNTS;

    if (prepare_files(files, is_mount, userns_fd, ids, &m.files, e) < 0 ||
        prepare_layers(&t->root, userns_fd, &m.root, e) < 0 ||
        prepare_layers(&t->usr, userns_fd, &m.usr, e) < 0 || make_dev(ids, &m.dev, e) < 0) {
        mounts_close(&m);
        return -1;
    }
    *ret = m;
    return 0;
}

void mounts_close(struct box_mounts *m)
{
    m->files = cove_close(m->files);
    m->dev = cove_close(m->dev);
    layers_close(&m->root);
    layers_close(&m->usr);
}

/* ------------------------------------------------------------------ inside: putting it together */

/* Where the new root is put together until pivot_root: any directory does, and every Linux has this
 * one. The host does not see what is mounted on it, the namespace is ours. */
#define NEW "/tmp"

/* An overlay takes only what is attached in our namespace. All are put on the same place, each over
 * the one before, and named by their descriptors. */
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
 * A directory of the new root itself. Its files may be a tenant's, and until pivot_root a link among them would
 * be followed from the host's root: what is mounted on it would lie elsewhere, without what covers it.
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

/* A folder of /dev's tmpfs, not one more file system; programs map it executable (libffi). */
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
    if (mount("devpts", NEW "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=0620,gid=5") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /dev/pts");
    return mount_shm(e);
}

/* The new root over the old one, then the old one away, with all of the host's mounts in it. */
static int pivot(struct cove_err *e)
{
    if (chdir(NEW) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "leaving the old root");
    return 0;
}

/* The kernel needs a passing mount namespace for each detached mount, so the limit comes after the
 * last of them. */
static int close_proc(struct cove_err *e)
{
    AUTO_CLOSE int sysctl_dir = open("/proc/sys/user", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (sysctl_dir < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "/proc/sys/user");
    if (procfiles_setup(e) < 0)
        return -1;
    return userns_forbid_more(sysctl_dir, e);
}

int mounts_enter(struct box_mounts *m, struct cove_err *e)
{
    if (stage_root(m, e) < 0 || mount_api_filesystems(m, e) < 0 || pivot(e) < 0 ||
        close_proc(e) < 0)
        return -1;
    mounts_close(m);
    return 0;
}
