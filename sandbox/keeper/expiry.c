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

static bool has_end(const struct box_info *b)
{
    return b->state == BOX_LIVE || b->state == BOX_AGEING || b->state == BOX_FROZEN;
}

/* All are looked at only when the end of one may have come. What it has become may have a time of its
 * own: boxes_file() notes that. */
static uint64_t tick_ends(struct keeper *k, uint64_t now)
{
    struct box *b = TAILQ_FIRST(&k->found.places[PLACE_OWNED]), *next;

    if (now < k->found.due_ms)
        return k->found.due_ms;
    k->found.due_ms = UINT64_MAX;
    for (; b; b = next) {
        next = TAILQ_NEXT(b, in_place);
        if (!has_end(&b->info))
            continue;
        if (now < b->info.dies_at_ms)
            k->found.due_ms = earliest_ms(k->found.due_ms, b->info.dies_at_ms);
        else
            expire(k, (uint32_t)(b - k->boxes));
    }
    return k->found.due_ms;
}

static uint64_t tick_remains(struct keeper *k, uint64_t now, uint64_t next)
{
    if (TAILQ_EMPTY(&k->found.places[PLACE_DEAD]))
        return next;
    death_remove_remains(k);
    return TAILQ_EMPTY(&k->found.places[PLACE_DEAD]) ? next
                                                     : earliest_ms(next, now + REMOVE_RETRY_MS);
}

uint64_t expiry_tick(struct keeper *k)
{
    uint64_t now = clock_boot_ms(), next = now + IDLE_TICK_MS;

    next = earliest_ms(next, tick_ends(k, now));
    next = tick_remains(k, now, next);
    cpu_shares_tick(k, now);
    next = snapshots_tick(k, now, next);
    sampling_tick(k, now);
    return pool_refill(k, now, next);
}
