/* What disk.c and the backends share. A new way to keep sandboxes' files is a file disk_NAME.c with
 * one struct disk_backend, and a row in disk.c. */
#ifndef COVE_BOX_DISK_PRIVATE_H
#define COVE_BOX_DISK_PRIVATE_H

#include "sandbox/box/disk.h"

struct disk_backend {
    const char *name;
    /* Does this backend work here? It is tried out. Called again after each change of the
     * configuration. */
    int (*open)(struct disk *d, struct cove_err *e);
    int (*make)(struct disk *d, const struct disk_size *size, const char *id, int box_dir,
                struct disk_files *ret, struct cove_err *e);
    /* Frees what a sandbox has beside its directory. May be called for any sandbox, also for those of
     * another backend and of an earlier keeper. May be NULL. */
    void (*release)(const struct disk *d, const char *id, int box_dir);
    /* Bytes that a sandbox takes of the host; false if it is not of this backend. May be NULL. */
    bool (*used)(const struct disk *d, const char *id, int box_dir, uint64_t *ret);
    /* Opens the directory with a sandbox's upper directories; 1: the sandbox is not of this backend. May
     * be NULL. */
    int (*find_files)(const struct disk *d, const char *id, int box_dir, int *ret,
                      struct cove_err *e);
    /* Once a second, for every backend: room is what the host's disk has above the reserve. Writing
     * inside must fail before the host's disk is full. May be NULL. */
    void (*tick)(struct disk *d, uint64_t room);
    void (*drop_ahead)(struct disk *d);           /* removes what was made ahead; may be NULL */
    void (*leave)(struct disk *d, bool for_good); /* the keeper stops; may be NULL */
};

extern const struct disk_backend disk_project, disk_btrfs, disk_image;

/* For tick(): call `look` with the directory of each sandbox, ... */
typedef void disk_look_fn(struct disk *d, const char *id, int box_dir, bool full);
void disk_each_box(struct disk *d, disk_look_fn *look, bool full);
/* ... or with those that are next in a round of all that have an entry in `dir`: some at a time, so
 * that a tick stays short. *round is NULL between two rounds. */
void disk_some_boxes(struct disk *d, DIR **round, int dir, disk_look_fn *look);

/* Starts a child that brings what was written in this file system to the disk; fs -1: in all. False: one is at work
 * already, or none could be started. */
bool disk_flush(struct disk *d, int fs);

/* disk_btrfs.c; these return -1 and errno. A shared snapshot is a clone of a sandbox in the pool, an empty one is
 * to be copied into. */
bool btrfs_has(const struct disk *d, const char *id);
/* Another backend makes disks now: sandboxes and snapshots that are in the pool stay reachable. */
void btrfs_reopen(struct disk *d);
int btrfs_share(const struct disk *d, const char *id, const char *snapshot);
int btrfs_make_empty(const struct disk *d, const char *snapshot, int *ret);
int btrfs_make_read_only(int snapshot);
void btrfs_drop_snapshot(const struct disk *d, const char *snapshot);

int disk_make_dirs(int files, struct cove_err *e); /* the directories named in mounts.h */
int disk_fail(struct cove_err *e);                 /* errno as an error: no room is COVE_LIMIT */
int disk_run(const char *const argv[], struct cove_err *e); /* runs a program of the host */

#endif
