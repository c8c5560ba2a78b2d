/*
 * The pool of the backend "btrfs": a sparse image with a file system, mounted once for all sandboxes.
 * This file makes, mounts and leaves the pool; disk_btrfs.c works with its content.
 *
 * The pool is not written in an order that survives a power cut. An image that cannot be mounted is
 * put aside and a new one is made. No sandbox is lost by that, because none outlives a power cut, but
 * snapshots are.
 *
 * Data that cannot be written, because the host's disk is full, is lost to one file. Metadata that cannot be written
 * makes the kernel stop all writing to the pool, for all sandboxes and until all of them have ended. So the places of
 * the metadata in the image are taken from the host when btrfs sets them aside, some megabytes at first, and are not
 * given back.
 */
#include "sandbox/box/btrfs_pool.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/box/disk_private.h"
#include "sandbox/box/loop.h"
#include "sandbox/box/tools.h"

#define IMAGE     "pool.img"
#define IMAGE_NEW "pool.new"
#define IMAGE_BAD "pool.damaged" /* an image that could not be mounted, kept for the operator */
#define MOUNT     "pool"
#define BOXES     "boxes"     /* in the pool: a subvolume for each sandbox */
#define SNAPSHOTS "snapshots" /* and one for each snapshot, read-only */

#ifndef BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
#define BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA 4 /* Linux 6.7 */
#endif

#define MIB ((uint64_t)1 << 20)

enum { POOL_BYTES_MIN = 1024 << 20 }; /* smaller file systems are not worth a pool */

/* ------------------------------------------------------------------ the image */

/* The image is sparse and as large as the file system that it lies in. How much room the host really has is
 * checked once a second (disk_tick()). */
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
    { "nobarrier", NULL },  /* nothing here must survive a power cut */
    { "nodatacow", NULL },  /* so data is written in place, without checksums */
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

/* Sandboxes of an earlier keeper may hold the pool mounted in their own namespaces: then the same loop device is
 * mounted once more. A second device for one image would destroy the image. */
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

/* The mount is attached, because older kernels clone no directories of a detached one. */
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
    if (mount_image(d, &mnt, e) < 0) { /* it may be damaged; no sandbox can be using it */
        renameat(d->dir, IMAGE, d->dir, IMAGE_BAD);
        if (make_image(d, e) < 0 || mount_image(d, &mnt, e) < 0)
            return -1;
    }
    return attach(d, mnt, e);
}
/* ------------------------------------------------------------------ room for metadata */

static bool is_metadata(uint64_t flags)
{
    return flags & (BTRFS_BLOCK_GROUP_METADATA | BTRFS_BLOCK_GROUP_SYSTEM) &&
           !(flags & BTRFS_SPACE_INFO_GLOBAL_RSV); /* a part of the metadata, told once more */
}

/* Bytes that btrfs has set aside for metadata; 0: not known. */
static uint64_t metadata_bytes(int pool)
{
    struct {
        struct btrfs_ioctl_space_args head;
        struct btrfs_ioctl_space_info kinds[8];
    } answer = { .head = { .space_slots = 8 } };
    uint64_t sum = 0;

    if (ioctl(pool, BTRFS_IOC_SPACE_INFO, &answer.head) < 0)
        return 0;
    for (uint64_t i = 0; i < answer.head.total_spaces && i < ARRAY_SIZE(answer.kinds); i++)
        if (is_metadata(answer.kinds[i].flags))
            sum += answer.kinds[i].total_bytes;
    return sum;
}

/* The pool has one device, so addresses on it are places in the image. */
static int fill_holes(int image, const struct btrfs_chunk *c)
{
    return fallocate(image, FALLOC_FL_KEEP_SIZE, (off_t)le64toh(c->stripe.offset),
                     (off_t)le64toh(c->length));
}

/* -1 and errno: there is no room for some of it. */
static int keep_chunks(int pool, int image)
{
    struct btrfs_ioctl_search_args args = {
        .key = { .tree_id = BTRFS_CHUNK_TREE_OBJECTID,
                 .min_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
                 .max_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
                 .min_type = BTRFS_CHUNK_ITEM_KEY,
                 .max_type = BTRFS_CHUNK_ITEM_KEY,
                 .max_offset = UINT64_MAX,
                 .max_transid = UINT64_MAX },
    };

    for (;;) {
        struct btrfs_ioctl_search_header head = { 0 };
        size_t at = 0;

        args.key.nr_items = UINT32_MAX;
        if (ioctl(pool, BTRFS_IOC_TREE_SEARCH, &args) < 0)
            return -1;
        for (uint32_t i = 0; i < args.key.nr_items; i++) {
            struct btrfs_chunk chunk;

            memcpy(&head, args.buf + at, sizeof(head));
            memcpy(&chunk, args.buf + at + sizeof(head), sizeof(chunk));
            at += sizeof(head) + head.len;
            if (is_metadata(le64toh(chunk.type)) && fill_holes(image, &chunk) < 0)
                return -1;
        }
        if (args.key.nr_items == 0 || head.offset == UINT64_MAX)
            return 0;
        args.key.min_offset = head.offset + 1;
    }
}

/* Metadata is set aside in steps of 256 MiB, the least that btrfs takes, instead of up to 1 GiB. Linux 6.0. */
static void take_small_steps(const struct disk *d)
{
    char path[128];

    snprintf(path, sizeof(path), "/sys/fs/btrfs/%s/allocation/metadata/chunk_size", d->pool.fsid);
    write_file_at(AT_FDCWD, path, "268435456", NULL);
}

void btrfs_pool_keep_metadata(struct disk *d)
{
    uint64_t bytes = metadata_bytes(d->pool.boxes);
    AUTO_CLOSE int image =
        bytes == d->pool.metadata_bytes ? -1 : openat(d->dir, IMAGE, O_RDWR | O_CLOEXEC);

    if (image >= 0 && (keep_chunks(d->pool.boxes, image) == 0 || errno != ENOSPC))
        d->pool.metadata_bytes = bytes;
}

/* ------------------------------------------------------------------ opening it */

static int enable_quotas(int pool, struct cove_err *e)
{
    struct btrfs_ioctl_quota_ctl_args enable = { .cmd = BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA };
    struct btrfs_ioctl_qgroup_create_args all = { .create = 1, .qgroupid = BTRFS_ALL_GROUPS };

    if (ioctl(pool, BTRFS_IOC_QUOTA_CTL, &enable) < 0) {
        enable.cmd = BTRFS_QUOTA_CTL_ENABLE;
        if (ioctl(pool, BTRFS_IOC_QUOTA_CTL, &enable) < 0)
            return cove_fail_errno(e, COVE_UNSUPPORTED, "quota groups of btrfs");
        ioctl(pool, BTRFS_IOC_QUOTA_RESCAN_WAIT); /* quick: the pool is empty at that time */
    }
    if (ioctl(pool, BTRFS_IOC_QGROUP_CREATE, &all) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "quota groups of btrfs");
    return 0;
}
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

static int open_mounted(struct disk *d, struct cove_err *e)
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
    take_small_steps(d);
    btrfs_pool_keep_metadata(d);
    return 0;
}
int btrfs_pool_open(struct disk *d, struct cove_err *e)
{
    return mount_pool(d, e) < 0 ? -1 : open_mounted(d, e);
}

int btrfs_pool_open_existing(struct disk *d)
{
    AUTO_CLOSE int mnt = -1;

    if (faccessat(d->dir, IMAGE, F_OK, 0) < 0)
        return -1;
    if (!is_mounted(d) && (mount_image(d, &mnt, NULL) < 0 || attach(d, mnt, NULL) < 0))
        return -1;
    return open_mounted(d, NULL);
}

void btrfs_pool_close(struct disk *d, bool for_good, bool keep_image)
{
    AUTO_CLOSE int image = openat(d->dir, IMAGE, O_RDWR | O_CLOEXEC);
    int number = -1, loop = -1;
    char path[64];

    d->pool.boxes = cove_close(d->pool.boxes);
    d->pool.snapshots = cove_close(d->pool.snapshots);
    d->pool.metadata_bytes = 0;
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
