/*
 * Workers in shared memory: their slots, tasks and counters.
 *
 * `state.workers` is written by processes that talk to clients. Workers and the operators' tool map the file and
 * use its numbers for figures and for choosing a worker only. The keeper reads single words through its
 * descriptor: which requests a dead worker was serving, for the log.
 */
#include <assert.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/client/state_private.h"

/* The slot of a worker, for all processes but the keeper. NULL: the number is out of range. */
static struct worker_slot *slot_of(const struct state *s, uint32_t worker)
{
    return s->workers && worker < s->geometry.workers ? &s->workers[worker] : NULL;
}

uint32_t state_worker_count(const struct state *s)
{
    return s->geometry.workers;
}

void state_worker_claim(struct state *s, uint32_t worker, uint32_t pid)
{
    struct worker_slot *slot = slot_of(s, worker);

    if (!slot)
        return;
    state_worker_beat(s, worker);
    atomic_store(&slot->room, 0);
    atomic_store(&slot->pid, pid);
}

/* ------------------------------------------------------------------ as the keeper reaches them */

static off_t slot_at(const struct state *s, uint32_t worker)
{
    return (off_t)(s->workers_at + worker * sizeof(struct worker_slot));
}

/* A word that cannot be read (the file was cut short) counts as 0. */
static uint32_t read_word(const struct state *s, off_t at)
{
    uint32_t word;

    return pread(s->workers_fd, &word, sizeof(word), at) == sizeof(word) ? word : 0;
}

/* Returns the old value. If the write fails, only a number in the metrics is wrong. */
static uint32_t clear_word(const struct state *s, off_t at)
{
    const uint32_t zero = 0;
    uint32_t before = read_word(s, at);

    return pwrite(s->workers_fd, &zero, sizeof(zero), at) == sizeof(zero) ? before : 0;
}

uint32_t state_worker_pid(const struct state *s, uint32_t worker)
{
    const struct worker_slot *slot = slot_of(s, worker);

    if (s->workers_fd >= 0 && worker < s->geometry.workers)
        return read_word(s, slot_at(s, worker) + (off_t)offsetof(struct worker_slot, pid));
    return slot ? atomic_load(&slot->pid) : 0;
}

uint32_t state_worker_release(struct state *s, uint32_t worker)
{
    uint32_t held = 0;

    assert(s->workers_fd >= 0);
    if (worker >= s->geometry.workers)
        return 0;
    for (uint32_t i = 0; i < s->geometry.tasks; i++) {
        size_t task = (size_t)worker * s->geometry.tasks + i;

        held += clear_word(s, (off_t)(s->tasks_at + task * sizeof(struct state_task) +
                                      offsetof(struct state_task, busy))) != 0;
    }
    clear_word(s, slot_at(s, worker) + (off_t)offsetof(struct worker_slot, room));
    clear_word(s, slot_at(s, worker) + (off_t)offsetof(struct worker_slot, pid));
    return held;
}

/* ------------------------------------------------------------------ room for requests */

int state_worker_room(struct state *s, uint32_t worker, int by)
{
    struct worker_slot *slot = slot_of(s, worker);

    return slot ? atomic_fetch_add(&slot->room, by) : 0;
}

uint32_t state_worker_free(const struct state *s, uint32_t worker)
{
    const struct worker_slot *slot = slot_of(s, worker);
    int32_t room = slot ? atomic_load(&slot->room) : 0;

    return room > 0 ? (uint32_t)room : 0;
}

bool state_has_room(const struct state *s)
{
    for (uint32_t i = 0; i < s->geometry.workers; i++)
        if (state_worker_free(s, i) > 0)
            return true;
    return false;
}

_Atomic uint32_t *state_room_turn(struct state *s)
{
    assert(s->worker_head);
    return &s->worker_head->room_turn;
}

/* ------------------------------------------------------------------ what they are at */

void state_worker_beat(struct state *s, uint32_t worker)
{
    struct worker_slot *slot = slot_of(s, worker);

    if (slot)
        atomic_store(&slot->beat_ms, clock_boot_ms());
}

uint64_t state_worker_beat_ms(const struct state *s, uint32_t worker)
{
    const struct worker_slot *slot = slot_of(s, worker);

    return slot ? atomic_load(&slot->beat_ms) : 0;
}

struct state_task *state_task(struct state *s, uint32_t worker, uint32_t task)
{
    if (!slot_of(s, worker) || task >= s->geometry.tasks)
        return NULL;
    return &s->tasks[(size_t)worker * s->geometry.tasks + task];
}

/* ------------------------------------------------------------------ counters */

/* The keeper counts in `state`, a worker in its own slot of `state.workers`. */
static _Atomic uint64_t *counters_of(struct state *s, uint32_t worker)
{
    if (worker == STATE_KEEPER)
        return s->workers_fd >= 0 ? s->box_head->keeper_counters : NULL;
    return slot_of(s, worker) ? s->workers[worker].counters : NULL;
}

void state_count(struct state *s, uint32_t worker, enum state_counter c, uint64_t n)
{
    _Atomic uint64_t *counters = counters_of(s, worker);

    assert(c < STATE_COUNTERS);
    if (counters)
        atomic_fetch_add_explicit(&counters[c], n, memory_order_relaxed);
}

uint64_t state_counter_sum(const struct state *s, enum state_counter c)
{
    uint64_t sum = atomic_load_explicit(&s->box_head->keeper_counters[c], memory_order_relaxed);

    for (uint32_t i = 0; s->workers && i < s->geometry.workers; i++)
        sum += atomic_load_explicit(&s->workers[i].counters[c], memory_order_relaxed);
    return sum;
}
