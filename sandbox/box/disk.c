/*
 * A sandbox's disk: its own files, with a limit on their bytes. Several backends keep that promise
 * in different ways, and the first that works on this host is taken unless the configuration names
 * one. A sandbox keeps the disk it was made with: each backend recognizes its own when a sandbox is
 * asked about or swept.
 *
 *   project each sandbox: a directory of state_dir's own file system with a project quota (disk_project.c)
 *   btrfs   one file system for all sandboxes, with a quota group for each (disk_btrfs.c)
 *   image   each sandbox: an ext4 image on a loop device (disk_image.c)
 *   tmpfs   each sandbox: a file system in memory. Its files count as the sandbox's memory
 *
 * Without a limit (bytes 0) a sandbox's files lie in its directory below state_dir.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/disk_private.h"
#include "sandbox/box/mounts.h"
#include "sandbox/box/sweep.h"
#include "sandbox/box/tools.h"

enum { TICK_MS = 1000, TICK_BOXES_MAX = 64 };

/* ------------------------------------------------------------------ what backends share */

int disk_fail(struct cove_err *e)
{
    bool full = errno == ENOSPC || errno == EDQUOT;

    return cove_fail_errno(e, full ? COVE_LIMIT : COVE_UNSUPPORTED, "disk of the sandbox");
}

int disk_make_dirs(int files, struct cove_err *e)
{
    static const char *const dirs[] = { UPPER_ROOT, WORK_ROOT, UPPER_USR, WORK_USR };

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (mkdirat(files, dirs[i], 0755) < 0)
            return disk_fail(e);
    return 0;
}

int disk_run(const char *const argv[], struct cove_err *e)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);

        dup2(null, 1);
        dup2(null, 2);
        setenv("PATH", "/usr/sbin:/sbin:/usr/bin:/bin", 1);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "%s", argv[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return cove_fail(e, COVE_UNSUPPORTED, "%s %s", argv[0],
                         WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "is not installed"
                                                                         : "failed");
    return 0;
}

static DIR *open_list(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (!list)
        cove_close(fd);
    return list;
}

static void look_at(struct disk *d, const char *id, disk_look_fn *look, bool full)
{
    AUTO_CLOSE int box_dir =
        text_is_id(id) ? openat(d->boxes_dir, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (box_dir >= 0)
        look(d, id, box_dir, full);
}

void disk_each_box(struct disk *d, disk_look_fn *look, bool full)
{
    DIR *all = open_list(d->boxes_dir);
    struct dirent *entry;

    while (all && (entry = readdir(all)))
        look_at(d, entry->d_name, look, full);
    if (all)
        closedir(all);
}

void disk_some_boxes(struct disk *d, DIR **round, int dir, disk_look_fn *look)
{
    if (!*round)
        *round = open_list(dir);
    for (int n = 0; *round && n < TICK_BOXES_MAX; n++) {
        struct dirent *entry = readdir(*round);

        if (entry) {
            look_at(d, entry->d_name, look, false);
        } else {
            closedir(*round);
            *round = NULL;
        }
    }
}

/* ------------------------------------------------------------------ tmpfs: the last resort */

static int tmpfs_open(struct disk *d, struct cove_err *e)
{
    (void)d;
    (void)e;
    return 0;
}

static int tmpfs_make(struct disk *d, const struct disk_size *size, const char *id, int box_dir,
                      struct disk_files *ret, struct cove_err *e)
{
    AUTO_CLOSE int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    char bytes[24], inodes[24];

    (void)d;
    (void)id;
    (void)box_dir;
    snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)size->bytes);
    snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)size->inodes);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", bytes, 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", inodes, 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return disk_fail(e);
    ret->dir =
        fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOATIME);
    ret->is_mount = true;
    ret->is_lost = true;
    return ret->dir < 0 ? disk_fail(e) : disk_make_dirs(ret->dir, e);
}

static const struct disk_backend disk_tmpfs = {
    .name = "tmpfs",
    .open = tmpfs_open,
    .make = tmpfs_make,
};

/* ------------------------------------------------------------------ choosing */

/* In the order in which "auto" tries them. */
static const struct disk_backend *const backends[] = { &disk_project, &disk_btrfs, &disk_image,
                                                       &disk_tmpfs };

int disk_open_files(const struct disk *d, const char *id, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int box_dir = openat(d->boxes_dir, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (box_dir < 0)
        return cove_fail(e, COVE_GONE, "the sandbox ended");
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
        int rc = backends[i]->find_files ? backends[i]->find_files(d, id, box_dir, ret, e) : 1;

        if (rc <= 0)
            return rc;
    }
    if (faccessat(box_dir, UPPER_ROOT, F_OK, AT_SYMLINK_NOFOLLOW) == 0) { /* without a limit */
        *ret = take_fd(&box_dir);
        return 0;
    }
    return cove_fail(e, COVE_UNSUPPORTED,
                     "its files are in memory, and the server was restarted since it was made");
}

static const struct disk_backend *find_backend(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

bool disk_is_backend(const char *name)
{
    return strcmp(name, "auto") == 0 || find_backend(name) != NULL;
}

const char *disk_backend_name(const struct disk *d)
{
    return d->backend->name;
}

static const struct disk_backend *first_that_works(struct disk *d)
{
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        if (backends[i]->open(d, NULL) == 0)
            return backends[i];
    return &disk_tmpfs;
}

static void drop_ahead(struct disk *d)
{
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        if (backends[i]->drop_ahead)
            backends[i]->drop_ahead(d);
}

int disk_configure(struct disk *d, const char *wanted, const struct disk_size *usual,
                   uint64_t reserve_bytes, struct cove_err *e)
{
    const struct disk_backend *backend = find_backend(wanted);
    bool same = d->usual.bytes == usual->bytes && d->usual.inodes == usual->inodes;
    int rc = 0;

    assert(disk_is_backend(wanted)); /* config_check() lets no other word pass */
    if (!same)
        drop_ahead(d);
    d->reserve_bytes = reserve_bytes;
    d->usual = *usual;
    if (!backend)
        backend = first_that_works(d);
    else if ((rc = backend->open(d, e)) < 0)
        backend = &disk_tmpfs;
    if (d->backend != backend)
        drop_ahead(d);
    d->backend = backend;
    btrfs_reopen(d);
    return rc;
}

/* ------------------------------------------------------------------ one sandbox */

int disk_make(struct disk *d, const struct disk_size *size, const char *id, int box_dir,
              struct disk_files *ret, struct cove_err *e)
{
    struct disk_files files = { .dir = -1 };

    if (size->bytes == 0) {
        files.dir = fcntl(box_dir, F_DUPFD_CLOEXEC, 0);
        if (files.dir < 0 || disk_make_dirs(files.dir, e) < 0) {
            cove_close(files.dir);
            return -1;
        }
    } else if (d->backend->make(d, size, id, box_dir, &files, e) < 0) {
        cove_close(files.dir);
        return -1;
    }
    *ret = files;
    return 0;
}

/* For a sandbox that no backend knows: what statfs() tells of the root directory inside. */
static uint64_t used_by_root(pid_t init)
{
    struct statvfs vfs;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/root", (int)init);
    if (statvfs(path, &vfs) < 0)
        return 0;
    return (uint64_t)(vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
}

uint64_t disk_used(const struct disk *d, const char *id, pid_t init)
{
    AUTO_CLOSE int box_dir = openat(d->boxes_dir, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t bytes;

    for (size_t i = 0; box_dir >= 0 && i < ARRAY_SIZE(backends); i++)
        if (backends[i]->used && backends[i]->used(d, id, box_dir, &bytes))
            return bytes;
    return used_by_root(init);
}

/* The sandbox's directory is removed last: as long as it exists, sweeping is not finished. */
void disk_sweep(const struct disk *d, const char *id)
{
    AUTO_CLOSE int box_dir = openat(d->boxes_dir, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = 0; box_dir >= 0 && i < ARRAY_SIZE(backends); i++)
        if (backends[i]->release)
            backends[i]->release(d, id, box_dir);
    sweep_tree(d->boxes_dir, id, NULL);
}

pid_t disk_sweep_async(const struct disk *d, const char *const ids[], unsigned count,
                       struct cove_err *e)
{
    pid_t pid = fork();

    if (pid < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "fork");
    if (pid > 0)
        return pid;
    title_set("cove: sweeper");
    setpriority(PRIO_PROCESS, 0, 10); /* no request waits for the sweeper */
    for (unsigned i = 0; i < count; i++)
        disk_sweep(d, ids[i]);
    _exit(0);
}

/* ------------------------------------------------------------------ the host's disk */

bool disk_flush(struct disk *d, int fs)
{
    pid_t pid = d->flusher ? -1 : fork();

    if (pid == 0) {
        title_set("cove: flush");
        if (fs < 0)
            sync();
        else
            syncfs(fs);
        _exit(0);
    }
    if (pid > 0)
        d->flusher = pid;
    return pid > 0;
}

static void reap_flusher(struct disk *d)
{
    if (d->flusher && waitpid(d->flusher, NULL, WNOHANG) != 0)
        d->flusher = 0;
}

bool disk_tick(struct disk *d, uint64_t now_ms)
{
    struct statvfs fs;
    uint64_t room;

    if (now_ms < d->next_tick_ms || fstatvfs(d->dir, &fs) < 0)
        return false;
    d->next_tick_ms = now_ms + TICK_MS;
    reap_flusher(d);
    d->free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    room = d->free_bytes > d->reserve_bytes ? d->free_bytes - d->reserve_bytes : 0;
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        if (backends[i]->tick)
            backends[i]->tick(d, room);
    return true;
}

int disk_check_room(const struct disk *d, struct cove_err *e)
{
    char amount[32], reserve[32];

    if (d->next_tick_ms == 0 || d->free_bytes >= d->reserve_bytes)
        return 0;
    text_format_bytes(d->free_bytes, amount);
    text_format_bytes(d->reserve_bytes, reserve);
    return cove_fail(e, COVE_BUSY,
                     "the server's disk is full: %s free, %s are reserved (disk_reserve)", amount,
                     reserve);
}

/* ------------------------------------------------------------------ start and end */

int disk_init(struct disk *d, int state_dir, int boxes_dir, struct cove_err *e)
{
    *d = (struct disk){
        .dir = -1,
        .boxes_dir = boxes_dir,
        .snapshots_dir = -1,
        .backend = &disk_tmpfs,
        .pool = { .boxes = -1, .snapshots = -1 },
    };
    if (mkdirat(state_dir, "disk", 0700) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "directory of disks");
    d->dir = openat(state_dir, "disk", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->dir < 0 || fchmod(d->dir, 0700) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "directory of disks");
    if (mkdirat(state_dir, "snapshots", 0700) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "directory of snapshots");
    d->snapshots_dir = openat(state_dir, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->snapshots_dir < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "directory of snapshots");
    return 0;
}

void disk_done(struct disk *d, bool for_good)
{
    drop_ahead(d);
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        if (backends[i]->leave)
            backends[i]->leave(d, for_good);
    d->dir = cove_close(d->dir);
    d->snapshots_dir = cove_close(d->snapshots_dir);
}
