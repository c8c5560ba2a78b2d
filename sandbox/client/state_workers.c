/* Workers in shared memory: their slots, tasks and counters. */
#include "cove/mem.h"
#include "sandbox/client/state_private.h"

uint32_t state_worker_count(const struct state *s)
{
    return s->worker_head->rows;
}

void state_worker_claim(struct state *s, uint32_t worker, uint32_t pid)
{
    if (worker >= s->worker_head->rows)
        return;
    state_worker_beat(s, worker);
    atomic_store(&s->workers[worker].room, 0);
    atomic_store(&s->workers[worker].pid, pid);
}

uint32_t state_worker_pid(const struct state *s, uint32_t worker)
{
    return worker < s->worker_head->rows ? atomic_load(&s->workers[worker].pid) : 0;
}

uint32_t state_worker_release(struct state *s, uint32_t worker)
{
    uint32_t held = 0;

    if (worker >= s->worker_head->rows)
        return 0;
    for (uint32_t i = 0; i < s->worker_head->columns; i++) {
        struct state_task *t = state_task(s, worker, i);

        if (atomic_exchange(&t->busy, 0))
            held++;
    }
    atomic_store(&s->workers[worker].room, 0);
    atomic_store(&s->workers[worker].pid, 0);
    return held;
}

int state_worker_room(struct state *s, uint32_t worker, int by)
{
    return worker < s->worker_head->rows ? atomic_fetch_add(&s->workers[worker].room, by) : 0;
}

uint32_t state_worker_free(const struct state *s, uint32_t worker)
{
    int32_t room = worker < s->worker_head->rows ? atomic_load(&s->workers[worker].room) : 0;

    return room > 0 ? (uint32_t)room : 0;
}

bool state_has_room(const struct state *s)
{
    for (uint32_t i = 0; i < s->worker_head->rows; i++)
        if (state_worker_free(s, i) > 0)
            return true;
    return false;
}

_Atomic uint32_t *state_room_turn(struct state *s)
{
    return &s->worker_head->room_turn;
}

void state_worker_beat(struct state *s, uint32_t worker)
{
    if (worker < s->worker_head->rows)
        atomic_store(&s->workers[worker].beat_ms, clock_boot_ms());
}

uint64_t state_worker_beat_ms(const struct state *s, uint32_t worker)
{
    return worker < s->worker_head->rows ? atomic_load(&s->workers[worker].beat_ms) : 0;
}

struct state_task *state_task(struct state *s, uint32_t worker, uint32_t task)
{
    if (worker >= s->worker_head->rows || task >= s->worker_head->columns)
        return NULL;
    return &s->tasks[(size_t)worker * s->worker_head->columns + task];
}

/* ------------------------------------------------------------------ counters */

void state_count(struct state *s, uint32_t worker, enum state_counter c, uint64_t n)
{
    uint32_t slot = worker < s->worker_head->rows ? worker : s->worker_head->rows;

    if (c < STATE_COUNTERS)
        atomic_fetch_add_explicit(&s->workers[slot].counters[c], n, memory_order_relaxed);
}

uint64_t state_counter_sum(const struct state *s, enum state_counter c)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; c < STATE_COUNTERS && i <= s->worker_head->rows; i++)
        sum += atomic_load_explicit(&s->workers[i].counters[c], memory_order_relaxed);
    return sum;
}
