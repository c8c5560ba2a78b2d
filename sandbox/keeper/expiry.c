/* What happens to sandboxes by the clock: their time is over, or what is left of them is removed. */
#include "cove/log.h"
#include "sandbox/keeper/keeper_private.h"

enum { REMOVE_RETRY_MS = 20, IDLE_TICK_MS = 1000 };

static void expire(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];

    log_event(LOG_LEVEL_INFO, "sandbox expired", LOG_S("sandbox", b->info.id),
              LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_EXPIRED, 1);
    death_begin(k, i);
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
        return next;
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
    return pool_refill(k, now, next);
}
