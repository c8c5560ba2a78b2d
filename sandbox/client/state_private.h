/* The layout of the two files of shared memory, for state.c, state_boxes.c and state_workers.c. */
#ifndef SANDBOX_CLIENT_STATE_PRIVATE_H
#define SANDBOX_CLIENT_STATE_PRIVATE_H

#include "cove/state.h"

struct box_slot {
    _Atomic uint32_t seq; /* record[seq & 1] is the whole one */
    uint32_t reserved;
    struct box_info record[2];
};

struct worker_slot {
    _Atomic uint32_t pid;
    _Atomic int32_t room;
    _Atomic uint64_t beat_ms;
    _Atomic uint64_t counters[STATE_COUNTERS];
};

struct head { /* of either file */
    uint64_t magic;
    uint32_t version;
    uint32_t rows;    /* boxes, or workers without the keeper's own slot, which is the last */
    uint32_t columns; /* tasks per worker */
    _Atomic uint32_t room_turn;
    uint64_t size;
    _Atomic uint32_t policy_generation;
    _Atomic uint32_t keys_generation;
};

struct state {
    struct head *box_head, *worker_head; /* where the two mappings start */
    _Atomic uint32_t *project_hints;     /* slot index + 1, or 0 */
    _Atomic uint32_t *id_hints;
    struct box_slot *boxes;
    struct worker_slot *workers;
    struct state_task *tasks;
    uint32_t hint_count;
};

#endif
