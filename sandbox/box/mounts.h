/* The mounts of a sandbox. */
#ifndef COVE_BOX_MOUNTS_H
#define COVE_BOX_MOUNTS_H

#include <stdbool.h>

#include "cove/err.h"
#include "cove/names.h"
#include "sandbox/box/template.h"
#include "sandbox/box/userns.h"

/*
 * A sandbox's own files: an upper and a work directory for the overlay that is / and for the one
 * that is /usr. Ids in them are those inside the sandbox; the mount maps them.
 */
#define UPPER_ROOT "up"
#define WORK_ROOT  "work"
#define UPPER_USR  "usr-up"
#define WORK_USR   "usr-work"
/* In a snapshot that is an image (CAPTURE_IMAGE) only this directory is used. */
#define UPPER_IMAGE UPPER_ROOT "/" COVE_IMAGE_DIR

struct box_mounts { /* detached mounts: the keeper makes them, the sandbox's set-up attaches them */
    int files;
    struct layers root, usr;
};

#define NO_MOUNTS                                                                                  \
    {                                                                                              \
        .files = -1                                                                                \
    }

/* `files`: a directory of a host's file system, or (is_mount) a detached mount of the sandbox's
 * own. The descriptor stays the caller's. */
int mounts_prepare(const struct template *t, int files, bool is_mount, int userns_fd,
                   const struct id_range *ids, struct box_mounts *ret, struct cove_err *e);
/* Makes a detached tmpfs with device nodes, for /dev. */
int mounts_make_dev(const struct id_range *ids, int *ret, struct cove_err *e);
/* Makes a detached mount of a sandbox's files whose ids are those of the user namespace. */
int mounts_map_files(int files, int userns_fd, bool read_only, int *ret, struct cove_err *e);
void mounts_close(struct box_mounts *m);

#endif
