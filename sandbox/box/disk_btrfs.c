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
 *              a little more, once, until it has freed some (review_limit()).
 *   the host   all quota groups are in one parent group. When the disk of the host gets full, the parent's
 *              limit is set to what is left above disk_reserve: sandboxes see EDQUOT before the image fails
 *              to grow. Where other programs take the reserve as well, data that is on its way is lost
 *              (EIO or ENOSPC at fsync), and the pool itself stays whole (btrfs_pool.c).
 *   df         shows the pool, not the limit: btrfs has no other answer to statfs(). init is told
 *              the limit instead (struct disk_files).
 *
 *   snapshots  a subvolume shares all data with the sandbox that it was taken from. As long as there
 *              are snapshots the image outlives the keeper.
 *
 * How the pool is made and mounted is in btrfs_pool.c.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/btrfs_pool.h"
#include "sandbox/box/disk_private.h"
#include "sandbox/box/tools.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum {
    LIMIT_STEP = 64 * 1024,   /* a limit is a multiple of this */
    LIMIT_RAISED = 4096,      /* added to a limit to mark that the reserve was given */
    LIMIT_NEAR = 256 * 1024,  /* this close to the limit writes are refused already */
    FULL_BYTES = 16 << 20,    /* with less room than this the host's disk is as good as full */
    DELETE_ROOM = 512 * 1024, /* on a full disk too: to delete a file takes room for a moment */
};

/* ------------------------------------------------------------------ quota groups */

static int set_limit(int fd, uint64_t group, uint64_t bytes)
{
    struct btrfs_ioctl_qgroup_limit_args args = {
        .qgroupid = group,
        .lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = bytes },
    };

    return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args);
}

/* The limit of the quota group: a little more than the bytes that the sandbox is told, for metadata. */
static uint64_t limit_for(uint64_t bytes)
{
    return (bytes + bytes / 128 + MIB) / LIMIT_STEP * LIMIT_STEP;
}

/* The kernel's figures in sysfs include data that is not written yet; those on disk may be 30 s old. */
static uint64_t read_figure(const struct disk *d, uint64_t group, const char *name)
{
    char path[128], text[32];

    snprintf(path, sizeof(path), "/sys/fs/btrfs/%s/qgroups/%llu_%llu/%s", d->pool.fsid,
             (unsigned long long)(group >> 48),
             (unsigned long long)(group & (BTRFS_ALL_GROUPS - 1)), name);
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
        .parent = BTRFS_ALL_GROUPS,
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

/* The directory of a sandbox or snapshot in state_dir is removed after its subvolume. So a subvolume without such
 * a directory belongs to nothing and is removed. */
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

bool btrfs_has(const struct disk *d, const char *id)
{
    return d->pool.boxes >= 0 && faccessat(d->pool.boxes, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int btrfs_share(const struct disk *d, const char *id, const char *snapshot)
{
    struct btrfs_ioctl_vol_args_v2 args = { .flags = BTRFS_SUBVOL_RDONLY };
    AUTO_CLOSE int from = openat(d->pool.boxes, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    args.fd = from;
    text_copy(args.name, sizeof(args.name), snapshot);
    return from < 0 ? -1 : ioctl(d->pool.snapshots, BTRFS_IOC_SNAP_CREATE_V2, &args);
}

int btrfs_make_empty(const struct disk *d, const char *snapshot, int *ret)
{
    struct btrfs_ioctl_vol_args_v2 args = { 0 };

    text_copy(args.name, sizeof(args.name), snapshot);
    if (ioctl(d->pool.snapshots, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0)
        return -1;
    *ret = openat(d->pool.snapshots, snapshot, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? -1 : 0;
}

int btrfs_make_read_only(int snapshot)
{
    uint64_t flags = BTRFS_SUBVOL_RDONLY;

    return ioctl(snapshot, BTRFS_IOC_SUBVOL_SETFLAGS, &flags);
}

void btrfs_drop_snapshot(const struct disk *d, const char *snapshot)
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

static void sweep_all_strays(const struct disk *d)
{
    sweep_strays(d->pool.boxes, d->boxes_dir);
    sweep_strays(d->pool.snapshots, d->snapshots_dir);
}

static int btrfs_open(struct disk *d, struct cove_err *e)
{
    if (d->pool.boxes >= 0)
        return 0;
    if (btrfs_pool_open(d, e) < 0)
        return -1;
    sweep_all_strays(d);
    return 0;
}

void btrfs_reopen(struct disk *d)
{
    if (d->pool.boxes < 0 && btrfs_pool_open_existing(d) == 0)
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
    if (!btrfs_has(d, id))
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

static void btrfs_leave(struct disk *d, bool for_good)
{
    bool keep_image = has_snapshots(d);

    if (d->pool.list)
        closedir(d->pool.list);
    d->pool.list = NULL;
    btrfs_pool_close(d, for_good, keep_image);
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

/* While the host's disk has enough room, the sum has no limit, and nothing is written. The less room there is, the
 * closer the limit follows. */
static void review_pool(struct disk *d, uint64_t room)
{
    uint64_t used, limit, slack = room / 16 < 4 * MIB ? room / 16 : 4 * MIB;

    if (room > 8 * GIB) {
        if (d->pool.limit && set_limit(d->pool.boxes, BTRFS_ALL_GROUPS, UINT64_MAX) == 0)
            d->pool.limit = 0;
        return;
    }
    used = group_used(d, BTRFS_ALL_GROUPS);
    limit = used + room + DELETE_ROOM;
    if (d->pool.limit <= limit + slack && limit <= d->pool.limit + slack)
        return;
    if (set_limit(d->pool.boxes, BTRFS_ALL_GROUPS, limit) == 0)
        d->pool.limit = limit;
}

/*
 * While the host's disk is full, or is being filled so fast that it will be full in a moment, what sandboxes have
 * written is brought to the disk at once. The kernel would leave it in memory for half a minute, and other programs
 * may have taken the reserve by then. Once more when there is room again: if anything was lost, the kernel lets no
 * sandbox start until somebody has been told so by syncfs().
 */
static void review_flush(struct disk *d, uint64_t room)
{
    bool is_tight = room < FULL_BYTES;
    bool is_news = is_tight != d->pool.is_tight;

    if (!is_news && !(is_tight && read_figure(d, BTRFS_ALL_GROUPS, "rsv_data") > 0))
        return;
    if (disk_flush(d, d->pool.boxes))
        d->pool.is_tight = is_tight;
}

static void btrfs_tick(struct disk *d, uint64_t room)
{
    uint64_t lost = d->pool.last_room > room ? d->pool.last_room - room : 0;

    d->pool.last_room = room;
    if (d->pool.boxes < 0)
        return;
    room = room > 2 * lost ? room - 2 * lost : 0; /* what is left soon if this goes on */
    btrfs_pool_keep_metadata(d);
    review_pool(d, room);
    review_flush(d, room);
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
