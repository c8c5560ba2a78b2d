/* Removing what a sandbox left on disk. */
#ifndef COVE_BOX_SWEEP_H
#define COVE_BOX_SWEEP_H

#include <sys/types.h>

#include "cove/err.h"

/* Remove a directory tree that a sandbox wrote, however deep and however named. Follows nothing. */
int sweep_tree(int parent_fd, const char *name, struct cove_err *e);
/* The same in a child process, so that a million files do not hold the keeper up. Returns its pid.
 */
pid_t sweep_tree_async(int parent_fd, const char *name, struct cove_err *e);

#endif
