/* What the two halves of building a sandbox share: build.c in the keeper, build_child.c in the child. */
#ifndef COVE_BOX_BUILD_PRIVATE_H
#define COVE_BOX_BUILD_PRIVATE_H

#include <assert.h>
#include <stdint.h>

#include "cove/msg.h"
#include "sandbox/box/cgroup.h"
#include "sandbox/box/disk.h"
#include "sandbox/box/template.h"

struct build_args;

struct build_parts { /* what the child finds open, beside what the keeper has anyway */
    struct cgroup_box cgroup;
    struct cgroup_doors doors;
    struct disk_files files;
    int listen;
    int ready_read, ready_write;
    int go_keeper, go_child; /* socket pair: "your ids are mapped, here are your mounts" */
};

#define NO_BUILD_PARTS                                                                             \
    {                                                                                              \
        { -1, -1, -1 }, { { -1, -1, -1 } }, { .dir = -1 }, -1, -1, -1, -1, -1                      \
    }

/* The keeper's word to the child that its ids are mapped. */
struct build_go { /* beside it in the message: files, dev, the layers of root, the layers of usr */
    uint32_t root_count, usr_count;
};

static_assert(2 + LAYERS_OPEN_MAX + 1 <= MSG_MAX_FDS, "a template's mounts fit into one message");

/* In the child: ends by becoming init, or by telling over p->ready_write why it cannot. */
void build_child(const struct build_parts *p, const struct build_args *args);

#endif
