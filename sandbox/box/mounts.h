/* The mounts of a sandbox. */
#ifndef COVE_BOX_MOUNTS_H
#define COVE_BOX_MOUNTS_H

#include <stdbool.h>

#include "cove/err.h"
#include "sandbox/box/template.h"
#include "sandbox/box/userns.h"

struct box_mounts { /* detached mounts the keeper makes and the sandbox's set-up puts in place */
    int files;      /* the sandbox's own directory: up, work, usr-up, usr-work */
    int root;       /* the template, ids mapped */
    int usr;        /* the host's /usr, ids mapped, or -1 */
    int dev;        /* a tmpfs with device nodes */
};

/* `files`: a directory, or a mount of the sandbox's own that it then takes (disk). */
int mounts_prepare(const struct template *t, int files, bool is_mount, int userns_fd,
                   const struct id_range *ids, struct box_mounts *ret, struct cove_err *e);
void mounts_close(struct box_mounts *m);
/* In the child: all of it, up to and including pivot_root. */
int mounts_enter(struct box_mounts *m, struct cove_err *e);

#endif
