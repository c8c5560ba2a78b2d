/*
 * Records of sandboxes that have ended, kept for dialects that answer questions about them later: such an id is
 * not unknown but stopped, and a project's name must not lead to a second sandbox. A record is a box_info with
 * the state BOX_ENDED in a table of its own (state_ended()), where workers find it by id and by project. Its
 * attributes stay beside it, without secrets and only if they are small. The table outlives the keeper, as the
 * other tables do, but not a restart of the machine.
 *
 * The number of records is bounded, in all and for each tenant: the oldest record goes first.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"

enum {
    PLACES_MAX = 8192,
    TENANT_MAX = PLACES_MAX / 8,
    LOOK_EVERY_MS = 1000,
};

struct ended {            /* what is needed to choose a place; the record is in the table */
    uint64_t until_ms;    /* 0: the place is free */
    uint64_t tenant_hash; /* two tenants with one hash share a bound, and nothing else */
};

static struct state *table(const struct keeper *k)
{
    return k->ended ? state_ended(k->state) : NULL;
}

static void drop(struct keeper *k, uint32_t i)
{
    const struct box_info none = { 0 };
    struct box_info info;

    state_box_read(table(k), i, &info);
    attributes_remove(k, info.id);
    state_box_write(table(k), i, &none);
    k->ended[i].until_ms = 0;
}

/* A free place. If there is none, or if this tenant has its share of places, the oldest record gives way:
 * the tenant's own, or the oldest of all. */
static uint32_t find_place(const struct keeper *k, uint64_t tenant_hash)
{
    uint32_t free = PLACES_MAX, oldest = 0, own = PLACES_MAX, count = 0;

    for (uint32_t i = 0; i < PLACES_MAX; i++) {
        const struct ended *place = &k->ended[i];

        if (place->until_ms == 0) {
            free = i;
            continue;
        }
        if (place->until_ms < k->ended[oldest].until_ms)
            oldest = i;
        if (place->tenant_hash != tenant_hash)
            continue;
        count++;
        if (own == PLACES_MAX || place->until_ms < k->ended[own].until_ms)
            own = i;
    }
    if (count >= TENANT_MAX)
        return own;
    return free < PLACES_MAX ? free : oldest;
}

/* No record is kept of a sandbox that its owner deleted, so that its id is unknown afterwards. A sandbox
 * that has a project's name keeps its record even then: the name stays taken. */
static bool is_wanted(const struct box_info *b, enum end_cause cause)
{
    bool deleted = cause == END_KILLED && b->flags & BOX_OWN_PROJECT;

    return b->tenant[0] && b->keep_ended_s && !deleted && cause != END_SAVED && cause != END_SERVER;
}

bool ended_put(struct keeper *k, const struct box_info *b, enum end_cause cause)
{
    uint64_t now = clock_boot_ms(), tenant_hash = text_hash(TEXT_HASH_START, b->tenant);
    struct box_info record = *b;
    uint32_t i;

    if (!table(k) || !is_wanted(b, cause))
        return false;
    i = find_place(k, tenant_hash);
    if (k->ended[i].until_ms)
        drop(k, i);
    record.state = BOX_ENDED;
    record.end_cause = cause;
    record.created_ms = now - (clock_unix_ms() - b->created_unix_ms);
    record.dies_at_ms = now;
    record.reuse_until_ms = now + b->keep_ended_s * (uint64_t)1000;
    record.frozen_ms = 0;
    attributes_shorten(k, b->id);
    state_box_write(table(k), i, &record);
    k->ended[i] = (struct ended){ record.reuse_until_ms, tenant_hash };
    return true;
}

bool ended_knows(const struct keeper *k, const char *id)
{
    struct box_info info;
    uint32_t i;

    return table(k) && state_find_id_any(table(k), id, &i, &info);
}

bool ended_knows_project(const struct keeper *k, const char *tenant, const char *project)
{
    struct box_info info;
    uint32_t i;

    return table(k) && state_find_project(table(k), tenant, project, &i, &info);
}

void ended_retire(struct keeper *k, const struct keeper_retire *args)
{
    struct box_info info;
    uint32_t i;

    if (table(k) && args->id[0] && state_find_id(table(k), args->tenant, args->id, &i, &info) &&
        info.flags & BOX_OWN_PROJECT)
        drop(k, i);
}

void ended_tick(struct keeper *k, uint64_t now)
{
    if (!table(k) || now < k->ended_next_ms)
        return;
    k->ended_next_ms = now + LOOK_EVERY_MS;
    for (uint32_t i = 0; i < PLACES_MAX; i++)
        if (k->ended[i].until_ms && k->ended[i].until_ms <= now)
            drop(k, i);
}

static void take_up(struct keeper *k, uint32_t i)
{
    struct box_info info;

    state_box_read(table(k), i, &info);
    if (info.state == BOX_ENDED)
        k->ended[i] =
            (struct ended){ info.reuse_until_ms, text_hash(TEXT_HASH_START, info.tenant) };
}

int ended_open(struct keeper *k, struct cove_err *e)
{
    struct state *found = NULL;
    char path[256];
    bool kept;

    snprintf(path, sizeof(path), "%s/state" STATE_ENDED_SUFFIX, k->config.run_dir);
    if (state_open(path, k->worker_gid, PLACES_MAX, 1, 1, &found, &kept, e) < 0)
        return -1;
    state_give_ended(k->state, found);
    k->ended = calloc(PLACES_MAX, sizeof(*k->ended));
    if (!k->ended)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    if (!kept)
        return 0; /* pages of an unused table take no memory as long as nobody touches them */
    state_rebuild_hints(found);
    for (uint32_t i = 0; i < PLACES_MAX; i++)
        take_up(k, i);
    return 0;
}
