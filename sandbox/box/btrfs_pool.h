/* The pool of the backend "btrfs", between btrfs_pool.c and disk_btrfs.c. */
#ifndef COVE_BOX_BTRFS_POOL_H
#define COVE_BOX_BTRFS_POOL_H

#include <stdbool.h>

#include "cove/err.h"

struct disk;

#define BTRFS_ALL_GROUPS (1ULL << 48) /* quota group 1/0: the parent of all */

/* Mounts the pool and fills in d->pool. Makes an image where there is none that can be mounted. */
int btrfs_pool_open(struct disk *d, struct cove_err *e);
/* The same without making an image or putting one aside. -1: there is no pool. */
int btrfs_pool_open_existing(struct disk *d);
/* Sees to it that the host has room for all of the pool's metadata, from now on. Cheap if nothing is to be done. */
void btrfs_pool_keep_metadata(struct disk *d);
/* Unless for_good, sandboxes live on: the pool stays mounted for the next keeper. */
void btrfs_pool_close(struct disk *d, bool for_good, bool keep_image);

#endif
