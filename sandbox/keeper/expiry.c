/* What happens to sandboxes by the clock: their time is over, or what is left of them is removed. */
#include "cove/log.h"
#include "sandbox/keeper/keeper_private.h"

enum { REMOVE_RETRY_MS = 20, IDLE_TICK_MS = 1000 };

static bool freezes_at_end(const struct box_info *b)
{
    return b->flags & BOX_END_FREEZES && b->state == BOX_LIVE;
}

static void expire(struct keeper *k, uint32_t i)
{
    const struct box_info *b = &k->boxes[i].info;
    struct cove_err err = { 0 };

    if (freezes_at_end(b)) {
        log_event(LOG_LEVEL_INFO, "sandbox frozen at the end of its lifetime",
                  LOG_S("sandbox", b->id), LOG_S("tenant", b->tenant));
        if (life_freeze_at_end(k, i, &err) == 0)
            return;
        log_error("sandbox could not be frozen at its end and is killed", &err,
                  LOG_S("sandbox", b->id));
    }
    log_event(LOG_LEVEL_INFO, "sandbox expired", LOG_S("sandbox", b->id),
              LOG_S("tenant", b->tenant), LOG_S("project", b->project));
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_EXPIRED, 1);
    death_begin(k, i, END_EXPIRED, b->dies_at_ms - b->created_ms);
}

static uint64_t tick_box(struct keeper *k, uint32_t i, uint64_t now, uint64_t next)
{
    struct box *b = &k->boxes[i];

    switch (b->info.state) {
    case BOX_LIVE:
    case BOX_AGEING:
    case BOX_FROZEN:
        if (now < b->info.dies_at_ms)
            return earliest_ms(next, b->info.dies_at_ms);
        expire(k, i);
        return now; /* look again at once: what it has become has a time of its own */
    case BOX_DYING:
        if (b->dead && !b->sweeper)
            death_remove_remains(k, i);
        return b->dead && !b->sweeper ? earliest_ms(next, now + REMOVE_RETRY_MS) : next;
    default:
        return next;
    }
}

uint64_t expiry_tick(struct keeper *k)
{
    uint64_t now = clock_boot_ms(), next = now + IDLE_TICK_MS;

    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        next = tick_box(k, i, now, next);
    cpu_shares_tick(k, now);
    next = snapshots_tick(k, now, next);
    return pool_refill(k, now, next);
}
