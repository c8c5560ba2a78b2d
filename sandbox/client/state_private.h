/* The layout of the two files of shared memory, for state.c, state_boxes.c and state_workers.c. */
#ifndef SANDBOX_CLIENT_STATE_PRIVATE_H
#define SANDBOX_CLIENT_STATE_PRIVATE_H

#include "cove/state.h"

struct box_slot {
    _Atomic uint32_t seq; /* record[seq & 1] is the valid copy */
    uint32_t reserved;
    struct box_info record[2];
};

struct worker_slot {
    _Atomic uint32_t pid;
    _Atomic int32_t room;
    _Atomic uint64_t beat_ms;
    _Atomic uint64_t counters[STATE_COUNTERS];
};

/* How many of each thing there are. The keeper writes these numbers into `state`, which nobody else
   can write. Every process copies them once when it opens the files and uses only its copy. */
struct geometry {
    uint32_t boxes, workers, tasks; /* tasks: per worker */
};

struct box_head { /* where `state` begins */
    uint64_t magic;
    uint32_t version;
    struct geometry geometry;
    _Atomic uint32_t policy_generation;
    _Atomic uint32_t keys_generation;
    _Atomic uint64_t keeper_counters[STATE_COUNTERS];
};

struct worker_head { /* where `state.workers` begins */
    _Atomic uint32_t room_turn;
};

struct state {
    struct geometry geometry;
    size_t box_bytes, worker_bytes; /* of the two files */

    struct box_head *box_head;       /* where the mapping of `state` starts */
    _Atomic uint32_t *project_hints; /* slot index + 1, or 0 */
    _Atomic uint32_t *id_hints;
    struct box_slot *boxes;
    uint32_t hint_count; /* a power of two */

    /*
     * The keeper never maps `state.workers`: a worker that was taken over could cut the file short,
     * and touching a page beyond its end would kill the keeper. The keeper has a descriptor instead
     * and uses pread() and pwrite(). All others have the mapping and no descriptor.
     */
    int workers_fd;                  /* open in the keeper; -1 in all other processes */
    size_t workers_at, tasks_at;     /* offsets in `state.workers` */
    struct worker_head *worker_head; /* NULL in the keeper, like the two below */
    struct worker_slot *workers;
    struct state_task *tasks;

    struct state *saved; /* the table of saved sandboxes, or NULL */
    struct state *ended; /* likewise the records of ended ones */
};

#endif
