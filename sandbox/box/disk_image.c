/*
 * The backend "image": an ext4 image for each sandbox, sparse, on a loop device. Bytes and inodes
 * are then a hard limit that the kernel keeps, `df` inside tells the truth, one sandbox's millions
 * of files are one file outside, and sweeping them is one unlink.
 *
 * mke2fs runs once per size; a sandbox gets a copy of the result, 200 KiB of data. There is no
 * journal: the files do not outlive the sandbox. The kernel's work for a loop device and a mount
 * takes some 5 ms, so a few disks of the usual size are made ahead, while nobody waits. The
 * image is mounted without "discard", which ext4 without a journal does at once, file by file: a
 * creation took some 4 ms longer with it. So bytes of deleted files are free again inside at once, and
 * on the host when the sandbox ends.
 *
 * ext4 keeps some blocks back for changes of its own that must not fail. At the limit a sandbox gets half of
 * them, once, until it has freed some: to delete a file of the template its whiteout must be written.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/box/disk_private.h"
#include "sandbox/box/loop.h"
#include "sandbox/box/tools.h"

#define IMAGE     "disk.img"
#define LOOP_LINK "loop" /* a symbolic link whose target is the number of the loop device */

enum {
    BLOCK = 4096,
    NEAR_BLOCKS = 64, /* this close to the limit a sandbox gets more */
};

/* ------------------------------------------------------------------ the pattern, once */

static int run_mke2fs(int image, uint64_t inodes, struct cove_err *e)
{
    char count[24], path[32];
    const char *const argv[] = {
        "mke2fs", "-q",
        "-F",     "-t",
        "ext4",   "-b",
        "4096", /* BLOCK; mke2fs by itself gives small images smaller ones */
        "-m",     "0",
        "-N",     count,
        "-O",     "^has_journal,^resize_inode",
        "-E",     "lazy_itable_init=1,nodiscard,packed_meta_blocks=1",
        path,     NULL,
    };

    snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes);
    /* The descriptor is closed on exec, so mke2fs opens the image through our /proc entry. */
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), image);
    return disk_run(argv, e);
}

/* A table of inodes takes room itself: a small disk gets no more inodes than it has blocks. */
static uint64_t inodes_for(const struct disk_size *size)
{
    uint64_t most = size->bytes / BLOCK;

    return size->inodes < most ? size->inodes : most;
}

/* The pattern is made under another name and then renamed, so a file with the right name is whole. */
static int make_pattern(const struct disk *d, const char *name, const struct disk_size *size,
                        struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(d->dir, "new.img", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)size->bytes) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "disk image");
    if (run_mke2fs(fd, inodes_for(size), e) < 0)
        return -1;
    if (renameat(d->dir, "new.img", d->dir, name) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "disk image");
    return 0;
}

static int open_pattern(const struct disk *d, const struct disk_size *size, int *ret,
                        struct cove_err *e)
{
    char name[64];

    snprintf(name, sizeof(name), "%llu-%llu.ext4", (unsigned long long)size->bytes,
             (unsigned long long)size->inodes);
    if (faccessat(d->dir, name, F_OK, 0) < 0 && make_pattern(d, name, size, e) < 0)
        return -1;
    *ret = openat(d->dir, name, O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INTERNAL, "disk image") : 0;
}

/* ------------------------------------------------------------------ one sandbox's copy */

/* Copies the data only: holes stay holes. */
static int copy_pattern(int from, int to, uint64_t bytes, struct cove_err *e)
{
    off_t at = 0, end;

    if (ftruncate(to, (off_t)bytes) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "disk of the sandbox");
    while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
        off_t in = at, out = at;

        end = lseek(from, at, SEEK_HOLE);
        while (in < end)
            if (copy_file_range(from, &in, to, &out, (size_t)(end - in), 0) <= 0)
                return cove_fail_errno(e, COVE_LIMIT, "disk of the sandbox");
        at = end;
    }
    return 0;
}

static const struct {
    const char *key, *value; /* no value: a flag */
} mount_options[] = {
    { "nobarrier", NULL },       /* nothing here must survive a power cut */
    { "noauto_da_alloc", NULL }, /* likewise: a rename need not write the file to the disk first */
    { "minixdf", NULL },         /* the size is the limit; what ext4 itself takes counts as used */
    { "errors", "remount-ro" },
};

static int mount_image(const char *device, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fs = fsopen("ext4", FSOPEN_CLOEXEC);
    int bad = fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0) < 0;

    for (size_t i = 0; !bad && i < ARRAY_SIZE(mount_options); i++)
        bad = fsconfig(fs, mount_options[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
                       mount_options[i].key, mount_options[i].value, 0) < 0;
    if (bad || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "disk of the sandbox");
    *ret = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOATIME);
    return *ret < 0 ? cove_fail_errno(e, COVE_UNSUPPORTED, "disk of the sandbox") : 0;
}

/* The number of the device is stored beside the image, so that sweeping can remove the device. */
static int remember_loop(int dir, int number, struct cove_err *e)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    return symlinkat(text, dir, LOOP_LINK) < 0 ? disk_fail(e) : 0;
}

static bool recall_loop(int dir, int *ret)
{
    char text[16] = "";

    if (readlinkat(dir, LOOP_LINK, text, sizeof(text) - 1) <= 0)
        return false;
    *ret = atoi(text);
    return true;
}

static int make_image(const struct disk *d, const struct disk_size *size, int dir, const char *name,
                      int *ret_loop, int *ret, struct cove_err *e)
{
    char device[LOOP_PATH_MAX];
    AUTO_CLOSE int image = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    AUTO_CLOSE int loop = -1, pattern = -1;

    if (image < 0)
        return disk_fail(e);
    if (open_pattern(d, size, &pattern, e) < 0 ||
        copy_pattern(pattern, image, size->bytes, e) < 0 ||
        loop_attach(image, ret_loop, &loop, e) < 0)
        return -1;
    loop_path(*ret_loop, device);
    return mount_image(device, ret, e); /* the mount holds the device, the device holds the file */
}

/* ------------------------------------------------------------------ made ahead */

static void ready_name(uint32_t number, char out[32])
{
    snprintf(out, 32, "ready-%u.img", (unsigned)number);
}

static bool is_usual(const struct disk *d, const struct disk_size *size)
{
    return size->bytes == d->usual.bytes && size->inodes == d->usual.inodes;
}

bool disk_wants_more(const struct disk *d)
{
    return d->backend == &disk_image && d->usual.bytes > 0 && d->ready_count < DISK_READY_MAX;
}

int disk_make_ahead(struct disk *d, struct cove_err *e)
{
    struct disk_ready *r = &d->ready[d->ready_count];
    AUTO_CLOSE int mount = -1;
    char name[32];

    r->number = ++d->last_number;
    ready_name(r->number, name);
    unlinkat(d->dir, name, 0); /* an earlier keeper may have left one */
    if (make_image(d, &d->usual, d->dir, name, &r->loop, &mount, e) < 0 ||
        disk_make_dirs(mount, e) < 0) {
        unlinkat(d->dir, name, 0);
        return -1;
    }
    r->mount = take_fd(&mount);
    d->ready_count++;
    return 0;
}

static void drop_one(const struct disk *d, struct disk_ready *r)
{
    char name[32];

    ready_name(r->number, name);
    r->mount = cove_close(r->mount);
    unlinkat(d->dir, name, 0);
    loop_remove(r->loop);
}

static void drop_ready(struct disk *d)
{
    while (d->ready_count > 0)
        drop_one(d, &d->ready[--d->ready_count]);
}

static bool take_ready(struct disk *d, int box_dir, int *ret)
{
    struct disk_ready *r;
    char name[32];

    if (d->ready_count == 0)
        return false;
    r = &d->ready[--d->ready_count];
    ready_name(r->number, name);
    if (renameat(d->dir, name, box_dir, IMAGE) < 0 || remember_loop(box_dir, r->loop, NULL) < 0) {
        drop_one(d, r);
        return false;
    }
    *ret = take_fd(&r->mount);
    return true;
}

/* ------------------------------------------------------------------ the backend */

/* Removes the images that an earlier keeper had made ahead: their mounts ended with it. */
static void sweep_ready(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    while (all && (entry = readdir(all)))
        if (strncmp(entry->d_name, "ready-", 6) == 0)
            unlinkat(dir, entry->d_name, 0);
    if (all)
        closedir(all);
}

/* Tries it out once for each size: a container may have the programs and devices but not the rights. */
static int image_open(struct disk *d, struct cove_err *e)
{
    int mnt = -1, loop = -1, rc;

    if (d->ready_count > 0)
        return 0;
    sweep_ready(d->dir);
    if (d->usual.bytes == 0)
        return 0; /* templates and tenants may still have a limit of their own */
    unlinkat(d->dir, "try.img", 0);
    rc = make_image(d, &d->usual, d->dir, "try.img", &loop, &mnt, e);
    cove_close(mnt);
    unlinkat(d->dir, "try.img", 0);
    if (loop >= 0)
        loop_remove(loop);
    return rc;
}

static int image_make(struct disk *d, const struct disk_size *size, const char *id, int box_dir,
                      struct disk_files *ret, struct cove_err *e)
{
    int loop;

    (void)id;
    ret->is_mount = true;
    if (is_usual(d, size) && take_ready(d, box_dir, &ret->dir))
        return 0;
    if (make_image(d, size, box_dir, IMAGE, &loop, &ret->dir, e) < 0 ||
        remember_loop(box_dir, loop, e) < 0)
        return -1;
    return disk_make_dirs(ret->dir, e);
}

static void image_release(const struct disk *d, const char *id, int box_dir)
{
    int loop;

    (void)d;
    (void)id;
    unlinkat(box_dir, IMAGE, 0);
    if (recall_loop(box_dir, &loop))
        loop_remove(loop);
}

static bool image_used(const struct disk *d, const char *id, int box_dir, uint64_t *ret)
{
    struct stat st;

    (void)d;
    (void)id;
    if (fstatat(box_dir, IMAGE, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    *ret = (uint64_t)st.st_blocks * 512; /* what the image takes of the host's disk */
    return true;
}

/* The sandbox has its disk mounted in its own namespace. The device is mounted once more, for as long as the
 * descriptor is open. */
static int image_find_files(const struct disk *d, const char *id, int box_dir, int *ret,
                            struct cove_err *e)
{
    char device[LOOP_PATH_MAX];
    int loop;

    (void)d;
    (void)id;
    if (!recall_loop(box_dir, &loop))
        return 1;
    loop_path(loop, device);
    return mount_image(device, ret, e);
}

/* ------------------------------------------------------------------ once a second */

struct image_figures {
    int loop;
    uint64_t blocks, written; /* in all; on the host's disk */
    uint64_t kept_back;       /* as ext4 itself sets it */
};

static bool find_image(int box_dir, struct image_figures *ret)
{
    struct stat st;

    if (!recall_loop(box_dir, &ret->loop) || fstatat(box_dir, IMAGE, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    ret->blocks = (uint64_t)st.st_size / BLOCK;
    ret->written = (uint64_t)st.st_blocks * 512 / BLOCK;
    ret->kept_back = ret->blocks / 50 < 4096 ? ret->blocks / 50 : 4096;
    return true;
}

static void keep_back(const struct image_figures *im, uint64_t blocks)
{
    char path[64], text[32];

    snprintf(path, sizeof(path), "/sys/fs/ext4/loop%d/reserved_clusters", im->loop);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)blocks);
    write_file_at(AT_FDCWD, path, text, NULL);
}

static uint64_t figure(const struct image_figures *im, const char *name)
{
    char path[64], text[32] = "";

    snprintf(path, sizeof(path), "/sys/fs/ext4/loop%d/%s", im->loop, name);
    return read_file_at(AT_FDCWD, path, text, sizeof(text)) <= 0 ? 0 : strtoull(text, NULL, 10);
}

/*
 * The free blocks of all groups, as ext4 lists them: "#GROUP: FREE ...". To mount the image once more and ask
 * statfs() is no choice: a mount waits as long as anybody inside is in sync(), and the keeper with it.
 */
static bool count_free(const struct image_figures *im, uint64_t *ret)
{
    char path[64], line[256];
    unsigned long long blocks;
    FILE *list;

    snprintf(path, sizeof(path), "/proc/fs/ext4/loop%d/mb_groups", im->loop);
    list = fopen(path, "re");
    if (!list)
        return false;
    *ret = 0;
    while (fgets(line, sizeof(line), list))
        if (sscanf(line, "#%*u : %llu", &blocks) == 1)
            *ret += blocks;
    fclose(list);
    return true;
}

/* Of most images less than half is ever written: they need no closer look. */
static void review(struct disk *d, const char *id, int box_dir, bool host_is_full)
{
    uint64_t blocks, taken, kept;
    struct image_figures im;

    (void)d;
    (void)id;
    (void)host_is_full;
    if (!find_image(box_dir, &im) || im.written < im.blocks / 2 || !count_free(&im, &blocks))
        return;
    taken = figure(&im, "delayed_allocation_blocks"); /* promised to data that waits in memory */
    kept = figure(&im, "reserved_clusters");
    if (kept == im.kept_back && blocks < taken + kept + NEAR_BLOCKS)
        keep_back(&im, im.kept_back / 2);
    else if (kept < im.kept_back && blocks > taken + im.kept_back + 2 * NEAR_BLOCKS)
        keep_back(&im, im.kept_back);
}

/*
 * An image that cannot grow loses data that the sandbox has written successfully. So before the host's disk is
 * full, ext4 is told to keep all free blocks of an image back: writing inside fails
 * with ENOSPC. Data that is on its way to the disk at that moment has room in the host's reserve
 * (disk_reserve), and is sent there before other programs take the reserve.
 */
static void squeeze(struct disk *d, const char *id, int box_dir, bool on)
{
    struct image_figures im;

    (void)d;
    (void)id;
    if (find_image(box_dir, &im))
        keep_back(&im, on ? im.blocks - 1 : im.kept_back);
}

static void image_tick(struct disk *d, uint64_t room)
{
    bool full = room == 0;

    if (full == d->images_squeezed) {
        if (!full)
            disk_some_boxes(d, &d->image_list, d->boxes_dir, review);
        return;
    }
    disk_each_box(d, squeeze, full);
    if (full && d->backend == &disk_image)
        disk_flush(d, -1);
    d->images_squeezed = full;
}

static void image_leave(struct disk *d, bool for_good)
{
    (void)for_good;
    if (d->image_list)
        closedir(d->image_list);
    d->image_list = NULL;
}

const struct disk_backend disk_image = {
    .name = "image",
    .open = image_open,
    .make = image_make,
    .release = image_release,
    .used = image_used,
    .find_files = image_find_files,
    .tick = image_tick,
    .leave = image_leave,
    .drop_ahead = drop_ready,
};
