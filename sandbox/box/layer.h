/* Layers of templates: trees of files in state_dir/layers, each named by the digest of what is in
 * it. */
#ifndef COVE_BOX_LAYER_H
#define COVE_BOX_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/err.h"
#include "sandbox/box/template.h"
#include "sandbox/box/userns.h"

struct layer_limits { /* of one layer; what is beyond them is refused */
    uint64_t bytes, entries;
};

/* state_dir/layers, made if it is not there. Several processes may make layers, but none while one takes
 * layers away: the lock is held until the descriptor is closed. */
enum layers_lock { LAYERS_UNLOCKED, LAYERS_SHARED, LAYERS_ALONE };
int layers_open(int state_dir, enum layers_lock lock, int *ret, struct cove_err *e);

/* A new tree beside the layers, which nobody sees until layer_keep(). */
int layer_begin(int layers, char name[LAYER_NAME_LEN + 1], int *ret_tree, struct cove_err *e);
struct layer_watch { /* is told now and then how much of the archive has been read */
    void (*tell)(void *arg, uint64_t bytes);
    void *arg;
};

/* Unpack an archive (tar in any compression, cpio, zip) into a tree. What is in the archive is not
 * trusted: a child process reads it, with the ids of a sandbox and the tree for its root. */
int layer_unpack(int tree, int archive, const struct id_range *ids,
                 const struct layer_limits *limits, const struct layer_watch *watch,
                 struct cove_err *e);
/* The tree becomes the layer of its digest, or goes if there is that layer already. */
int layer_keep(int layers, const char *name, char digest[LAYER_NAME_LEN + 1], struct cove_err *e);
int layer_digest(int tree, char digest[LAYER_NAME_LEN + 1], struct cove_err *e);

/* unpack.c: in that child. */
int unpack_archive(int archive, const struct layer_limits *limits, struct cove_err *e);

#endif
