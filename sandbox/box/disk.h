/* The disks of sandboxes: where their own files lie, and how much they may take. */
#ifndef COVE_BOX_DISK_H
#define COVE_BOX_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"

struct disk_size {
    uint64_t bytes, inodes; /* bytes 0: no limit */
};

enum { DISK_READY_MAX = 4 };
enum disk_kind { DISK_TMPFS, DISK_IMAGE };

struct disk_ready { /* one that was made ahead */
    uint32_t number;
    int mount;
};

struct disk {
    int dir; /* state_dir/disk: patterns to copy, and what was made ahead */
    enum disk_kind kind;
    struct disk_size usual; /* of those made ahead */
    struct disk_ready ready[DISK_READY_MAX];
    uint32_t ready_count, last_number;
};

int disk_init(struct disk *d, int state_dir, struct cove_err *e);
void disk_done(struct disk *d);
/* How disks are made from now on. -1: images were asked for and cannot be had here (e says why), it
 * is tmpfs then. */
int disk_configure(struct disk *d, bool image, const struct disk_size *usual, struct cove_err *e);
/* The sandbox's own directory with its layers in it: a detached mount, or without a limit (bytes 0)
 * box_dir itself. */
int disk_make(struct disk *d, const struct disk_size *size, int box_dir, int *ret,
              struct cove_err *e);
bool disk_wants_more(const struct disk *d);
int disk_make_ahead(struct disk *d, struct cove_err *e); /* one */
uint64_t disk_used(int boxes_dir, const char *id, pid_t init);

#endif
