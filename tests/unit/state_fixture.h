/* The table of sandboxes without a keeper: for tests that look sandboxes up. */
#ifndef STATE_FIXTURE_H
#define STATE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cove/state.h"

/* Makes a table for `slots` sandboxes. Its files are removed at once: the mapping stays until state_close(). */
static inline int state_fixture(uint32_t slots, struct state **ret)
{
    char dir[] = "/tmp/cove-state-XXXXXX", path[64], workers[64];
    bool kept;

    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/state", dir);
    snprintf(workers, sizeof(workers), "%s/state.workers", dir);
    if (state_open(path, getgid(), slots, 1, 1, ret, &kept, NULL) < 0)
        return -1;
    unlink(path);
    unlink(workers);
    return rmdir(dir);
}

#endif
