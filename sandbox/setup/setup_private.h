/* What the files of this folder share. */
#ifndef COVE_SETUP_PRIVATE_H
#define COVE_SETUP_PRIVATE_H

#include <stddef.h>

#include "cove/err.h"
#include "sandbox/box/mounts.h"

/* Mounts /proc of the sandbox's own, for this process until setup_mounts() moves it into the new root. */
int setup_proc(struct cove_err *e);
/* All of the file systems, the change to the new root, and what is seen of /proc. */
int setup_mounts(const struct box_mounts *m, struct cove_err *e);
/* The loopback interface, and eth0 by the keeper's rtnetlink requests, if there are any. */
int setup_network(const void *requests, size_t len, struct cove_err *e);

#endif
