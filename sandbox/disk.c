/*
 * A sandbox's disk: an ext4 image of its own, sparse, on a loop device. Bytes and inodes are then a
 * hard limit that the kernel keeps, `df` inside tells the truth, one sandbox's millions of files
 * are one file outside, and sweeping it is one unlink.
 *
 * Why not project quotas: they need a file system made and mounted for them, which few hosts have;
 * a watched limit would be late, and tmpfs would take the memory limit away from programs. The
 * price is about 3 ms at creation, which the warm pool pays ahead. mke2fs runs once per size, when
 * the keeper starts; a sandbox gets a copy of what it made, 200 KiB of data. There is no journal:
 * the files do not outlive the sandbox.
 *
 * A host without loop devices or mke2fs runs without this limit, and the keeper says so in its log.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox_private.h"

#define IMAGE "disk.img"

/* ------------------------------------------------------------------ the pattern, once */

static int run_mke2fs(const char *path, uint64_t inodes, struct cove_err *e)
{
    char count[24];
    int status = -1;
    pid_t pid;

    snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes);
    pid = fork();
    if (pid == 0) {
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

/* Made aside, then renamed: what has the name is whole. */
static int make_pattern(int dir, const char *dir_path, const char *name,
                        const struct disk_size *size, struct cove_err *e)
{
    char path[600];
    AUTO_CLOSE int fd = openat(dir, "new.img", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)size->bytes) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "disk image");
    snprintf(path, sizeof(path), "%s/disk/new.img", dir_path);
    if (run_mke2fs(path, size->inodes, e) < 0)
        return -1;
    if (renameat(dir, "new.img", dir, name) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "disk image");
    return 0;
}

static int open_pattern(int state_dir, const char *state_path, const struct disk_size *size,
                        int *ret, struct cove_err *e)
{
    char name[64];
    AUTO_CLOSE int dir = -1;

    if (mkdirat(state_dir, "disk", 0700) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "disk images");
    dir = openat(state_dir, "disk", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(name, sizeof(name), "%llu-%llu.img", (unsigned long long)size->bytes,
             (unsigned long long)size->inodes);
    if (faccessat(dir, name, F_OK, 0) < 0 && make_pattern(dir, state_path, name, size, e) < 0)
        return -1;
    *ret = openat(dir, name, O_RDONLY | O_CLOEXEC);
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
    struct loop_config config = { .fd = (uint32_t)image, .info.lo_flags = LO_FLAGS_AUTOCLEAR };
    AUTO_CLOSE int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    for (int tries = 0; control >= 0 && tries < 64; tries++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE), loop;

        if (number < 0)
            break;
        snprintf(path, 32, "/dev/loop%d", number);
        loop = open(path, O_RDWR | O_CLOEXEC);
        if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
            ioctl(loop, LOOP_SET_DIRECT_IO, 1UL); /* cached once is enough */
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
    { "nobarrier", NULL }, /* nothing here must survive a power cut */
    { "minixdf", NULL },   /* the size is the limit, what ext4 itself takes counts as used */
    { "discard", NULL },   /* what is deleted inside is free outside */
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

int disk_make(const struct disk *d, int box_dir, int *ret, struct cove_err *e)
{
    char device[32];
    AUTO_CLOSE int image = openat(box_dir, IMAGE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    AUTO_CLOSE int loop = -1;

    if (image < 0)
        return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL,
                               "disk of the sandbox");
    if (copy_pattern(d->pattern, image, d->size.bytes, e) < 0 ||
        attach_loop(image, device, &loop, e) < 0)
        return -1;
    return mount_image(device, ret, e); /* the mount holds the device, the device holds the file */
}

/* ------------------------------------------------------------------ start */

/* Try it once: a container may have the files and not the rights. */
static int try_out(const struct disk *d, int state_dir, struct cove_err *e)
{
    int mnt = -1, rc;

    unlinkat(state_dir, IMAGE, 0);
    rc = disk_make(d, state_dir, &mnt, e);
    cove_close(mnt);
    unlinkat(state_dir, IMAGE, 0);
    return rc;
}

int disk_init(struct disk *d, int state_dir, const char *state_path, const struct disk_size *size,
              struct cove_err *e)
{
    struct disk fresh = { .pattern = -1, .size = *size };

    if (size->bytes > 0 && (open_pattern(state_dir, state_path, size, &fresh.pattern, e) < 0 ||
                            try_out(&fresh, state_dir, e) < 0)) {
        cove_close(fresh.pattern);
        return -1;
    }
    disk_done(d);
    *d = fresh;
    return 0;
}

void disk_done(struct disk *d)
{
    d->pattern = cove_close(d->pattern);
}
