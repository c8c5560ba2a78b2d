/*
 * A sandbox's disk: an ext4 image of its own, sparse, on a loop device. Bytes and inodes are then a
 * hard limit that the kernel keeps, `df` inside tells the truth, one sandbox's millions of files
 * are one file outside, and sweeping it is one unlink.
 *
 * Why not project quotas: they need a file system made and mounted for them, which few hosts have;
 * a watched limit would be late. mke2fs runs once per size; a sandbox gets a copy of what it made,
 * 200 KiB of data. There is no journal: the files do not outlive the sandbox. What costs is the
 * kernel's work for a loop device and a mount, some 5 ms, so a few disks of the usual size are made
 * ahead, while nobody waits. It is mounted without "discard", which without a journal ext4 does at
 * once, file by file: a creation took some 4 ms longer with it. So what is deleted inside is free
 * again inside, and outside when the sandbox ends.
 *
 * A host without loop devices or mke2fs gives each sandbox a tmpfs of the same size instead. That
 * limit is as hard, but files then count as the sandbox's memory; the keeper says so in its log.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/box/disk.h"
#include "sandbox/box/mounts.h"

#define IMAGE "disk.img"

static const char *const layers[] = { UPPER_ROOT, WORK_ROOT, UPPER_USR, WORK_USR };

/* ------------------------------------------------------------------ the pattern, once */

static int run_mke2fs(int image, uint64_t inodes, struct cove_err *e)
{
    char count[24], path[32];
    int status = -1;
    pid_t pid;

    snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", image);
    pid = fork();
    if (pid == 0) {
        fcntl(image, F_SETFD, 0);
        setenv("PATH", "/usr/sbin:/sbin:/usr/bin:/bin", 1);
        execlp("mke2fs", "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-N", count, "-O",
               "^has_journal,^resize_inode", "-E",
               "lazy_itable_init=1,nodiscard,packed_meta_blocks=1", path, NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "mke2fs");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return cove_fail(e, COVE_UNSUPPORTED, "mke2fs failed: is e2fsprogs installed?");
    return 0;
}

/* A table of inodes takes room itself: a small disk gets no more of them than it has blocks. */
static uint64_t inodes_for(const struct disk_size *size)
{
    uint64_t most = size->bytes / 4096;

    return size->inodes < most ? size->inodes : most;
}

/* Made aside, then renamed: what has the name is whole. */
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

    snprintf(name, sizeof(name), "%llu-%llu.img", (unsigned long long)size->bytes,
             (unsigned long long)size->inodes);
    if (faccessat(d->dir, name, F_OK, 0) < 0 && make_pattern(d, name, size, e) < 0)
        return -1;
    *ret = openat(d->dir, name, O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INTERNAL, "disk image") : 0;
}

/* ------------------------------------------------------------------ one sandbox's copy */

/* The holes stay holes. */
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

/* Another program may take the device between our asking for a free one and taking it: then the
 * next. */
static int attach_loop(int image, char path[32], int *ret, struct cove_err *e)
{
    /* Direct: cached once is enough. Asked for here and not later, when it would stop a queue for
     * 20 ms. */
    struct loop_config config = { .fd = (uint32_t)image,
                                  .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO };
    AUTO_CLOSE int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    for (int tries = 0; control >= 0 && tries < 64; tries++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE), loop;

        if (number < 0)
            break;
        snprintf(path, 32, "/dev/loop%d", number);
        loop = open(path, O_RDWR | O_CLOEXEC);
        if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
            *ret = loop;
            return 0;
        }
        cove_close(loop);
        if (errno != EBUSY)
            break;
    }
    return cove_fail_errno(e, COVE_UNSUPPORTED, "loop device for the sandbox's disk");
}

static const struct {
    const char *key, *value; /* no value: a flag */
} mount_options[] = {
    { "nobarrier", NULL },       /* nothing here must survive a power cut */
    { "noauto_da_alloc", NULL }, /* likewise: a rename need not bring the file to the disk first */
    { "minixdf", NULL },         /* the size is the limit, what ext4 itself takes counts as used */
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
    *ret = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    return *ret < 0 ? cove_fail_errno(e, COVE_UNSUPPORTED, "disk of the sandbox") : 0;
}

static int make_image(const struct disk *d, const struct disk_size *size, int dir, const char *name,
                      int *ret, struct cove_err *e)
{
    char device[32];
    AUTO_CLOSE int image = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    AUTO_CLOSE int loop = -1, pattern = -1;

    if (image < 0)
        return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL,
                               "disk of the sandbox");
    if (open_pattern(d, size, &pattern, e) < 0 ||
        copy_pattern(pattern, image, size->bytes, e) < 0 ||
        attach_loop(image, device, &loop, e) < 0)
        return -1;
    return mount_image(device, ret, e); /* the mount holds the device, the device holds the file */
}

static int make_tmpfs(const struct disk_size *size, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    char bytes[24], inodes[24];

    snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)size->bytes);
    snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)size->inodes);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", bytes, 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", inodes, 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "tmpfs as the sandbox's disk");
    *ret = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    return *ret < 0 ? cove_fail_errno(e, COVE_UNSUPPORTED, "tmpfs as the sandbox's disk") : 0;
}

static int make_layers(int files, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
        if (mkdirat(files, layers[i], 0755) < 0)
            return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL,
                                   "sandbox directory");
    return 0;
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
    return d->kind == DISK_IMAGE && d->usual.bytes > 0 && d->ready_count < DISK_READY_MAX;
}

int disk_make_ahead(struct disk *d, struct cove_err *e)
{
    struct disk_ready *r = &d->ready[d->ready_count];
    AUTO_CLOSE int mount = -1;
    char name[32];

    r->number = ++d->last_number;
    ready_name(r->number, name);
    unlinkat(d->dir, name, 0); /* of a keeper before us */
    if (make_image(d, &d->usual, d->dir, name, &mount, e) < 0 || make_layers(mount, e) < 0) {
        unlinkat(d->dir, name, 0);
        return -1;
    }
    r->mount = take_fd(&mount);
    d->ready_count++;
    return 0;
}

static void drop_ready(struct disk *d)
{
    char name[32];

    while (d->ready_count > 0) {
        struct disk_ready *r = &d->ready[--d->ready_count];

        ready_name(r->number, name);
        r->mount = cove_close(r->mount);
        unlinkat(d->dir, name, 0);
    }
}

static bool take_ready(struct disk *d, int box_dir, int *ret)
{
    struct disk_ready *r;
    char name[32];

    if (d->ready_count == 0)
        return false;
    r = &d->ready[--d->ready_count];
    ready_name(r->number, name);
    if (renameat(d->dir, name, box_dir, IMAGE) < 0) {
        r->mount = cove_close(r->mount);
        unlinkat(d->dir, name, 0);
        return false;
    }
    *ret = take_fd(&r->mount);
    return true;
}

int disk_make(struct disk *d, const struct disk_size *size, int box_dir, int *ret,
              struct cove_err *e)
{
    AUTO_CLOSE int files = -1;

    if (is_usual(d, size) && take_ready(d, box_dir, ret))
        return 0;
    if (size->bytes == 0)
        files = fcntl(box_dir, F_DUPFD_CLOEXEC, 0);
    else if ((d->kind == DISK_TMPFS ? make_tmpfs(size, &files, e)
                                    : make_image(d, size, box_dir, IMAGE, &files, e)) < 0)
        return -1;
    if (make_layers(files, e) < 0)
        return -1;
    *ret = take_fd(&files);
    return 0;
}

uint64_t disk_used(int boxes_dir, const char *id, pid_t init)
{
    char path[64];
    struct statvfs vfs;
    struct stat st;

    snprintf(path, sizeof(path), "%s/" IMAGE, id);
    if (fstatat(boxes_dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return (uint64_t)st.st_blocks * 512; /* what it takes of the host's */
    snprintf(path, sizeof(path), "/proc/%d/root", (int)init);
    if (statvfs(path, &vfs) == 0)
        return (uint64_t)(vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
    return 0;
}

/* ------------------------------------------------------------------ start */

/* Try it once: a container may have the files and not the rights. */
static int try_out(const struct disk *d, const struct disk_size *size, struct cove_err *e)
{
    int mnt = -1, rc;

    unlinkat(d->dir, "try.img", 0);
    rc = make_image(d, size, d->dir, "try.img", &mnt, e);
    cove_close(mnt);
    unlinkat(d->dir, "try.img", 0);
    return rc;
}

/* What a keeper before us had made ahead: its mounts went with it. */
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

int disk_init(struct disk *d, int state_dir, struct cove_err *e)
{
    *d = (struct disk){ .dir = -1 };
    if (mkdirat(state_dir, "disk", 0700) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "disk images");
    d->dir = openat(state_dir, "disk", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->dir < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "disk images");
    sweep_ready(d->dir);
    return 0;
}

int disk_configure(struct disk *d, bool image, const struct disk_size *usual, struct cove_err *e)
{
    enum disk_kind kind = DISK_TMPFS;
    int rc = 0;

    if (image && usual->bytes > 0 && (rc = try_out(d, usual, e)) == 0)
        kind = DISK_IMAGE;
    if (image && usual->bytes == 0)
        kind = DISK_IMAGE; /* templates and tenants may still have a limit of their own */
    if (kind != d->kind || !is_usual(d, usual))
        drop_ready(d);
    d->kind = kind;
    d->usual = *usual;
    return rc;
}

void disk_done(struct disk *d)
{
    drop_ready(d);
    d->dir = cove_close(d->dir);
}
