/* Promises are known to this worker only; other workers see how many slots are not taken. */
#include "fcgi/slots.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* a wait ends after this time, because a worker that was killed cannot tell that it has no room any more */
enum { LATER_MS = 100 };

/* ------------------------------------------------------------------ what all workers share */

static void next_turn(const struct slots *s)
{
    _Atomic uint32_t *turn = s->state ? state_room_turn(s->state) : NULL;

    if (!turn)
        return;
    atomic_fetch_add(turn, 1);
    syscall(SYS_futex, turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t slots_turn(const struct slots *s)
{
    return s->state ? atomic_load(state_room_turn(s->state)) : 0;
}

void slots_wait(const struct slots *s, uint32_t turn, uint32_t ms)
{
    const struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    if (s->state)
        syscall(SYS_futex, state_room_turn(s->state), FUTEX_WAIT, turn, &time, NULL, 0);
}

bool slots_anywhere(const struct slots *s)
{
    return s->state && state_has_room(s->state);
}

/* Other workers need to hear only when the room here changes between none and some. */
static void change_room(struct slots *s, int by)
{
    int before = s->state ? state_worker_room(s->state, s->worker, by) : 0;

    if ((before > 0) != (before + by > 0))
        next_turn(s);
}

/* ------------------------------------------------------------------ this worker's */

void slots_init(struct slots *s, struct state *state, uint32_t worker, int count, int brief)
{
    s->state = state;
    s->worker = worker;
    atomic_init(&s->free, count);
    atomic_init(&s->brief, brief);
    atomic_init(&s->waiting, 0);
    change_room(s, count);
}

void slots_close(struct slots *s)
{
    change_room(s, -STATE_ROOM_CLOSED);
    next_turn(s); /* wakes threads that wait, so that they look again */
}

static bool take_one(atomic_int *count)
{
    if (atomic_fetch_sub(count, 1) > 0)
        return true;
    atomic_fetch_add(count, 1);
    return false;
}

static bool take_free(struct slots *s)
{
    return take_one(&s->free);
}

static void put_free(struct slots *s)
{
    atomic_fetch_add(&s->free, 1);
    if (atomic_load(&s->waiting) > 0)
        next_turn(s);
}

enum slot_answer slots_ask(struct slots *s)
{
    uint32_t turn = slots_turn(s); /* read before looking: a change after this ends the wait */
    enum slot_answer answer = SLOT_LATER;

    atomic_fetch_add(&s->waiting, 1);
    if (take_free(s))
        answer = SLOT_PROMISED;
    else if (!slots_anywhere(s))
        answer = SLOT_NONE;
    else
        slots_wait(s, turn, LATER_MS);
    atomic_fetch_sub(&s->waiting, 1);
    return answer;
}

bool slots_take(struct slots *s, bool *promised)
{
    if (!*promised && !take_free(s))
        return false;
    *promised = false;
    change_room(s, -1);
    return true;
}

void slots_release(struct slots *s)
{
    change_room(s, 1);
    put_free(s);
}

enum slot_kind slots_take_brief(struct slots *s, bool *promised)
{
    if (take_one(&s->brief)) {
        slots_withdraw(s, promised);
        return SLOT_KIND_BRIEF;
    }
    return slots_take(s, promised) ? SLOT_KIND_LONG : SLOT_KIND_NONE;
}

void slots_release_kind(struct slots *s, enum slot_kind kind)
{
    if (kind == SLOT_KIND_BRIEF)
        atomic_fetch_add(&s->brief, 1);
    else if (kind == SLOT_KIND_LONG)
        slots_release(s);
}

void slots_withdraw(struct slots *s, bool *promised)
{
    if (*promised)
        put_free(s);
    *promised = false;
}
