/*
 * State in shared memory: what sandboxes there are, whose they are, what runs, and counters.
 *
 *   state          head with the keeper's counters | project hints | id hints | box slots
 *   state.workers  head | worker slots with their counters | tasks
 *
 * The keeper alone writes `state`; all others map it read-only. `state.workers` is written by
 * workers, and any of them may have been taken over: nothing the keeper does depends on what stands
 * there, no size and no index is taken from it, and the keeper does not map it.
 *
 * A box slot holds two copies of its record: the writer fills the idle one and then flips `seq`, so
 * a writer that dies at any instruction leaves the last whole record in place, and a reader never
 * waits. Hints are guesses that speed a lookup up: a reader checks the slot they lead to, and a
 * reader that finds nothing asks the keeper, whose own table is exact.
 */
#ifndef COVE_STATE_H
#define COVE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"
#include "cove/names.h"
#include "cove/text.h"

/* sandbox/README.md draws which state follows which. */
enum box_state {
    BOX_EMPTY,
    BOX_BUILDING, /* its set-up runs */
    BOX_WARM,     /* ready, and belongs to nobody yet */
    BOX_LIVE,     /* a project's current sandbox */
    BOX_AGEING,   /* was a project's; takes no new requests, lives to the end of its time */
    BOX_FROZEN,   /* a project's current sandbox, paused in memory */
    BOX_DYING,    /* being killed and swept */
    BOX_SAVED,    /* saved: an archive that can become a sandbox again; only in state_saved() */
    BOX_ENDED,    /* the record of a sandbox that has ended; only in state_ended() */
};

enum box_flags {
    BOX_OWN_PROJECT = 1 << 0,   /* its id is its project: it is never replaced by a newer one */
    BOX_END_FREEZES = 1 << 1,   /* at dies_at_ms it is frozen instead of killed */
    BOX_FROZEN_AT_END = 1 << 2, /* it was frozen at its end; dies_at_ms is the frozen one's end */
    BOX_CAPTURED = 1 << 3,      /* a snapshot is being taken: it stands still for that time */
    BOX_IS_SAVING = 1 << 4,     /* frozen, and being saved; using it breaks the saving off */
    BOX_IS_WAKING = 1 << 5,     /* saved, and being made a sandbox again */
    BOX_WAKE_FAILED = 1 << 6,   /* saved: the last attempt to wake it failed */
};

struct box_info {
    uint32_t state;      /* enum box_state */
    uint32_t generation; /* grows on reuse of the slot, so an old handle never finds a new box */
    uint32_t init_pid;   /* on the host */
    uint32_t id_base;    /* its root's user id on the host */
    uint64_t init_start; /* start time of that pid, in clock ticks: tells a reused pid */
    uint64_t created_unix_ms; /* when it became the project's */
    uint64_t created_ms;      /* the same in CLOCK_BOOTTIME, as are the times below */
    uint64_t reuse_until_ms;
    uint64_t dies_at_ms;
    uint64_t lifetime_ms; /* as claimed; begins again when a sandbox frozen at its end wakes */
    uint64_t frozen_ms;   /* since when it is frozen; 0 = it is not */
    uint64_t end_limit;   /* figure that goes with end_cause */
    uint32_t end_cause;   /* enum end_cause: why it was ended; stays until the slot is used again */
    uint32_t flags;       /* enum box_flags */
    uint32_t dialect;     /* enum cove_dialect that claimed it */
    uint32_t keep_ended_s;     /* how long a record of it is kept after its end */
    char key[COVE_KEY_ID_MAX]; /* public name of the key it was claimed with, "" = none */
    char id[24];
    char tenant[COVE_TENANT_MAX];
    char project[COVE_PROJECT_MAX];
    char template[COVE_TEMPLATE_MAX];
    char snapshot[24]; /* the snapshot that it was made of; "" = the template alone */
};

/* Is it frozen in memory or saved in the store, so that nothing in it runs? */
static inline bool box_is_paused(const struct box_info *b)
{
    return b->state == BOX_FROZEN || b->state == BOX_SAVED;
}

enum state_counter {
    COUNT_REQUESTS,
    COUNT_REPLIES_2XX,
    COUNT_REPLIES_4XX,
    COUNT_REPLIES_5XX,
    COUNT_OVERLOADED, /* 503: every long slot taken */
    COUNT_SPAWNS,
    COUNT_REFUSALS, /* by policy, before running */
    COUNT_DENIALS,  /* by policy, at exec time */
    COUNT_DEADLINES,
    COUNT_OOM,
    COUNT_OUTPUT_LIMIT,
    COUNT_CLIENT_GONE,
    COUNT_OUTPUT_BYTES,
    COUNT_BOXES_BUILT,
    COUNT_BOXES_CLAIMED,
    COUNT_BOXES_CLAIMED_COLD, /* the pool was empty */
    COUNT_BOXES_EXPIRED,
    COUNT_BOXES_RETIRED,
    COUNT_BOXES_LOST, /* init died under it */
    COUNT_WORKER_DEATHS,
    COUNT_AUTH_FAILURES,  /* 401: a wrong key, or no key */
    COUNT_LIMIT_REQUESTS, /* 429: a tenant's or key's quota */
    COUNT_LIMIT_SANDBOXES,
    COUNT_LIMIT_PROCESSES,
    COUNT_BYTES_IN,
    COUNT_BYTES_OUT,
    COUNT_PIDS_LIMIT,
    COUNT_DISK_LIMIT,
    COUNT_LIMIT_DISK, /* 429: a tenant's quota of disk */
    STATE_COUNTERS = 32
};

struct state_task {        /* the request that one thread of a worker serves; one cache line */
    _Atomic uint32_t busy; /* 0: free. Written last when taken, first when given back */
    uint32_t box;
    uint32_t generation;
    uint32_t proc;
    uint64_t since_ms;   /* CLOCK_BOOTTIME */
    char request_id[40]; /* nginx's has 32 digits */
    char what[24];
};

struct state; /* a mapping */

/* For the keeper: makes the file or takes it over. *ret_kept tells whether sandboxes of an earlier keeper are in
 * it. */
int state_open(const char *path, gid_t worker_gid, uint32_t boxes, uint32_t workers,
               uint32_t tasks_per_worker, struct state **ret, bool *ret_kept, struct cove_err *e);
/* For workers, helpers and the CLI: maps what the keeper made. */
int state_attach(const char *path, struct state **ret, struct cove_err *e);
void state_close(struct state *s);

/*
 * Saved sandboxes have a table of their own, <path>.saved, of the same shape: records with the state
 * BOX_SAVED, found by the functions below. NULL where there is none. The keeper makes it and gives
 * it to its state; state_attach() attaches both.
 */
struct state *state_saved(const struct state *s);
void state_give_saved(struct state *s, struct state *saved);
#define STATE_SAVED_SUFFIX ".saved"
/* Likewise <path>.ended, records of sandboxes that have ended: their state is BOX_ENDED, and dies_at_ms is when
 * they ended. */
struct state *state_ended(const struct state *s);
void state_give_ended(struct state *s, struct state *ended);
#define STATE_ENDED_SUFFIX ".ended"

uint32_t state_box_count(const struct state *s);
void state_box_read(const struct state *s, uint32_t index, struct box_info *ret);
/* For the keeper alone. */
void state_box_write(struct state *s, uint32_t index, const struct box_info *info);
void state_rebuild_hints(struct state *s);

/* Lookups without a lock. They find sandboxes in the states LIVE, FROZEN, SAVED and ENDED; by id also AGEING. */
bool state_find_project(const struct state *s, const char *tenant, const char *project,
                        uint32_t *ret_index, struct box_info *ret);
/* Finds a sandbox of any tenant: for callers that have shown a token of that very sandbox. */
bool state_find_id_any(const struct state *s, const char *id, uint32_t *ret_index,
                       struct box_info *ret);
bool state_find_id(const struct state *s, const char *tenant, const char *id, uint32_t *ret_index,
                   struct box_info *ret);

/* Workers. A slot belongs to one live worker process. The keeper calls state_worker_pid() and
   state_worker_release(); the keeper does not map the memory that the other functions use. */
uint32_t state_worker_count(const struct state *s);
void state_worker_claim(struct state *s, uint32_t worker, uint32_t pid);
uint32_t state_worker_pid(const struct state *s, uint32_t worker);
/* For the keeper: frees the slot of a dead worker. Returns how many requests the worker was serving, according
   to its own slots. */
uint32_t state_worker_release(struct state *s, uint32_t worker);
void state_worker_beat(struct state *s, uint32_t worker);
uint64_t state_worker_beat_ms(const struct state *s, uint32_t worker);
/* Changes how many more long requests a worker can take. A worker changes only its own number; the others read
 * it. Returns the number before. */
int state_worker_room(struct state *s, uint32_t worker, int by);
enum { STATE_ROOM_CLOSED = 1 << 20 }; /* subtracted while the worker takes nothing new */
uint32_t state_worker_free(const struct state *s, uint32_t worker);
bool state_has_room(const struct state *s);
/* A futex whose value grows when any worker's room may have changed. */
_Atomic uint32_t *state_room_turn(struct state *s);
/* NULL: there is no such worker or task. */
struct state_task *state_task(struct state *s, uint32_t worker, uint32_t task);

/* Counters: each process adds to its own; the keeper is worker STATE_KEEPER. The sum over all can be read
   after state_attach(). */
#define STATE_KEEPER UINT32_MAX
void state_count(struct state *s, uint32_t worker, enum state_counter c, uint64_t n);
uint64_t state_counter_sum(const struct state *s, enum state_counter c);

/* The generation of the policy: the keeper raises it after it has put a validated bundle in place. */
uint32_t state_policy_generation(const struct state *s);
void state_policy_raise(struct state *s);
/* Likewise for keys. */
uint32_t state_keys_generation(const struct state *s);
void state_keys_raise(struct state *s);

#endif
