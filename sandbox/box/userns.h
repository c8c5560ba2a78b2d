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

#endif
