/*
 * The backend "btrfs": one file system for all sandboxes, in one sparse image that is mounted once
 * by the keeper. Each sandbox has a subvolume with a quota group, so there is no loop device, no
 * mount and no mkfs for a sandbox, and the kernel keeps the limit. The pool is a mount below
 * state_dir that only root can search; sandboxes get clones of their own directory, with mapped ids
 * and covered by an overlay, so no ioctl of btrfs reaches them from inside.
 *
 *   limit      a quota group counts the bytes of data and metadata that a subvolume takes. Writing
 *              beyond it is EDQUOT. Files are not counted: each takes some bytes of metadata, so
 *              that the limit on bytes bounds them too.
 *   reserve    at the limit a file of the sandbox's own can be deleted, but to delete a file of the
 *              template its whiteout must be written. So a sandbox that has reached its limit gets
 *              a little more, once, until it has freed some (pool_tick()).
 *   the host   all quota groups are in one parent group. When the disk of the host gets full, its
 *              limit is what there is: sandboxes see EDQUOT, and the image never fails to grow.
 *   df         shows the pool, not the limit: btrfs has no other answer to statfs(). init is told
 *              the limit instead (struct disk_files).
 *
 *   snapshots  a subvolume shares all data with the sandbox that it was taken from. As long as there
 *              are snapshots the image outlives the keeper.
 *
 * The pool is not written in an order that survives a power cut. An image that cannot be mounted is
 * put aside and a new one is made: sandboxes did not outlive that, but snapshots are lost.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/disk_private.h"
#include "sandbox/box/loop.h"
#include "sandbox/box/tools.h"

#define IMAGE     "pool.img"
#define IMAGE_NEW "pool.new"
#define IMAGE_BAD "pool.damaged" /* an image that could not be mounted, for its operator */
#define MOUNT     "pool"
#define BOXES     "boxes"     /* in the pool: a subvolume for each sandbox */
#define SNAPSHOTS "snapshots" /* and one for each snapshot, read-only */

#ifndef BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
#define BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA 4 /* Linux 6.7 */
#endif

#define MIB        ((uint64_t)1 << 20)
#define GIB        ((uint64_t)1 << 30)
#define ALL_GROUPS (1ULL << 48) /* 1/0: the parent of all */

enum {
    LIMIT_STEP = 64 * 1024,      /* a limit is a multiple of this, */
    LIMIT_RAISED = 4096,         /* and this is added to mark that the reserve was given */
    LIMIT_NEAR = 256 * 1024,     /* this close to the limit writes are refused already */
    POOL_BYTES_MIN = 1024 << 20, /* smaller file systems are not worth a pool */
};

/* ------------------------------------------------------------------ the image */

/* As large as the file system that it lies in: it is sparse, and what the host has is looked at
 * elsewhere. */
static int make_image(const struct disk *d, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(d->dir, IMAGE_NEW, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char path[48];
    /* One copy of the metadata, in small nodes: a quota group reserves a node per change. */
    const char *const mkfs[] = { "mkfs.btrfs", "-q", "-f",   "-m", "single", "-d",
                                 "single",     "-n", "4096", path, NULL };
    struct statvfs fs;
    uint64_t bytes;

    if (fd < 0 || fstatvfs(fd, &fs) < 0)
        return disk_fail(e);
    bytes = (uint64_t)fs.f_blocks * fs.f_frsize / MIB * MIB;
    if (bytes < POOL_BYTES_MIN)
        return cove_fail(e, COVE_UNSUPPORTED, "state_dir is too small for a pool of disks");
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
    if (ftruncate(fd, (off_t)bytes) < 0)
        return disk_fail(e);
    if (disk_run(mkfs, e) < 0)
        return -1;
    return renameat(d->dir, IMAGE_NEW, d->dir, IMAGE) < 0 ? disk_fail(e) : 0;
}

static const struct {
    const char *key, *value; /* no value: a flag */
} mount_options[] = {
    { "discard", "async" }, /* what is deleted is given back to the host */
    { "nobarrier", NULL },  /* nothing here must survive a power cut, */
    { "nodatacow", NULL },  /* nor be found whole after one: data is written in place, unchecked */
    { "noacl", NULL },      /* as in an overlay with the option userxattr */
};

static int mount_device(int number, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fs = fsopen("btrfs", FSOPEN_CLOEXEC);
    char device[LOOP_PATH_MAX];
    int bad;

    loop_path(number, device);
    bad = fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0) < 0;
    for (size_t i = 0; !bad && i < ARRAY_SIZE(mount_options); i++)
        bad = fsconfig(fs, mount_options[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
                       mount_options[i].key, mount_options[i].value, 0) < 0;
    if (bad || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "mounting the pool of disks");
    *ret = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOATIME);
    return *ret < 0 ? cove_fail_errno(e, COVE_UNSUPPORTED, "mounting the pool of disks") : 0;
}

/* Sandboxes of a keeper before us may hold the pool mounted where we cannot see it: then its device
 * is mounted once more. A second device for one image would destroy it. */
static int mount_image(const struct disk *d, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int image = openat(d->dir, IMAGE, O_RDWR | O_CLOEXEC);
    AUTO_CLOSE int loop = -1;
    int number = -1;

    if (image < 0)
        return disk_fail(e);
    if (loop_find(image, &number, &loop) < 0 && loop_attach(image, &number, &loop, e) < 0)
        return -1;
    return mount_device(number, ret, e);
}

/* A mount that is attached: of a detached one older kernels clone no directories. */
static int attach(const struct disk *d, int mnt, struct cove_err *e)
{
    if (mkdirat(d->dir, MOUNT, 0700) < 0 && errno != EEXIST)
        return disk_fail(e);
    if (move_mount(mnt, "", d->dir, MOUNT, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "mounting the pool of disks");
    return 0;
}

static bool is_mounted(const struct disk *d)
{
    AUTO_CLOSE int fd = openat(d->dir, MOUNT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat here, there;

    return fd >= 0 && fstat(fd, &there) == 0 && fstat(d->dir, &here) == 0 &&
           here.st_dev != there.st_dev;
}

static int mount_pool(const struct disk *d, struct cove_err *e)
{
    AUTO_CLOSE int mnt = -1;

    if (is_mounted(d))
        return 0;
    if (faccessat(d->dir, IMAGE, F_OK, 0) < 0 && make_image(d, e) < 0)
        return -1;
    if (mount_image(d, &mnt, e) < 0) { /* perhaps it was damaged: nobody can be living in it */
        renameat(d->dir, IMAGE, d->dir, IMAGE_BAD);
        if (make_image(d, e) < 0 || mount_image(d, &mnt, e) < 0)
            return -1;
    }
    return attach(d, mnt, e);
}

/* ------------------------------------------------------------------ quota groups */

static int enable_quotas(int pool, struct cove_err *e)
{
    struct btrfs_ioctl_quota_ctl_args enable = { .cmd = BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA };
    struct btrfs_ioctl_qgroup_create_args all = { .create = 1, .qgroupid = ALL_GROUPS };

    if (ioctl(pool, BTRFS_IOC_QUOTA_CTL, &enable) < 0) {
        enable.cmd = BTRFS_QUOTA_CTL_ENABLE;
        if (ioctl(pool, BTRFS_IOC_QUOTA_CTL, &enable) < 0)
            return cove_fail_errno(e, COVE_UNSUPPORTED, "quota groups of btrfs");
        ioctl(pool, BTRFS_IOC_QUOTA_RESCAN_WAIT); /* of a pool that has nothing in it yet */
    }
    if (ioctl(pool, BTRFS_IOC_QGROUP_CREATE, &all) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "quota groups of btrfs");
    return 0;
}

static int set_limit(int fd, uint64_t group, uint64_t bytes)
{
    struct btrfs_ioctl_qgroup_limit_args args = {
        .qgroupid = group,
        .lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = bytes },
    };

    return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args);
}

/* The limit of the told bytes: a little above them, for metadata. */
static uint64_t limit_for(uint64_t bytes)
{
    return (bytes + bytes / 128 + MIB) / LIMIT_STEP * LIMIT_STEP;
}

/* In memory the kernel knows what is not written yet; the figures on disk may be 30 s old. */
static uint64_t read_figure(const struct disk *d, uint64_t group, const char *name)
{
    char path[128], text[32];

    snprintf(path, sizeof(path), "/sys/fs/btrfs/%s/qgroups/%llu_%llu/%s", d->pool.fsid,
             (unsigned long long)(group >> 48), (unsigned long long)(group & (ALL_GROUPS - 1)),
             name);
    if (read_file_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return 0;
    return strtoull(text, NULL, 10);
}

static uint64_t group_used(const struct disk *d, uint64_t group)
{
    return read_figure(d, group, "referenced") + read_figure(d, group, "rsv_data");
}

static int open_subvolume(const struct disk *d, const char *id, uint64_t *ret_group)
{
    struct btrfs_ioctl_ino_lookup_args args = { .objectid = BTRFS_FIRST_FREE_OBJECTID };
    int fd = openat(d->pool.boxes, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0)
        fd = cove_close(fd);
    *ret_group = args.treeid;
    return fd;
}

/* ------------------------------------------------------------------ subvolumes */

static int create_subvolume(const struct disk *d, const char *id, uint64_t bytes)
{
    struct {
        struct btrfs_qgroup_inherit head;
        uint64_t parent;
    } quota = {
        .head = { .flags = BTRFS_QGROUP_INHERIT_SET_LIMITS,
                  .num_qgroups = 1,
                  .lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = limit_for(bytes) } },
        .parent = ALL_GROUPS,
    };
    struct btrfs_ioctl_vol_args_v2 args = {
        .flags = BTRFS_SUBVOL_QGROUP_INHERIT,
        .size = sizeof(quota),
        .qgroup_inherit = &quota.head,
    };

    text_copy(args.name, sizeof(args.name), id);
    return ioctl(d->pool.boxes, BTRFS_IOC_SUBVOL_CREATE_V2, &args);
}

static void destroy_subvolume(int dir, const char *id)
{
    struct btrfs_ioctl_vol_args args = { 0 };

    text_copy(args.name, sizeof(args.name), id);
    ioctl(dir, BTRFS_IOC_SNAP_DESTROY, &args);
}

/* The directory of a sandbox or snapshot in state_dir goes after its subvolume: a subvolume without
 * one is nobody's. */
static void sweep_strays(int pool_dir, int known_dir)
{
    int fd = openat(pool_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (text_is_id(entry->d_name) && faccessat(known_dir, entry->d_name, F_OK, 0) < 0)
            destroy_subvolume(pool_dir, entry->d_name);
    if (dir)
        closedir(dir);
}

/* ------------------------------------------------------------------ snapshots */

bool pool_has(const struct disk *d, const char *id)
{
    return d->pool.boxes >= 0 && faccessat(d->pool.boxes, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int pool_share(const struct disk *d, const char *id, const char *snapshot)
{
    struct btrfs_ioctl_vol_args_v2 args = { .flags = BTRFS_SUBVOL_RDONLY };
    AUTO_CLOSE int from = openat(d->pool.boxes, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    args.fd = from;
    text_copy(args.name, sizeof(args.name), snapshot);
    return from < 0 ? -1 : ioctl(d->pool.snapshots, BTRFS_IOC_SNAP_CREATE_V2, &args);
}

int pool_make_empty(const struct disk *d, const char *snapshot, int *ret)
{
    struct btrfs_ioctl_vol_args_v2 args = { 0 };

    text_copy(args.name, sizeof(args.name), snapshot);
    if (ioctl(d->pool.snapshots, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0)
        return -1;
    *ret = openat(d->pool.snapshots, snapshot, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? -1 : 0;
}

int pool_make_read_only(int snapshot)
{
    uint64_t flags = BTRFS_SUBVOL_RDONLY;

    return ioctl(snapshot, BTRFS_IOC_SUBVOL_SETFLAGS, &flags);
}

void pool_drop_snapshot(const struct disk *d, const char *snapshot)
{
    if (d->pool.snapshots >= 0)
        destroy_subvolume(d->pool.snapshots, snapshot);
}

static bool has_snapshots(const struct disk *d)
{
    int fd = d->pool.snapshots < 0
                 ? -1
                 : openat(d->pool.snapshots, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir)))
        found = text_is_id(entry->d_name);
    if (dir)
        closedir(dir);
    return found;
}

/* ------------------------------------------------------------------ the backend */

static void format_fsid(const uint8_t id[16], char out[DISK_FSID_TEXT])
{
    size_t at = 0;

    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            out[at++] = '-';
        at += (size_t)snprintf(out + at, DISK_FSID_TEXT - at, "%02x", id[i]);
    }
}

static int open_folder(int pool, const char *name, int *ret)
{
    if (mkdirat(pool, name, 0700) < 0 && errno != EEXIST)
        return -1;
    *ret = openat(pool, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? -1 : 0;
}

static int open_pool(struct disk *d, struct cove_err *e)
{
    AUTO_CLOSE int pool = openat(d->dir, MOUNT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct btrfs_ioctl_fs_info_args info = { 0 };

    if (pool < 0 || fchmod(pool, 0700) < 0 || ioctl(pool, BTRFS_IOC_FS_INFO, &info) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "pool of disks");
    if (enable_quotas(pool, e) < 0)
        return -1;
    if (open_folder(pool, BOXES, &d->pool.boxes) < 0 ||
        open_folder(pool, SNAPSHOTS, &d->pool.snapshots) < 0)
        return disk_fail(e);
    format_fsid(info.fsid, d->pool.fsid);
    return 0;
}

static void sweep_all_strays(const struct disk *d)
{
    sweep_strays(d->pool.boxes, d->boxes_dir);
    sweep_strays(d->pool.snapshots, d->snapshots_dir);
}

static int btrfs_open(struct disk *d, struct cove_err *e)
{
    if (d->pool.boxes >= 0)
        return 0;
    if (mount_pool(d, e) < 0 || open_pool(d, e) < 0)
        return -1;
    sweep_all_strays(d);
    return 0;
}

/* Unlike above, no image is made and none is put aside. */
void pool_reopen(struct disk *d)
{
    AUTO_CLOSE int mnt = -1;

    if (d->pool.boxes >= 0 || faccessat(d->dir, IMAGE, F_OK, 0) < 0)
        return;
    if (!is_mounted(d) && (mount_image(d, &mnt, NULL) < 0 || attach(d, mnt, NULL) < 0))
        return;
    if (open_pool(d, NULL) == 0)
        sweep_all_strays(d);
}

static int btrfs_make(struct disk *d, const struct disk_size *size, const char *id, int box_dir,
                      struct disk_files *ret, struct cove_err *e)
{
    (void)box_dir;
    if (create_subvolume(d, id, size->bytes) < 0)
        return disk_fail(e);
    ret->dir = openat(d->pool.boxes, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ret->told_bytes = size->bytes;
    return ret->dir < 0 ? disk_fail(e) : disk_make_dirs(ret->dir, e);
}

static void btrfs_release(const struct disk *d, const char *id, int box_dir)
{
    (void)box_dir;
    if (d->pool.boxes >= 0)
        destroy_subvolume(d->pool.boxes, id);
}

static bool btrfs_used(const struct disk *d, const char *id, int box_dir, uint64_t *ret)
{
    uint64_t group = 0;
    AUTO_CLOSE int fd = d->pool.boxes < 0 ? -1 : open_subvolume(d, id, &group);

    (void)box_dir;
    if (fd < 0)
        return false;
    *ret = group_used(d, group);
    return true;
}

static int btrfs_find_files(const struct disk *d, const char *id, int box_dir, int *ret,
                            struct cove_err *e)
{
    (void)box_dir;
    if (!pool_has(d, id))
        return 1;
    *ret = openat(d->pool.boxes, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? disk_fail(e) : 0;
}

void disk_adjust_limit(const struct disk *d, const char *id, uint64_t bytes, bool grow)
{
    uint64_t group = 0, limit, step = (bytes + LIMIT_STEP - 1) / LIMIT_STEP * LIMIT_STEP;
    AUTO_CLOSE int fd = d->pool.boxes < 0 ? -1 : open_subvolume(d, id, &group);

    if (fd < 0)
        return;
    limit = read_figure(d, group, "max_referenced");
    if (limit && (grow || limit > step))
        set_limit(fd, group, grow ? limit + step : limit - step);
}

/* While sandboxes live on without us the pool stays mounted for the next keeper. */
static void btrfs_leave(struct disk *d, bool for_good)
{
    AUTO_CLOSE int image = openat(d->dir, IMAGE, O_RDWR | O_CLOEXEC);
    bool keep_image = has_snapshots(d);
    int number = -1, loop = -1;
    char path[64];

    d->pool.boxes = cove_close(d->pool.boxes);
    d->pool.snapshots = cove_close(d->pool.snapshots);
    if (d->pool.list)
        closedir(d->pool.list);
    d->pool.list = NULL;
    if (!for_good)
        return;
    if (image >= 0)
        loop_find(image, &number, &loop);
    snprintf(path, sizeof(path), "/proc/self/fd/%d/" MOUNT, d->dir);
    umount2(path, MNT_DETACH);
    unlinkat(d->dir, MOUNT, AT_REMOVEDIR);
    if (!keep_image)
        unlinkat(d->dir, IMAGE, 0);
    cove_close(loop);
    loop_remove(number);
}

/* ------------------------------------------------------------------ once a second */

/* The reserve of one sandbox: given at the limit, taken back when there is room again. */
static void review_limit(struct disk *d, const char *id, int box_dir, bool host_is_full)
{
    uint64_t group = 0, used, limit;
    AUTO_CLOSE int fd = open_subvolume(d, id, &group);
    bool raised;

    (void)box_dir;
    (void)host_is_full;
    if (fd < 0)
        return;
    used = group_used(d, group);
    limit = read_figure(d, group, "max_referenced");
    raised = limit % LIMIT_STEP == LIMIT_RAISED;
    if (!raised && limit && used + LIMIT_NEAR > limit)
        set_limit(fd, group, limit + MIB + LIMIT_RAISED);
    else if (raised && used + 2 * MIB + LIMIT_NEAR < limit)
        set_limit(fd, group, limit - MIB - LIMIT_RAISED);
}

/* Far from the end of the host's disk there is no limit for all, and nothing is written. */
static void review_pool(struct disk *d, uint64_t room)
{
    uint64_t used, limit;

    if (room > 8 * GIB) {
        if (d->pool.limit && set_limit(d->pool.boxes, ALL_GROUPS, UINT64_MAX) == 0)
            d->pool.limit = 0;
        return;
    }
    used = group_used(d, ALL_GROUPS);
    limit = used + room > 0 ? used + room : 1;
    if (d->pool.limit < limit + 4 * MIB && limit < d->pool.limit + 4 * MIB)
        return;
    if (set_limit(d->pool.boxes, ALL_GROUPS, limit) == 0)
        d->pool.limit = limit;
}

static void btrfs_tick(struct disk *d, uint64_t room)
{
    if (d->pool.boxes < 0)
        return;
    review_pool(d, room);
    disk_some_boxes(d, &d->pool.list, d->pool.boxes, review_limit);
}

const struct disk_backend disk_btrfs = {
    .name = "btrfs",
    .open = btrfs_open,
    .make = btrfs_make,
    .release = btrfs_release,
    .used = btrfs_used,
    .find_files = btrfs_find_files,
    .tick = btrfs_tick,
    .leave = btrfs_leave,
};
