/*
 * Endings: how the latest commands of sandboxes ended, and why, in shared memory (a part of the meters'
 * file). Whichever worker ran a command leaves the record; any worker shows it to the sandbox's owner.
 * Sandboxes share a bucket by the hash of their ids, and a bucket keeps the last ENDINGS_EACH commands: a
 * busy sandbox pushes out few records of others. Only commands that somebody waited for are here;
 * background processes have records and logs of their own, which their init keeps.
 */
#ifndef COVE_ENDINGS_H
#define COVE_ENDINGS_H

#include <stdatomic.h>
#include <stdint.h>

#include "cove/end.h"

enum { ENDINGS_BUCKETS = 256, ENDINGS_EACH = 32, ENDING_COMMAND_MAX = 160 };

struct ending {
    char sandbox[24];
    struct cove_end end;
    uint32_t dialect; /* enum cove_dialect: the API that ran it */
    uint32_t command_bytes;
    /* The beginning of the command as it was sent: whoever shows it takes the secrets out. */
    char command[ENDING_COMMAND_MAX];
};

struct ending_slot {
    _Atomic uint64_t turn; /* odd while it is written; grows, so newer records have larger turns */
    struct ending record;
};

struct endings {
    struct {
        _Atomic uint64_t next;
        struct ending_slot slots[ENDINGS_EACH];
    } buckets[ENDINGS_BUCKETS];
};

void endings_put(struct endings *all, const char *sandbox, uint32_t dialect, const char *command,
                 const struct cove_end *end);
/*
 * The sandbox's next record after `turn` (0: the oldest that is kept). Returns its turn; 0: there is none.
 */
uint64_t endings_next(const struct endings *all, const char *sandbox, uint64_t turn,
                      struct ending *ret);

#endif
