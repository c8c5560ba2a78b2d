/* What a sandbox uses right now, read from its cgroups of v2, and of v1 where that has the controllers. */
#ifndef CLI_USAGE_H
#define CLI_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/state.h"

struct box_usage {
    uint64_t cpu_us; /* since it was made */
    uint64_t memory_bytes, pids;
};

bool usage_of(const struct box_info *box, struct box_usage *ret); /* false: it is gone */

#endif
