/* What happens to sandboxes by the clock: they reach their end, frozen ones go to the store, and dead ones
 * are removed. */
#include "cove/log.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

enum { REMOVE_RETRY_MS = 20, SWEEP_GATHER_MS = 100, IDLE_TICK_MS = 1000, SAVE_RETRY_MS = 60000 };

/* What happens at the end of a lifetime: what the client has asked for, or else what the configuration
 * says. */
static enum timeout_way way_of_end(const struct keeper *k, const struct box_info *b)
{
    struct limits limits;

    if (b->state != BOX_LIVE)
        return TIMEOUT_KILLS;
    box_limits_resolve(k, b->template, b->tenant, &limits);
    if (b->flags & BOX_END_FREEZES)
        return limits.pause_way == PAUSE_SAVES ? TIMEOUT_SAVES : TIMEOUT_FREEZES;
    if (dialect_has(b->dialect, DIALECT_CLIENT_DECIDES))
        return TIMEOUT_KILLS;
    return (enum timeout_way)limits.timeout_way;
}

/* True: the sandbox is being saved, or is frozen. A sandbox that cannot be saved is frozen instead. */
static bool pause_at_end(struct keeper *k, uint32_t i, enum timeout_way way)
{
    const struct box_info *b = &k->boxes[i].info;
    struct cove_err err = { 0 };

    if (way == TIMEOUT_SAVES) {
        log_event(LOG_LEVEL_INFO, "sandbox is saved at the end of its lifetime",
                  LOG_S("sandbox", b->id), LOG_S("tenant", b->tenant));
        if (saving_begin(k, i, NULL, &err) == 0)
            return true;
        log_error("sandbox could not be saved at its end and is frozen", &err,
                  LOG_S("sandbox", b->id));
    } else {
        log_event(LOG_LEVEL_INFO, "sandbox frozen at the end of its lifetime",
                  LOG_S("sandbox", b->id), LOG_S("tenant", b->tenant));
    }
    if (life_freeze_at_end(k, i, &err) == 0)
        return true;
    log_error("sandbox could not be frozen at its end and is killed", &err,
              LOG_S("sandbox", b->id));
    return false;
}

static void expire(struct keeper *k, uint32_t i)
{
    const struct box_info *b = &k->boxes[i].info;
    enum timeout_way way = way_of_end(k, b);

    if (way != TIMEOUT_KILLS && pause_at_end(k, i, way))
        return;
    log_event(LOG_LEVEL_INFO, "sandbox expired", LOG_S("sandbox", b->id),
              LOG_S("tenant", b->tenant), LOG_S("project", b->project));
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_EXPIRED, 1);
    death_begin(k, i, END_EXPIRED, b->dies_at_ms - b->created_ms);
}

/* When a frozen sandbox that nobody uses is saved, so that its memory becomes free. */
static void look_up_save(const struct keeper *k, struct box *b)
{
    struct limits limits;

    box_limits_resolve(k, b->info.template, b->info.tenant, &limits);
    if (limits.save_frozen_ms && saving_loses_nothing(k, &b->info))
        b->save_at_ms = b->info.frozen_ms + limits.save_frozen_ms;
    else
        b->save_at_ms = UINT64_MAX;
}

static void save_frozen(struct keeper *k, uint32_t i, uint64_t now)
{
    struct cove_err err = { 0 };

    if (saving_begin(k, i, NULL, &err) == 0)
        return;
    log_error("a sandbox that is frozen for long could not be saved", &err,
              LOG_S("sandbox", k->boxes[i].info.id));
    k->boxes[i].save_at_ms = now + SAVE_RETRY_MS;
}

static bool has_end(const struct box_info *b)
{
    return b->state == BOX_LIVE || b->state == BOX_AGEING || b->state == BOX_FROZEN;
}

uint64_t expiry_due_ms(const struct keeper *k, struct box *b)
{
    if (!has_end(&b->info))
        return UINT64_MAX;
    if (b->saving)
        return saving_due_ms(b);
    if (b->info.state != BOX_FROZEN)
        return b->info.dies_at_ms;
    if (b->freeze_began_ms)
        return b->freeze_look_ms;
    if (!b->save_at_ms)
        look_up_save(k, b);
    return earliest_ms(b->info.dies_at_ms, b->save_at_ms);
}

/* Something is due for this sandbox: a step on its way to the store, the end of a freeze, or its own end. */
static void do_what_is_due(struct keeper *k, uint32_t i, uint64_t now)
{
    struct box *b = &k->boxes[i];

    if (b->saving) {
        saving_tick(k, i, now);
        return;
    }
    if (b->info.state == BOX_FROZEN && b->freeze_began_ms)
        life_freeze_tick(k, i, now);
    if (b->info.state == BOX_FROZEN && b->freeze_began_ms)
        return;
    if (now >= b->info.dies_at_ms)
        expire(k, i);
    else if (b->info.state == BOX_FROZEN && b->save_at_ms && now >= b->save_at_ms)
        save_frozen(k, i, now);
}

/* Looks at all sandboxes, but only when something is due for at least one of them. Returns when something is
 * due next. */
static uint64_t tick_ends(struct keeper *k, uint64_t now)
{
    struct box *b = TAILQ_FIRST(&k->found.places[PLACE_OWNED]), *next;

    if (now < k->found.due_ms)
        return k->found.due_ms;
    k->found.due_ms = UINT64_MAX;
    for (; b; b = next) {
        next = TAILQ_NEXT(b, in_place);
        if (now >= expiry_due_ms(k, b))
            do_what_is_due(k, (uint32_t)(b - k->boxes), now);
        k->found.due_ms = earliest_ms(k->found.due_ms, expiry_due_ms(k, b));
    }
    return k->found.due_ms;
}

/* A sandbox that was saved cannot be woken before its remains are gone, and may be asked for at once. */
static bool one_was_saved(const struct keeper *k)
{
    const struct box *b;

    TAILQ_FOREACH(b, &k->found.places[PLACE_DEAD], in_place)
    if (b->info.end_cause == END_SAVED)
        return true;
    return false;
}

/*
 * Sandboxes that end shortly after one another are removed by one child process: making a copy of the keeper's page tables
 * for each of them cost more than the removal. Nobody waits for that while many slots are free.
 */
static bool may_wait(struct keeper *k, uint64_t now)
{
    if (!k->sweep_at_ms)
        k->sweep_at_ms = now + SWEEP_GATHER_MS;
    return now < k->sweep_at_ms && k->found.counts[PLACE_DEAD] < SWEEP_BATCH &&
           k->found.counts[PLACE_FREE] >= k->config.max_sandboxes / 2 && !one_was_saved(k);
}

static uint64_t tick_remains(struct keeper *k, uint64_t now, uint64_t next)
{
    if (TAILQ_EMPTY(&k->found.places[PLACE_DEAD]))
        return next;
    if (may_wait(k, now))
        return earliest_ms(next, k->sweep_at_ms);
    death_remove_remains(k);
    if (!TAILQ_EMPTY(&k->found.places[PLACE_DEAD]))
        return earliest_ms(next, now + REMOVE_RETRY_MS);
    k->sweep_at_ms = 0;
    return next;
}

uint64_t expiry_tick(struct keeper *k)
{
    uint64_t now = clock_boot_ms(), next = now + IDLE_TICK_MS;

    next = earliest_ms(next, tick_ends(k, now));
    next = tick_remains(k, now, next);
    retention_tick(k, now);
    waking_tick(k);
    ended_tick(k, now);
    next = bucket_tick(k, now, next);
    next = saver_run_tick(k, now, next);
    next = creation_tick(k, now, next);
    next = starter_tick(k, now, next);
    next = cpu_shares_tick(k, now, next);
    next = snapshots_tick(k, now, next);
    process_shares_tick(k, now);
    sampling_tick(k, now);
    return pool_refill(k, now, next);
}
