/* Project quotas of a file system (ext4, XFS): a number that files and directories carry, and limits
 * for all that carry the same number. `fd` is any directory of the file system. */
#ifndef COVE_BOX_PROJECT_H
#define COVE_BOX_PROJECT_H

#include <stdint.h>

#include "cove/err.h"

struct project_quota {
    uint64_t limit_bytes, limit_inodes; /* the limits that statfs() of the directory shows */
    uint64_t hard_limit_bytes, hard_limit_inodes; /* what the kernel enforces; 0 = none */
    uint64_t used_bytes, used_inodes;
};

/* Does the kernel keep limits of projects on this file system? -1: no, e says why. */
int project_check(int fd, struct cove_err *e);
/* -1 and errno. A project that never was used has zeros everywhere. */
int project_get(int fd, uint32_t project, struct project_quota *ret);
/* Sets the limits of q; its figures of use are ignored. */
int project_set(int fd, uint32_t project, const struct project_quota *q);
/* Gives an empty directory to the project, and with it all that will be made below. */
int project_mark(int dir, uint32_t project);

#endif
