/* The life of a sandbox: claimed, made, kept ready, paused, expired, ended, found again after a restart. */
#ifndef COVE_KEEPER_LIFE_H
#define COVE_KEEPER_LIFE_H

#include "cove/end.h"
#include "cove/limits.h"
#include "cove/msg_keeper.h"
#include "cove/state.h"
#include "sandbox/box/disk.h"

struct box;
struct keeper;
struct snapshot;
struct waiter;

/* ------------------------------------------------------------------ claim.c */

struct claim {
    const struct keeper_claim *args;
    int attributes; /* a sealed memfd, or -1 */
};
void claim_box(struct keeper *k, const struct claim *c, const struct waiter *w);
void claim_go_live(struct keeper *k, uint32_t index); /* a built sandbox goes to its project */

/* ------------------------------------------------------------------ creation.c */

/* Begin a sandbox in a free slot. After a failure death.c makes the slot free again. With a snapshot
 * the template is that of the snapshot. */
int creation_begin(struct keeper *k, const char *template_name, const struct snapshot *snapshot,
                   const struct limits *limits, uint32_t *ret, struct cove_err *e);
void creation_on_ready(struct keeper *k, uint32_t index);
uint64_t creation_tick(struct keeper *k, uint64_t now, uint64_t next); /* ends set-ups that hang */
/* The sandbox runs, and so does everything that its template starts in it: it goes to the project that it is
 * promised to, or waits in the pool. */
void creation_hand_out(struct keeper *k, uint32_t index);

/* A free slot for the sandbox `id`, whose files come from an archive. */
int creation_take_slot(struct keeper *k, const char *template_name, const struct snapshot *snapshot,
                       const struct limits *limits, const char *id, uint32_t *ret,
                       struct cove_err *e);
int creation_make_files(struct keeper *k, uint32_t index, struct disk_files *ret,
                        struct cove_err *e);
/* Begins to build that sandbox while these files are still being unpacked. */
int creation_build_ahead(struct keeper *k, uint32_t index, const struct disk_files *files,
                         struct build_ahead *ret, struct cove_err *e);
/* The files are there: the sandbox is finished. */
int creation_go_on(struct keeper *k, uint32_t index, const struct disk_files *files,
                   const struct build_ahead *ahead, struct cove_err *e);

/* ------------------------------------------------------------------ pool.c */

/* Finds a sandbox of the pool in this state (warm, or being built) which can be brought to these limits. */
int pool_find_spare(const struct keeper *k, enum box_state state, const char *template_name,
                    const struct limits *limits, uint32_t *ret);
/* Begin at most one sandbox. Returns when to call again: the earlier of `next` and its own time. */
uint64_t pool_refill(struct keeper *k, uint64_t now, uint64_t next);
/* After a change of limits: ends those sandboxes of the pool that cannot be brought to the new ones. */
void pool_review(struct keeper *k);
void pool_review_one(struct keeper *k, uint32_t index);

/* ------------------------------------------------------------------ pool_demand.c */

void demand_note(struct keeper *k, const char *template_name); /* a new sandbox of it was claimed */
void demand_forget(struct keeper *k, const char *template_name); /* no sandbox can be made of it */
uint64_t demand_target(const struct keeper *k, const char *template_name, uint64_t now);
uint64_t demand_spare(const struct keeper *k, const char *template_name); /* ready or being built */
/* The template of which one more sandbox is to be made ahead; NULL: none is. */
const char *demand_next(const struct keeper *k, uint64_t now);
/* A warm sandbox beyond the number that is to be kept ready, or NULL. */
const struct box *demand_surplus(const struct keeper *k, uint64_t now);

/* ------------------------------------------------------------------ life.c */

void life_retire(struct keeper *k, const struct keeper_retire *args, const struct waiter *w);
int life_set_network(struct keeper *k, const struct keeper_network *args, struct cove_err *e);
int life_extend(struct keeper *k, const struct keeper_extend *args, struct cove_err *e);
/* Freeze, or thaw if to_frozen is false. */
int life_freeze(struct keeper *k, const struct keeper_extend *args, bool to_frozen,
                const struct waiter *w, struct cove_err *e);
void life_freeze_tick(struct keeper *k, uint32_t index, uint64_t now);
/* A frozen sandbox goes on, because somebody uses it. lifetime_ms 0: its end stays where it was; a sandbox
 * that was frozen at its end gets its claimed lifetime once more. */
int life_thaw(struct keeper *k, uint32_t index, uint64_t lifetime_ms, struct cove_err *e);
void life_keep_frozen(struct keeper *k, uint32_t index); /* its end has come, and it stays frozen */
int life_freeze_at_end(struct keeper *k, uint32_t index, struct cove_err *e);
int life_set_attributes(struct keeper *k, const struct keeper_which *args, int fd,
                        struct cove_err *e);

/* ------------------------------------------------------------------ attributes.c */

#define ATTRIBUTES_DIR "attributes" /* below run_dir */

bool attributes_are_sealed(int fd); /* a memfd that nobody can change, and not too large */
int attributes_copy(struct keeper *k, const char *id, int fd, struct cove_err *e);
void attributes_remove(const struct keeper *k, const char *id);
/* The sandbox has ended: takes the secrets out of its attributes, and removes the attributes altogether if
 * they are still long. */
void attributes_shorten(struct keeper *k, const char *id);
/* Copy the attributes, without their secrets (see core_attributes.h), to a file in `dir` (saved_write()),
 * and back from there. */
int attributes_keep(const struct keeper *k, const char *id, int dir, bool *changed,
                    struct cove_err *e);
int attributes_restore(struct keeper *k, const char *id, int dir, struct cove_err *e);

/* ------------------------------------------------------------------ expiry.c */

/* Expire sandboxes, retry removals, refill the pool. Returns when it wants to be called again, in
 * CLOCK_BOOTTIME ms. */
uint64_t expiry_tick(struct keeper *k);
/* The next moment at which something is due for a tenant's sandbox: its end, or its way to the store. */
uint64_t expiry_due_ms(const struct keeper *k, struct box *b);

static inline uint64_t earliest_ms(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ------------------------------------------------------------------ death.c */

/* Sends SIGKILL to everything in the sandbox. death_on_exit() does the rest when the kernel says that init
 * is gone. */
void death_begin(struct keeper *k, uint32_t index, enum end_cause cause, uint64_t limit);
void death_on_exit(struct keeper *k, uint32_t index);
void death_reap(struct keeper *k); /* collects child processes that have removed files */
/* Removes control socket, cgroup and files of dead sandboxes. The next call tries again what cannot be
 * removed yet. */
void death_remove_remains(struct keeper *k);
void death_of_all(struct keeper *k); /* and wait until nothing is left */

/* ------------------------------------------------------------------ ended.c */

int ended_open(struct keeper *k, struct cove_err *e); /* once, before sandboxes are adopted */
/* Keeps a record of the ended sandbox, if its dialect wants one and its owner did not delete it. False: no
 * record is kept. */
bool ended_put(struct keeper *k, const struct box_info *box, enum end_cause cause);
bool ended_knows(const struct keeper *k, const char *id);
bool ended_knows_project(const struct keeper *k, const char *tenant, const char *project);
void ended_retire(struct keeper *k, const struct keeper_retire *args);
void ended_tick(struct keeper *k, uint64_t now);

/* ------------------------------------------------------------------ adopt.c */

/* After a restart: takes over sandboxes that live, ends those that are half-made, and removes what belongs
 * to none. */
int adopt_boxes(struct keeper *k, bool kept, struct cove_err *e);

#endif
