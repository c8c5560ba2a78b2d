/*
 * The backend "project": project quotas of the file system that state_dir lies in, where it is an
 * ext4 or XFS that was mounted with the option prjquota. A sandbox's files are a directory with a
 * project number of its own, and so is all that is made below. There is no image, no loop device and
 * no mount for anybody, and the kernel knows what each sandbox uses.
 *
 *   limit     bytes and inodes, both kept by the kernel (EDQUOT on ext4, ENOSPC on XFS). `df` inside
 *             shows the told limit: statfs() of a project's directory is the project's.
 *   number    the next one of this state_dir's range for which the kernel has no limit and no used
 *             byte. So a number is not used again before the last file that carries it is gone, and
 *             no number of another program on the file system is taken. The range follows from an
 *             inode number, and differs between instances on one file system.
 *   reserve   at the limit a sandbox gets a little more, once, until it has freed some: to delete a
 *             file of the template its whiteout must be written.
 *   the host  when its disk gets full, each sandbox's limit becomes what it uses.
 *   inside    the kernel refuses to change a project number, and the flag by which it is inherited,
 *             in every user namespace but the first.
 *
 *   state_dir/boxes/ID/files    the upper and work directories
 *   state_dir/boxes/ID/project  a symbolic link; its target is "NUMBER BYTES INODES". It is there
 *                               before the kernel is told a limit, so whoever sweeps can take the
 *                               limit away.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/box/disk_private.h"
#include "sandbox/box/project.h"
#include "sandbox/box/sweep.h"

#define FILES "files"
#define LINK  "project"
#define TRY   "try-project" /* in state_dir/disk */

#define KIB ((uint64_t)1024)
#define MIB ((uint64_t)1 << 20)

enum {
    RANGE = 1 << 16,         /* numbers of one state_dir */
    RANGES = 1 << 14,        /* how many ranges there are, above the numbers that people choose */
    FIRST = 1 << 30,         /* the lowest number of the lowest range */
    NEAR_BYTES = 256 * 1024, /* this close to the limit the reserve is given */
    NEAR_INODES = 16,
    RESERVE_INODES = 64,
};

/* ------------------------------------------------------------------ numbers */

struct owned { /* what the link says */
    uint32_t number;
    uint64_t bytes, inodes;
};

static uint32_t first_number(const struct disk *d)
{
    struct stat st = { 0 };

    fstat(d->dir, &st);
    return FIRST + (uint32_t)(st.st_ino % RANGES) * RANGE;
}

static bool is_unused(const struct project_quota *q)
{
    return !q->limit_bytes && !q->limit_inodes && !q->hard_limit_bytes && !q->hard_limit_inodes &&
           !q->used_bytes && !q->used_inodes;
}

static int find_number(struct disk *d, uint32_t *ret, struct cove_err *e)
{
    uint32_t first = first_number(d);

    for (uint32_t tries = 0; tries < RANGE; tries++) {
        uint32_t number = first + d->last_project++ % RANGE;
        struct project_quota q;

        if (project_get(d->boxes_dir, number, &q) < 0)
            return disk_fail(e);
        if (is_unused(&q)) {
            *ret = number;
            return 0;
        }
    }
    return cove_fail(e, COVE_LIMIT, "all %d project numbers are in use", RANGE);
}

static int remember(int box_dir, const struct owned *o, struct cove_err *e)
{
    char text[80];

    snprintf(text, sizeof(text), "%" PRIu32 " %" PRIu64 " %" PRIu64, o->number, o->bytes,
             o->inodes);
    return symlinkat(text, box_dir, LINK) < 0 ? disk_fail(e) : 0;
}

static bool recall(int box_dir, struct owned *ret)
{
    char text[80] = "";

    return readlinkat(box_dir, LINK, text, sizeof(text) - 1) > 0 &&
           sscanf(text, "%" SCNu32 " %" SCNu64 " %" SCNu64, &ret->number, &ret->bytes,
                  &ret->inodes) == 3;
}

/* ------------------------------------------------------------------ one directory */

static struct project_quota limits_of(const struct owned *o)
{
    return (struct project_quota){
        .limit_bytes = o->bytes,
        .limit_inodes = o->inodes,
        .hard_limit_bytes = o->bytes,
        .hard_limit_inodes = o->inodes,
    };
}

/* Only root may search the directory: files in it may be set-uid and belong to root's number. */
static int make_files(int parent, const char *name, const struct owned *o, int *ret,
                      struct cove_err *e)
{
    const struct project_quota limits = limits_of(o);
    AUTO_CLOSE int dir = -1;

    if (mkdirat(parent, name, 0700) < 0)
        return disk_fail(e);
    dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || project_mark(dir, o->number) < 0 || project_set(dir, o->number, &limits) < 0)
        return disk_fail(e);
    *ret = take_fd(&dir);
    return 0;
}

static void forget(int fd, uint32_t number)
{
    const struct project_quota none = { 0 };

    project_set(fd, number, &none);
}

/* ------------------------------------------------------------------ the backend */

/* Makes a directory as for a sandbox, and checks that the kernel counts it and knows its limit. */
static int try_out(struct disk *d, struct cove_err *e)
{
    struct owned o = { .bytes = MIB, .inodes = 100 };
    struct project_quota q = { 0 };
    AUTO_CLOSE int dir = -1;
    int rc;

    unlinkat(d->dir, TRY, AT_REMOVEDIR);
    if (find_number(d, &o.number, e) < 0)
        return -1;
    rc = make_files(d->dir, TRY, &o, &dir, e);
    if (rc == 0 &&
        (project_get(dir, o.number, &q) < 0 || q.hard_limit_bytes != o.bytes || q.used_inodes != 1))
        rc = cove_fail(e, COVE_UNSUPPORTED, "project quotas do not count");
    unlinkat(d->dir, TRY, AT_REMOVEDIR);
    forget(d->dir, o.number);
    return rc;
}

static int project_open(struct disk *d, struct cove_err *e)
{
    return project_check(d->boxes_dir, e) < 0 ? -1 : try_out(d, e);
}

static int project_make(struct disk *d, const struct disk_size *size, const char *id, int box_dir,
                        struct disk_files *ret, struct cove_err *e)
{
    struct owned o = { .bytes = (size->bytes + KIB - 1) / KIB * KIB, .inodes = size->inodes };

    (void)id;
    if (find_number(d, &o.number, e) < 0 || remember(box_dir, &o, e) < 0 ||
        make_files(box_dir, FILES, &o, &ret->dir, e) < 0)
        return -1;
    return disk_make_dirs(ret->dir, e);
}

/* Removes the files first: as long as one of them exists, the number must not be used again. */
static void project_release(const struct disk *d, const char *id, int box_dir)
{
    struct owned o;

    (void)d;
    (void)id;
    if (!recall(box_dir, &o))
        return;
    sweep_tree(box_dir, FILES, NULL);
    forget(box_dir, o.number);
}

static bool project_used(const struct disk *d, const char *id, int box_dir, uint64_t *ret)
{
    struct project_quota q;
    struct owned o;

    (void)d;
    (void)id;
    if (!recall(box_dir, &o) || project_get(box_dir, o.number, &q) < 0)
        return false;
    *ret = q.used_bytes;
    return true;
}

static int project_find_files(const struct disk *d, const char *id, int box_dir, int *ret,
                              struct cove_err *e)
{
    struct owned o;

    (void)d;
    (void)id;
    if (!recall(box_dir, &o))
        return 1;
    *ret = openat(box_dir, FILES, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? disk_fail(e) : 0;
}

/* ------------------------------------------------------------------ once a second */

static bool is_near_limit(const struct project_quota *q)
{
    return q->used_bytes + NEAR_BYTES > q->hard_limit_bytes ||
           q->used_inodes + NEAR_INODES > q->hard_limit_inodes;
}

static bool has_room_again(const struct project_quota *q, const struct owned *o)
{
    return q->used_bytes + MIB < o->bytes && q->used_inodes + RESERVE_INODES < o->inodes;
}

/* The reserve of one sandbox: given at the limit, taken back when there is room again. */
static void review(struct disk *d, const char *id, int box_dir, bool host_is_full)
{
    struct project_quota q, limits;
    struct owned o;

    (void)d;
    (void)id;
    (void)host_is_full;
    if (!recall(box_dir, &o) || project_get(box_dir, o.number, &q) < 0 || q.hard_limit_bytes == 0)
        return;
    limits = limits_of(&o);
    if (q.hard_limit_bytes <= o.bytes && is_near_limit(&q)) {
        limits.hard_limit_bytes += MIB;
        limits.hard_limit_inodes += RESERVE_INODES;
        project_set(box_dir, o.number, &limits);
    } else if (q.hard_limit_bytes > o.bytes && has_room_again(&q, &o)) {
        project_set(box_dir, o.number, &limits);
    }
}

/* Sets the limit to what the sandbox uses now. A limit of 0 would be no limit, and XFS ignores a hard limit below
 * the soft one. */
static void squeeze(struct disk *d, const char *id, int box_dir, bool on)
{
    struct project_quota q, limits;
    struct owned o;

    (void)d;
    (void)id;
    if (!recall(box_dir, &o) || project_get(box_dir, o.number, &q) < 0 || q.hard_limit_bytes == 0)
        return;
    limits = limits_of(&o);
    if (on && q.used_bytes < o.bytes)
        limits.limit_bytes = limits.hard_limit_bytes = (q.used_bytes + KIB - 1) / KIB * KIB + KIB;
    project_set(box_dir, o.number, &limits);
}

static void project_tick(struct disk *d, uint64_t room)
{
    bool full = room == 0;

    if (full != d->projects_squeezed)
        disk_each_box(d, squeeze, full);
    else if (!full)
        disk_some_boxes(d, &d->project_list, d->boxes_dir, review);
    d->projects_squeezed = full;
}

static void project_leave(struct disk *d, bool for_good)
{
    (void)for_good;
    if (d->project_list)
        closedir(d->project_list);
    d->project_list = NULL;
}

const struct disk_backend disk_project = {
    .name = "project",
    .open = project_open,
    .make = project_make,
    .release = project_release,
    .used = project_used,
    .find_files = project_find_files,
    .tick = project_tick,
    .leave = project_leave,
};
