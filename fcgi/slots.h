/*
 * Long slots: how many requests that run commands or stream may be under way. Each worker has its
 * own, and tells the others through shared memory whether it has room. A thread waits for a
 * connection only with a slot promised to it, whatever the request will be; without one only when
 * no worker has room. So a long request is refused when all are full, and not because it came to
 * the wrong one.
 */
#ifndef COVE_FCGI_SLOTS_H
#define COVE_FCGI_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cove/state.h"

struct slots {
    struct state *state; /* NULL in tests: this worker is alone */
    uint32_t worker;
    atomic_int free;     /* long slots that are neither taken nor promised */
    atomic_int brief;    /* of the short threads, how many more may wait for an init */
    atomic_uint waiting; /* threads that wait for a long slot */
};

/* count: for long requests; brief: of the other threads, for short requests that talk to an init. */
void slots_init(struct slots *s, struct state *state, uint32_t worker, int count, int brief);
void slots_close(struct slots *s); /* this worker takes nothing new */

enum slot_answer {
    SLOT_PROMISED, /* the next request may be long: slots_take() or slots_withdraw() follows */
    SLOT_NONE,     /* no worker has room */
    SLOT_LATER,    /* another worker has room: a while has passed, ask again */
};
enum slot_answer slots_ask(struct slots *s);

/* Takes a slot for a long request: the promised one, or else any that is free. *promised becomes false. */
bool slots_take(struct slots *s, bool *promised);
void slots_release(struct slots *s); /* what was taken */
/*
 * The request is short but talks to an init, which may be in hostile hands and answer late: it must not
 * hold the last threads either. A brief slot if there is one, else a long one.
 */
enum slot_kind { SLOT_KIND_NONE, SLOT_KIND_BRIEF, SLOT_KIND_LONG };
enum slot_kind slots_take_brief(struct slots *s, bool *promised);
void slots_release_kind(struct slots *s, enum slot_kind kind);

/* Gives a promised slot back, because the request is short or none came. */
void slots_withdraw(struct slots *s, bool *promised);

bool slots_anywhere(const struct slots *s); /* has any worker room? */
/* a number that grows when the answer of slots_anywhere() may have changed */
uint32_t slots_turn(const struct slots *s);
void slots_wait(const struct slots *s, uint32_t turn, uint32_t ms); /* for it to grow */

#endif
