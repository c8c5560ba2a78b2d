/* The user ids of a sandbox. */
#ifndef COVE_BOX_USERNS_H
#define COVE_BOX_USERNS_H

#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"

struct id_range {
    uint32_t base, count; /* inside 0..count-1 is base.. on the host */
};

int userns_write_maps(pid_t pid, const struct id_range *ids, struct cove_err *e);
/* How many ids from `base` on a process's user namespace was given; 0: it is gone, or its ids begin elsewhere. */
uint32_t userns_count(pid_t pid, uint32_t base);

/*
 * While the ids of a new user namespace are not mapped, no process is its root, and execve takes away all capabilities
 * but those of the ambient set. This puts those into it that this process has of `wanted` (a bit for each).
 */
int userns_keep_capabilities(uint64_t wanted, struct cove_err *e);

#endif
