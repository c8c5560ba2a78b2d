/*
 * A sandbox's file systems, the keeper's part: it makes detached mounts while it has the host's privileges
 * (ids mapped, device nodes). The sandbox's own set-up, already inside its namespaces, attaches
 * them, puts the overlays together and pivots (setup/setup_mounts.c). No host path is looked up inside: the
 * checkout or state_dir may lie where the sandbox's ids could not even search.
 */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/box/mounts.h"

/* A copy of a shared mount is shared with the original, and under systemd all mounts are shared: a mount that the
 * sandbox's set-up puts on the copy would appear on the host's /usr as well. So the copy is made private. */
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

/* The keeper makes this tmpfs in the host's user namespace, so that device nodes in it work; each sandbox has
 * its own. /dev/shm lies in it too, so its size is that of shared memory and a little more. */
int mounts_make_dev(const struct id_range *ids, int *ret, struct cove_err *e)
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

/* tmpfs maps ids from Linux 6.3 on. Before that its files must belong to the sandbox's ids on the host. */
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
        prepare_layers(&t->usr, userns_fd, &m.usr, e) < 0) {
        mounts_close(&m);
        return -1;
    }
    *ret = m;
    return 0;
}

void mounts_close(struct box_mounts *m)
{
    m->files = cove_close(m->files);
    layers_close(&m->root);
    layers_close(&m->usr);
}
