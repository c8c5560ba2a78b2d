/*
 * Snapshots: the upper layers of a sandbox as they were at one moment. Where the sandbox is in the
 * pool of btrfs its subvolume is cloned, which shares all data. Everywhere else, and when snapshots
 * below are merged into the new one, files are copied. The copy goes into the pool if disks are made
 * there or the sandbox is in it, otherwise into a directory of state_dir. A copy shares its data with
 * the original where both are in the pool, or both on XFS.
 *
 *   state_dir/snapshots/NAME        exists from the first step of taking it to the last of dropping it
 *   state_dir/snapshots/NAME/files  a copy outside the pool
 *   pool/snapshots/NAME             a subvolume
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/box/disk_private.h"
#include "sandbox/box/mounts.h"
#include "sandbox/box/sweep.h"
#include "sandbox/box/tree_copy.h"

#define FILES "files"

static const char *const uppers[] = { UPPER_ROOT, UPPER_USR };

static int open_dir(int parent, const char *name)
{
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int fail_files(struct cove_err *e)
{
    bool full = errno == ENOSPC || errno == EDQUOT;

    return cove_fail_errno(e, full ? COVE_LIMIT : COVE_INTERNAL, "files of the snapshot");
}

/* ------------------------------------------------------------------ opening, dropping */

static int open_copy(const struct disk *d, const char *snapshot)
{
    AUTO_CLOSE int dir = open_dir(d->snapshots_dir, snapshot);

    return dir < 0 ? -1 : open_dir(dir, FILES);
}

int disk_snapshot_open(const struct disk *d, const char *snapshot, int *ret, struct cove_err *e)
{
    int fd = d->pool.snapshots < 0 ? -1 : open_dir(d->pool.snapshots, snapshot);

    if (fd < 0)
        fd = open_copy(d, snapshot);
    if (fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "files of snapshot '%.24s'", snapshot);
    *ret = fd;
    return 0;
}

void disk_snapshot_drop(const struct disk *d, const char *snapshot)
{
    btrfs_drop_snapshot(d, snapshot);
    sweep_tree(d->snapshots_dir, snapshot, NULL);
}

/* ------------------------------------------------------------------ copying */

static bool goes_into_pool(const struct disk *d, const struct disk_capture *c)
{
    return d->pool.snapshots >= 0 && (d->backend == &disk_btrfs || btrfs_has(d, c->id));
}

static int make_target(const struct disk *d, const struct disk_capture *c, int *ret,
                       struct cove_err *e)
{
    const char *snapshot = c->snapshot;
    AUTO_CLOSE int dir = -1;

    if (goes_into_pool(d, c))
        return btrfs_make_empty(d, snapshot, ret) < 0 ? fail_files(e) : 0;
    dir = open_dir(d->snapshots_dir, snapshot);
    if (dir < 0 || mkdirat(dir, FILES, 0700) < 0 || (*ret = open_dir(dir, FILES)) < 0)
        return fail_files(e);
    return 0;
}

static int make_uppers(int target, bool merges_image, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(uppers); i++)
        if (mkdirat(target, uppers[i], 0755) < 0)
            return fail_files(e);
    return merges_image && mkdirat(target, UPPER_IMAGE, 0755) < 0 ? fail_files(e) : 0;
}

static int copy_tree(int files, const char *from_name, int target, const char *to_name,
                     struct tree_copy *copy, struct cove_err *e)
{
    AUTO_CLOSE int from = open_dir(files, from_name), to = open_dir(target, to_name);

    return from < 0 || to < 0 ? fail_files(e) : tree_copy_over(from, to, copy, e);
}

static int copy_over(int files, int target, struct tree_copy *copy, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(uppers); i++)
        if (copy_tree(files, uppers[i], target, uppers[i], copy, e) < 0)
            return -1;
    return 0;
}

/* tmpfs maps no ids before Linux 6.3: owners of its files are then those on the host. */
static uint32_t shift_of(int files, uint32_t id_base)
{
    struct stat st;

    return fstatat(files, UPPER_ROOT, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == id_base
               ? id_base
               : 0;
}

/* Copies the lowest snapshot first: each one covers those before it. */
static int copy_all(const struct disk *d, const struct disk_capture *c, int files, int target,
                    struct cove_err *e)
{
    struct tree_copy copy = { .bytes_most = c->bytes_most };

    for (unsigned i = c->below_count; i > 0; i--) {
        AUTO_CLOSE int below = -1;

        if (disk_snapshot_open(d, c->below[i - 1], &below, e) < 0)
            return -1;
        if (c->image) {
            if (copy_tree(below, i == c->below_count ? UPPER_IMAGE : UPPER_ROOT, target,
                          UPPER_IMAGE, &copy, e) < 0)
                return -1;
        } else if (copy_over(below, target, &copy, e) < 0) {
            return -1;
        }
    }
    copy.id_shift = shift_of(files, c->id_base);
    if (c->image && c->below_count)
        return copy_tree(files, UPPER_ROOT, target, UPPER_IMAGE, &copy, e);
    return copy_over(files, target, &copy, e);
}

static int take_copy(const struct disk *d, const struct disk_capture *c, int files,
                     struct cove_err *e)
{
    AUTO_CLOSE int target = -1;

    if (make_target(d, c, &target, e) < 0 ||
        make_uppers(target, c->image && c->below_count, e) < 0 ||
        copy_all(d, c, files, target, e) < 0)
        return -1;
    if (goes_into_pool(d, c))
        return btrfs_make_read_only(target) < 0 ? fail_files(e) : 0;
    return syncfs(target) < 0 ? fail_files(e) : 0;
}

static int take(const struct disk *d, const struct disk_capture *c, struct cove_err *e)
{
    AUTO_CLOSE int found = -1;

    if (c->below_count == 0 && btrfs_has(d, c->id))
        return btrfs_share(d, c->id, c->snapshot) < 0 ? fail_files(e) : 0;
    if (c->files < 0 && disk_open_files(d, c->id, &found, e) < 0)
        return -1;
    return take_copy(d, c, c->files >= 0 ? c->files : found, e);
}

int disk_snapshot_take(const struct disk *d, const struct disk_capture *c, struct cove_err *e)
{
    AUTO_CLOSE int files = -1, image = -1;

    if (take(d, c, e) < 0)
        return -1;
    if (!c->image)
        return 0;
    if (disk_snapshot_open(d, c->snapshot, &files, e) < 0)
        return -1;
    image = open_dir(files, UPPER_IMAGE);
    return image < 0 ? cove_fail(e, COVE_INVALID, "the sandbox has no directory /" COVE_IMAGE_DIR)
                     : 0;
}
