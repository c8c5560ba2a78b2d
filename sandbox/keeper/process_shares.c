/*
 * Fair shares of processes. All sandboxes together may have a bounded number of processes and threads
 * (bound_processes() in sandbox/box/cgroup_corner.c), which is less than max_sandboxes x pids_max: a tenant with
 * enough sandboxes could take them all, and no command of another tenant could start anything. The kernel cannot
 * count by tenant, because the cgroup of a sandbox of the pool is made before anybody knows whose it will be.
 *
 * So once a second the keeper looks how many processes all sandboxes have together. As long as that is less than
 * half of what they may have, it is all that the keeper reads. Otherwise it counts each sandbox's. A tenant that has
 * more than half of what all may have is held: its sandboxes keep their processes and get no more, it gets no
 * further sandbox, and the bound of all sandboxes is raised by a sixth, which then only other tenants can use. The
 * tenant is let go when it has less than half again, and no sooner than after a minute.
 */
#include <string.h>

#include "cove/log.h"
#include "cove/text.h"
#include "cove/weak.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/quota.h"

enum { LOOK_EVERY_MS = 1000, HOLD_AT_LEAST_MS = 60000, RAISE_BY = 6 /* a sixth */ };

static bool is_of(const struct box *b, const char *tenant)
{
    return strcmp(b->info.tenant, tenant) == 0;
}

bool process_shares_holds(const struct keeper *k, const char *tenant)
{
    return k->process_shares.tenant[0] && strcmp(k->process_shares.tenant, tenant) == 0;
}

/* A sandbox's own limit of processes. It is looked up, because b->limits is unknown after a restart of the
 * keeper. */
static uint64_t own_limit(const struct keeper *k, const struct box *b)
{
    struct limits limits = b->limits;

    if (!limits.pids_max)
        box_limits_resolve(k, b->info.template, b->info.tenant, &limits);
    return limits.pids_max;
}

static void hold_box(struct keeper *k, struct box *b)
{
    b->held = cgroup_limit_pids(&k->cgroups, b->info.id, b->pids ? b->pids : 1, NULL) == 0;
}

static void let_box_go(struct keeper *k, struct box *b)
{
    cgroup_limit_pids(&k->cgroups, b->info.id, own_limit(k, b), NULL);
    b->held = false;
}

/* ------------------------------------------------------------------ counting */

static void count_each(struct keeper *k)
{
    struct box *b;
    uint64_t most;

    TAILQ_FOREACH(b, &k->found.places[PLACE_OWNED], in_place)
    {
        cgroup_count_pids(&k->cgroups, b->info.id, &b->pids, &most);
    }
}

static uint64_t count_of(const struct keeper *k, const char *tenant)
{
    const struct box *b;
    uint64_t sum = 0;

    TAILQ_FOREACH(b, &k->found.places[PLACE_OWNED], in_place)
    {
        sum += is_of(b, tenant) ? b->pids : 0;
    }
    return sum;
}

/* If one tenant has more than half of all that was counted, it is this one: processes of different tenants cancel
 * each other out, and those of the majority are left over (the vote of Boyer and Moore). */
static const struct box *of_the_largest(const struct keeper *k)
{
    const struct box *b, *candidate = NULL;
    uint64_t left = 0;

    TAILQ_FOREACH(b, &k->found.places[PLACE_OWNED], in_place)
    {
        if (candidate && is_of(b, candidate->info.tenant)) {
            left += b->pids;
        } else if (candidate && left >= b->pids) {
            left -= b->pids;
        } else {
            left = b->pids - left;
            candidate = b;
        }
    }
    return candidate;
}

/* ------------------------------------------------------------------ holding a tenant */

/* Holds all sandboxes of the tenant. Called at every look, because sandboxes that were being built when it
 * was first held come later. */
static void hold_all(struct keeper *k)
{
    struct box *b;

    TAILQ_FOREACH(b, &k->found.places[PLACE_OWNED], in_place)
    {
        if (!b->held && is_of(b, k->process_shares.tenant) && b->info.state != BOX_BUILDING)
            hold_box(k, b);
    }
}

static void hold_who_has_too_many(struct keeper *k, uint64_t most, uint64_t now)
{
    const struct box *b;
    uint64_t count;

    count_each(k);
    b = of_the_largest(k);
    count = b ? count_of(k, b->info.tenant) : 0;
    if (count <= most / 2)
        return;
    log_event(LOG_LEVEL_WARN,
              "a tenant runs more than half of the processes that all sandboxes may have: it gets "
              "no more of them for now",
              LOG_S("tenant", b->info.tenant), LOG_N("processes", count), LOG_N("most", most));
    text_copy(k->process_shares.tenant, sizeof(k->process_shares.tenant), b->info.tenant);
    k->process_shares.since_ms = now;
    k->process_shares.most = most;
    hold_all(k);
    cgroup_limit_pids(&k->cgroups, "", most + most / RAISE_BY, NULL);
}

static void let_all_go(struct keeper *k)
{
    struct box *b;

    log_event(LOG_LEVEL_INFO, "a tenant may start processes again",
              LOG_S("tenant", k->process_shares.tenant));
    cgroup_limit_pids(&k->cgroups, "", k->process_shares.most, NULL);
    TAILQ_FOREACH(b, &k->found.places[PLACE_OWNED], in_place)
    {
        if (b->held)
            let_box_go(k, b);
    }
    k->process_shares.tenant[0] = '\0';
}

static void go_on_holding(struct keeper *k, uint64_t now)
{
    count_each(k);
    if (now - k->process_shares.since_ms >= HOLD_AT_LEAST_MS &&
        count_of(k, k->process_shares.tenant) <= k->process_shares.most / 2)
        let_all_go(k);
    else
        hold_all(k);
}

/* At the first look: an earlier keeper may have ended while it held a tenant. */
static void undo_what_was_held(struct keeper *k)
{
    struct box *b;
    uint64_t now, most;

    TAILQ_FOREACH(b, &k->found.places[PLACE_OWNED], in_place)
    {
        cgroup_count_pids(&k->cgroups, b->info.id, &now, &most);
        if (most < own_limit(k, b))
            let_box_go(k, b);
    }
}

void process_shares_tick(struct keeper *k, uint64_t now)
{
    uint64_t used, most;

    if (weak("places") ||
        (k->process_shares.looked_ms && now - k->process_shares.looked_ms < LOOK_EVERY_MS))
        return;
    if (!k->process_shares.looked_ms)
        undo_what_was_held(k);
    k->process_shares.looked_ms = now;
    cgroup_count_pids(&k->cgroups, "", &used, &most);
    if (k->process_shares.tenant[0])
        go_on_holding(k, now);
    else if (most != UINT64_MAX && used > most / 2)
        hold_who_has_too_many(k, most, now);
}
