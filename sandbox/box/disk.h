/* The disks of sandboxes: where their own files lie, and how much they may take. */
#ifndef COVE_BOX_DISK_H
#define COVE_BOX_DISK_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"

struct disk_size {
    uint64_t bytes, inodes; /* bytes 0: no limit */
};

struct disk_files {      /* a sandbox's own files */
    int dir;             /* with the directories named in mounts.h */
    bool is_mount;       /* dir is the root of a detached mount; else a directory of a larger one */
    bool is_lost;        /* once the sandbox runs, only the descriptor `dir` leads to them */
    uint64_t told_bytes; /* the limit that init is told, where statfs() does not show it; else 0 */
};

enum { DISK_READY_MAX = 4 };

struct disk_ready { /* an image that was made ahead */
    uint32_t number;
    int loop, mount;
};

struct disk_backend;

enum { DISK_FSID_TEXT = 37 };

struct disk_pool {           /* of the backend btrfs */
    int boxes;               /* -1: there is no pool */
    int snapshots;           /* directory with a subvolume for each snapshot */
    DIR *list;               /* sandboxes that are still to be looked at in this round */
    uint64_t limit;          /* of all sandboxes together; 0 = none */
    uint64_t metadata_bytes; /* so much metadata has its room on the host's disk */
    uint64_t last_room;      /* of the host's disk above the reserve, a second ago */
    bool is_tight;           /* that room is nearly gone */
    char fsid[DISK_FSID_TEXT];
};

struct disk {
    int dir;                            /* state_dir/disk: what the backends keep */
    int boxes_dir;                      /* state_dir/boxes: a directory for each sandbox */
    int snapshots_dir;                  /* state_dir/snapshots: a directory for each snapshot */
    const struct disk_backend *backend; /* of sandboxes that are made from now on */
    struct disk_size usual;             /* of images made ahead */
    struct disk_ready ready[DISK_READY_MAX];
    uint32_t ready_count, last_number;
    struct disk_pool pool;
    uint32_t
        last_project;  /* backend project: the number tried last, counted from its range's first */
    DIR *project_list; /* sandboxes that are still to be looked at in this round */
    bool projects_squeezed; /* the host's disk is full: nothing can be written in projects */
    DIR *image_list;        /* of the backend image, likewise */
    bool images_squeezed;   /* the host's disk is full: nothing can be written in images */
    uint64_t reserve_bytes; /* of the host's file system: for writes under way and other programs */
    uint64_t free_bytes;    /* of the host's file system, a moment ago */
    uint64_t next_tick_ms;
    pid_t flusher; /* a child that brings data to the disk; 0 = none */
};

int disk_init(struct disk *d, int state_dir, int boxes_dir, struct cove_err *e);
/* for_good: no sandbox lives any more. Otherwise disks are left to the next keeper. */
void disk_done(struct disk *d, bool for_good);
/* Chooses how disks are made from now on: "auto", or a backend's name. -1: that backend does not work here (e says
 * why), and disks are made as tmpfs. */
int disk_configure(struct disk *d, const char *wanted, const struct disk_size *usual,
                   uint64_t reserve_bytes, struct cove_err *e);
const char *disk_backend_name(const struct disk *d);
bool disk_is_backend(const char *name); /* "auto" included */

/* Looks at the host's free space and at sandboxes near their limit, once a second. Returns whether it did. */
bool disk_tick(struct disk *d, uint64_t now_ms);
/* COVE_BUSY where the host has less room than disk_reserve: no new sandbox then. */
int disk_check_room(const struct disk *d, struct cove_err *e);

int disk_make(struct disk *d, const struct disk_size *size, const char *id, int box_dir,
              struct disk_files *ret, struct cove_err *e);
/* Opens the directory with a sandbox's upper directories, for any backend. COVE_UNSUPPORTED: with its backend only
 * the sandbox itself can reach them. */
int disk_open_files(const struct disk *d, const char *id, int *ret, struct cove_err *e);
bool disk_wants_more(const struct disk *d);
int disk_make_ahead(struct disk *d, struct cove_err *e); /* one image */
uint64_t disk_used(const struct disk *d, const char *id, pid_t init);

/*
 * Snapshots: the upper layers of a sandbox as they were at one moment, read-only. The name is that of
 * a directory in state_dir/snapshots; a snapshot of the pool has a subvolume of that name as well,
 * and one without such a directory is a stray.
 */
enum { DISK_BELOW_MAX = 16 };

struct disk_capture {
    const char *id;       /* the sandbox, which stands still */
    int files;            /* its files, where the backend cannot find them again; else -1 */
    uint32_t id_base;     /* its root's user id on the host */
    const char *snapshot; /* the name of the new snapshot */
    const char *below[DISK_BELOW_MAX]; /* snapshots to be merged into it, the topmost first */
    unsigned below_count;
    uint64_t bytes_most; /* of a copy; 0 = no limit */
    bool image;          /* CAPTURE_IMAGE; with `below`: the lowest of these is an image */
};

/* To be called in a child process: it may have to copy all files. After a failure disk_snapshot_drop() removes
 * what was made. */
int disk_snapshot_take(const struct disk *d, const struct disk_capture *c, struct cove_err *e);
/* Opens the directory with a snapshot's upper directories, which mounts.h names. */
int disk_snapshot_open(const struct disk *d, const char *snapshot, int *ret, struct cove_err *e);
void disk_snapshot_drop(const struct disk *d, const char *snapshot); /* its directory too, last */
/* On btrfs data that a sandbox shares with a snapshot counts as the sandbox's, even after the sandbox has
 * overwritten it. So the sandbox's limit grows by what was captured, and shrinks when the snapshot is dropped. */
void disk_adjust_limit(const struct disk *d, const char *id, uint64_t bytes, bool grow);

/* Removes all that sandboxes had on disk, in a child process, so that a million files do not hold the keeper
 * up. Returns the child's pid. */
pid_t disk_sweep_async(const struct disk *d, const char *const ids[], unsigned count,
                       struct cove_err *e);
void disk_sweep(const struct disk *d, const char *id); /* the same here and now */

#endif
