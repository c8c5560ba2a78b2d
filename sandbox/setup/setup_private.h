/* What the files of this folder share. */
#ifndef COVE_SETUP_PRIVATE_H
#define COVE_SETUP_PRIVATE_H

#include <stddef.h>

#include "cove/err.h"
#include "sandbox/box/mounts.h"

/* Mounts /proc of the sandbox's own. */
int setup_proc(struct cove_err *e);
/* All of /dev, and what is seen of /proc; takes the right to make namespaces away. */
int setup_dev(int dev, struct cove_err *e);
/* The root, into which /proc and /dev are moved, and the change to it. */
int setup_root(const struct box_mounts *m, struct cove_err *e);
/* The loopback interface, and eth0 by the keeper's rtnetlink requests, if there are any. */
int setup_network(const void *requests, size_t len, struct cove_err *e);

#endif
