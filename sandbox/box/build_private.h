/* What the two halves of building a sandbox share: build.c in the keeper, build_child.c in the child. */
#ifndef COVE_BOX_BUILD_PRIVATE_H
#define COVE_BOX_BUILD_PRIVATE_H

#include <assert.h>
#include <stdint.h>

#include "cove/err.h"
#include "cove/msg.h"
#include "cove/setup_plan.h"
#include "sandbox/box/cgroup.h"
#include "sandbox/box/disk.h"
#include "sandbox/box/template.h"

struct clone_args;

struct build_parts { /* what the keeper has open for one sandbox while it is made */
    struct cgroup_box cgroup;
    struct cgroup_doors doors;
    struct disk_files files;
    int listen;
    int ready_read, ready_write;
    int go_keeper, go_child; /* socket pair: cove/setup_plan.h */
};

#define NO_BUILD_PARTS                                                                             \
    {                                                                                              \
        { -1, -1, -1 }, { { -1, -1, -1 } }, { .dir = -1 }, -1, -1, -1, -1, -1                      \
    }

static_assert(1 + LAYERS_OPEN_MAX + 1 <= MSG_MAX_FDS, "a template's mounts fit into one message");

enum { BUILD_CHILD_FDS = SETUP_FD_KEEPER + 1 };

struct build_child { /* what the child needs until its execve: it changes nothing but `err` */
    int fds[BUILD_CHILD_FDS]; /* what is to be open in the new program, by number */
    const struct cgroup_doors *doors;
    int exe; /* cove-init */
    char *const *argv, *const *env;
    struct cove_err err; /* code COVE_OK: it has become the new program, or was killed */
};

/* clone3() for a child that shares our memory until its execve. Returns when that has happened, or the child is dead:
 * its pid, or -1 and errno. */
long build_child_start(struct build_child *c, struct clone_args *args);

#endif
