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

#include "cove/mem.h"
#include "cove/weak.h"
#include "sandbox/box/mounts.h"
#include "sandbox/box/procfiles.h"

static int put_mount(int tree, const char *target)
{
    return move_mount(tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* ------------------------------------------------------------------ the keeper's part */

static int clone_tree(int dir, int userns_fd, uint64_t attrs, int *ret, struct cove_err *e)
{
    struct mount_attr attr = { .attr_set = attrs };
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
    if (mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 01777) < 0 ||
        fchownat(dev, "", ids->base, ids->base, AT_EMPTY_PATH) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "/dev");
    return 0;
}

/* A tmpfs of the host's, so that its device nodes work inside; each sandbox has inodes of its own.
 */
static int make_dev(const struct id_range *ids, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    AUTO_CLOSE int mnt = -1;

    if (fs < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "fsopen tmpfs");
    if (fsconfig(fs, FSCONFIG_SET_STRING, "size", "1m", 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", "64", 0) < 0 ||
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

int mounts_prepare(const struct template *t, int files, bool is_mount, int userns_fd,
                   const struct id_range *ids, struct box_mounts *ret, struct cove_err *e)
{
    struct box_mounts m = { -1, -1, -1, -1 };

    if (is_mount)
        m.files = fcntl(files, F_DUPFD_CLOEXEC, 0);
    if ((!is_mount && clone_tree(files, -1, MOUNT_ATTR_NODEV, &m.files, e) < 0) ||
        clone_tree(t->root, userns_fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, &m.root, e) < 0 ||
        (t->usr >= 0 &&
         clone_tree(t->usr, userns_fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, &m.usr, e) < 0) ||
        make_dev(ids, &m.dev, e) < 0) {
        mounts_close(&m);
        return -1;
    }
    *ret = m;
    return 0;
}

void mounts_close(struct box_mounts *m)
{
    m->files = cove_close(m->files);
    m->root = cove_close(m->root);
    m->usr = cove_close(m->usr);
    m->dev = cove_close(m->dev);
}

/* ------------------------------------------------------------------ inside: putting it together */

#define STAGE "/tmp" /* covered by a tmpfs that is gone after pivot_root; every Linux has it */

static int attach(int tree, const char *name, struct cove_err *e)
{
    if (mkdir(name, 0755) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "mkdir %s", name);
    if (put_mount(tree, name) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "attaching %s", name);
    return 0;
}

/* "volatile" skips the sync at the end: a sandbox's files do not outlive it, unless saved from
 * inside. */
static int overlay(const char *lower, const char *upper, const char *work, const char *target,
                   struct cove_err *e)
{
    char options[512];

    snprintf(options, sizeof(options),
             "lowerdir=" STAGE "/%s,upperdir=" STAGE "/files/%s,workdir=" STAGE
             "/files/%s,userxattr,volatile",
             lower, upper, work);
    if (mount("overlay", target, "overlay", MS_NODEV, options) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "overlay on %s", target);
    return 0;
}

static int stage_root(struct box_mounts *m, struct cove_err *e)
{
    if (mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "making mounts private");
    if (mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "staging area");
    if (mkdir(STAGE "/new", 0755) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "staging area");
    if (attach(m->files, STAGE "/files", e) < 0 || attach(m->root, STAGE "/root", e) < 0 ||
        overlay("root", "up", "work", STAGE "/new", e) < 0)
        return -1;
    if (m->usr >= 0 && (attach(m->usr, STAGE "/usr", e) < 0 ||
                        overlay("usr", "usr-up", "usr-work", STAGE "/new/usr", e) < 0))
        return -1;
    return 0;
}

static int mount_api_filesystems(struct box_mounts *m, struct cove_err *e)
{
    if (mount("proc", STAGE "/new/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /proc");
    if (put_mount(m->dev, STAGE "/new/dev") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "attaching /dev");
    if (mount("devpts", STAGE "/new/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=0620,gid=5") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /dev/pts");
    if (mount("tmpfs", STAGE "/new/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=64m") <
        0)
        return cove_fail_errno(e, COVE_INTERNAL, "mounting /dev/shm");
    return 0;
}

/* What of /proc tells of the host or reaches for it. The sandbox's root is nobody there; this is
 * the second lock. */
static const char *const proc_hidden[] = {
    "kcore",      "keys",       "kmsg",       "timer_list",  "sched_debug",  "latency_stats",
    "kallsyms",   "cmdline",    "kpagecount", "kpageflags",  "kpagecgroup",  "sysrq-trigger",
    "interrupts", "key-users",  "mtrr",       "modules",     "iomem",        "ioports",
    "diskstats",  "partitions", "slabinfo",   "vmallocinfo", "pagetypeinfo", "timer_stats",
};
static const char *const proc_readonly[] = { "sys", "bus", "fs", "irq" };
static const char *const proc_emptied[] = { "acpi", "asound", "scsi", "driver", "pressure" };

static int hide_proc(struct cove_err *e)
{
    char path[64];

    if (weak("proc"))
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(proc_hidden); i++) {
        snprintf(path, sizeof(path), "/proc/%s", proc_hidden[i]);
        if (mount("/dev/null", path, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
            return cove_fail_errno(e, COVE_INTERNAL, "hiding %s", path);
    }
    for (size_t i = 0; i < ARRAY_SIZE(proc_emptied); i++) {
        snprintf(path, sizeof(path), "/proc/%s", proc_emptied[i]);
        if (mount("tmpfs", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
                  "size=0,nr_inodes=1") < 0 &&
            errno != ENOENT)
            return cove_fail_errno(e, COVE_INTERNAL, "emptying %s", path);
    }
    for (size_t i = 0; i < ARRAY_SIZE(proc_readonly); i++) {
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };

        snprintf(path, sizeof(path), "/proc/%s", proc_readonly[i]);
        AUTO_CLOSE int tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

        if (tree < 0 && errno == ENOENT)
            continue;
        if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
            put_mount(tree, path) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "making %s read-only", path);
    }
    return 0;
}

/* The new root over the old one, then the old one away, with all of the host's mounts in it. */
static int pivot(struct cove_err *e)
{
    if (chdir(STAGE "/new") < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
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
    if (procfiles_setup(e) < 0 || hide_proc(e) < 0)
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
