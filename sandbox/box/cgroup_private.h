/* What cgroup.c and cgroup_corner.c share. */
#ifndef COVE_BOX_CGROUP_PRIVATE_H
#define COVE_BOX_CGROUP_PRIVATE_H

#include "sandbox/box/cgroup.h"

extern const char *const cgroup_controller_names[CGROUP_CONTROLLERS];

/* Makes a directory, or opens it if it exists. */
int cgroup_make_dir(int parent, const char *name, int *ret_fd, struct cove_err *e);
int cgroup_set_number(int dir, const char *file, uint64_t n, struct cove_err *e);
/* Converts a weight of v2 into shares of v1. */
uint64_t cgroup_shares_of(uint64_t weight);

#endif
