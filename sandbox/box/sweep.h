/* Removing what a sandbox left on disk. */
#ifndef COVE_BOX_SWEEP_H
#define COVE_BOX_SWEEP_H

#include "cove/err.h"

/* Remove a directory tree that a sandbox wrote, however deep and however named. Follows nothing. */
int sweep_tree(int parent_fd, const char *name, struct cove_err *e);

#endif
