/* Copying the upper layer of a sandbox. */
#ifndef COVE_BOX_TREE_COPY_H
#define COVE_BOX_TREE_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/err.h"

struct tree_copy {
    uint32_t id_shift;   /* subtracted from each owner: 0 where ids on disk are those inside */
    bool is_lowest;      /* nothing lies below `to` */
    uint64_t bytes_most; /* of data that is copied; more is COVE_LIMIT. 0 = no limit */
    uint64_t bytes;      /* out: how many were copied, shared extents included */
};

/*
 * Copies the upper layer `from` of an overlay over the directory `to`, which is empty or another upper
 * layer: whiteouts, opaque directories, modes, owners, times, user xattrs, ACLs and hard links come along.
 * The content of `from` is not trusted: no link is followed, and no path in it is looked up. Nobody may
 * change `from` meanwhile.
 */
int tree_copy_over(int from, int to, struct tree_copy *c, struct cove_err *e);
/* Does the directory hide the directories of the layers below? */
bool tree_is_opaque(int dir);

#endif
