/* Layers of templates: trees of files in state_dir/layers, each named by the digest of its content. */
#ifndef COVE_BOX_LAYER_H
#define COVE_BOX_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/err.h"
#include "sandbox/box/template.h"
#include "sandbox/box/userns.h"

struct layer_limits { /* a layer that exceeds them is refused */
    uint64_t bytes, entries;
};

/* Opens state_dir/layers, or makes it. Several processes may make layers at a time, but none while another one
 * removes layers: the lock is held until the descriptor is closed. */
enum layers_lock { LAYERS_UNLOCKED, LAYERS_SHARED, LAYERS_ALONE };
int layers_open(int state_dir, enum layers_lock lock, int *ret, struct cove_err *e);

/* Makes a new tree beside the layers, which is no layer until layer_keep(). */
int layer_begin(int layers, char name[LAYER_NAME_LEN + 1], int *ret_tree, struct cove_err *e);
struct layer_watch { /* a function that hears now and then how much of the archive was read */
    void (*tell)(void *arg, uint64_t bytes);
    void *arg;
};

/* A directory with this attribute is no member of the archive, only a part of members' names: its mode and owner are
 * those that the layers below give it. The overlay shows the attribute to nobody. */
#define LAYER_IMPLIED "user.overlay.implied"

/* Unpacks an archive (tar in any compression, cpio, zip) into a tree. The archive is not trusted: a child
 * process reads it, with the ids of a sandbox and the tree as its root. */
int layer_unpack(int tree, int archive, const struct id_range *ids,
                 const struct layer_limits *limits, const struct layer_watch *watch,
                 struct cove_err *e);
/* Makes the tree the layer of its digest, or removes it if that layer exists already and is not marked as damaged. */
int layer_keep(int layers, const char *name, char digest[LAYER_NAME_LEN + 1], struct cove_err *e);
int layer_digest(int tree, char digest[LAYER_NAME_LEN + 1], struct cove_err *e);

/* A file LAYER_DAMAGED<digest> beside the layers says that the layer of that digest is damaged: the next layer_keep() of
 * that digest replaces it. The damaged tree is then LAYER_REPLACED<digest>-<id>, as long as sandboxes run on it. */
#define LAYER_DAMAGED  ".damaged-"
#define LAYER_REPLACED ".replaced-"
int layer_mark(int layers, const char *digest, bool is_damaged, struct cove_err *e);

/* unpack.c: runs in that child. */
int unpack_archive(int archive, const struct layer_limits *limits, struct cove_err *e);

#endif
