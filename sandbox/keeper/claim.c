/* A project asks for its sandbox, and gets its current one, one from the pool, or a new one. */

#include "cove/log.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/publish.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

enum { POOL_PAUSE_MS = 150 };

/* ------------------------------------------------------------------ a sandbox becomes a project's */

static uint32_t box_flags(uint32_t claim_flags)
{
    return (claim_flags & CLAIM_OWN_PROJECT ? BOX_OWN_PROJECT : 0) |
           (claim_flags & CLAIM_END_FREEZES ? BOX_END_FREEZES : 0);
}

/* Makes the sandbox the claimant's. If it is still being built this is a promise: its lifetime begins when
 * it is live. */
static int give_to(struct keeper *k, uint32_t i, const struct claim *c, const struct limits *limits,
                   struct cove_err *e)
{
    const struct keeper_claim *args = c->args;
    struct box *b = &k->boxes[i];
    bool own = args->flags & CLAIM_OWN_PROJECT;

    if (c->attributes >= 0 && attributes_copy(k, b->info.id, c->attributes, e) < 0)
        return -1;
    text_copy(b->info.tenant, sizeof(b->info.tenant), args->tenant);
    text_copy(b->info.project, sizeof(b->info.project), own ? b->info.id : args->project);
    text_copy(b->info.key, sizeof(b->info.key), args->key);
    b->info.flags = box_flags(args->flags);
    b->info.dialect = args->dialect;
    b->info.keep_ended_s = args->keep_ended_s;
    b->info.lifetime_ms = args->lifetime_ms ? args->lifetime_ms : k->config.lifetime_ms;
    b->reuse_ms = args->reuse_ms ? args->reuse_ms : k->config.reuse_ms;
    if (own || b->reuse_ms > b->info.lifetime_ms)
        b->reuse_ms = b->info.lifetime_ms;
    b->wanted = *limits;
    b->promised = true;
    boxes_file(k, i);
    return 0;
}

/* Applies the claimant's limits, before the first command can run. */
static int take_limits(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];

    if (box_limits_apply(k, b, &b->wanted, e) == 0 && network_apply_settings(k, i, e) == 0)
        return 0;
    log_error("sandbox not handed out: its limits could not be set", e,
              LOG_S("sandbox", b->info.id));
    waiters_fail(k, i, e);
    death_begin(k, i, END_GONE, 0);
    return -1;
}

void claim_go_live(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    uint64_t now = clock_boot_ms();
    struct cove_err err = { 0 };

    if (take_limits(k, i, &err) < 0)
        return;
    k->pool_pause_ms = now + POOL_PAUSE_MS;
    b->info.created_unix_ms = clock_unix_ms();
    b->info.created_ms = now;
    b->info.reuse_until_ms = now + b->reuse_ms;
    b->info.dies_at_ms = now + b->info.lifetime_ms;
    if (b->waking)
        waking_set_times(k, i, now);
    boxes_set_state(k, i, BOX_LIVE);
    if (b->waking)
        waking_is_live(k, i);
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_CLAIMED, 1);
    log_event(LOG_LEVEL_INFO, "sandbox claimed", LOG_S("sandbox", b->info.id),
              LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
    waiters_answer_box(k, i, true);
}

/* ------------------------------------------------------------------ the project has a sandbox */

static bool is_reusable(const struct box *b)
{
    return b->info.state == BOX_BUILDING || b->info.state == BOX_FROZEN ||
           clock_boot_ms() < b->info.reuse_until_ms;
}

/* The claim is answered at once, or when the sandbox has been built. */
static int join(struct keeper *k, uint32_t i, const struct waiter *w, struct cove_err *e)
{
    if (life_thaw(k, i, 0, e) < 0)
        return -1;
    waiters_add(&k->boxes[i], w);
    if (k->boxes[i].info.state != BOX_BUILDING)
        waiters_answer_box(k, i, false);
    return 0;
}

static void supersede(struct keeper *k, uint32_t i)
{
    const struct box_info *b = &k->boxes[i].info;
    uint64_t now = clock_boot_ms();

    log_event(LOG_LEVEL_WARN,
              "sandbox too old to be used again: its project starts anew without its files",
              LOG_S("sandbox", b->id), LOG_S("tenant", b->tenant), LOG_S("project", b->project),
              LOG_N("age_s", (now - b->created_ms) / 1000),
              LOG_N("ends_in_s", b->dies_at_ms > now ? (b->dies_at_ms - now) / 1000 : 0));
    boxes_set_state(k, i, BOX_AGEING);
}

/* ------------------------------------------------------------------ it needs a new one */

/* Takes a warm sandbox, or one that is being built for the pool, or begins to build one. The pool holds no
 * sandboxes that are made of a snapshot. */
static int find_or_begin(struct keeper *k, const char *template_name,
                         const struct snapshot *snapshot, const struct limits *limits,
                         uint32_t *ret, struct cove_err *e)
{
    if (snapshot)
        return creation_begin(k, template_name, snapshot, limits, ret, e);
    demand_note(k, template_name);
    if (pool_find_spare(k, BOX_WARM, template_name, limits, ret) == 0)
        return 0;
    if (pool_find_spare(k, BOX_BUILDING, template_name, limits, ret) == 0)
        return 0;
    return creation_begin(k, template_name, NULL, limits, ret, e);
}

static int provide(struct keeper *k, const struct claim *c, const struct waiter *w,
                   struct cove_err *e)
{
    struct snapshot *snapshot = snapshots_find(k, c->args->tenant, c->args->template);
    const char *asked = c->args->template[0] ? c->args->template : k->config.template;
    const struct manifest *template =
        snapshot ? NULL : templates_find(k, c->args->tenant, asked, e);
    const char *name = snapshot ? snapshot->info.template : template ? template->name : NULL;
    struct limits limits;
    uint32_t i;

    if (!name)
        return -1;
    if (snapshot)
        snapshot->used_ms = clock_boot_ms();
    box_limits_resolve(k, name, c->args->tenant, &limits);
    box_limits_narrow(snapshot, &limits);
    if (find_or_begin(k, name, snapshot, &limits, &i, e) < 0 || give_to(k, i, c, &limits, e) < 0) {
        log_error("sandbox not created", e, LOG_S("tenant", c->args->tenant),
                  LOG_S("project", c->args->project));
        return -1;
    }
    waiters_add(&k->boxes[i], w);
    if (k->boxes[i].info.state == BOX_WARM)
        claim_go_live(k, i);
    else
        state_count(k->state, STATE_KEEPER, COUNT_BOXES_CLAIMED_COLD, 1);
    return 0;
}

static int answer_claim(struct keeper *k, const struct claim *c, const struct waiter *w,
                        struct cove_err *e)
{
    const struct keeper_claim *args = c->args;
    bool own = args->flags & CLAIM_OWN_PROJECT;
    uint32_t i, saved;
    bool has = !own && boxes_find_current(k, args->tenant, args->project, &i) == 0;

    if (args->lifetime_ms > LIFETIME_MAX_MS || args->reuse_ms > LIFETIME_MAX_MS)
        return cove_fail(e, COVE_INVALID, "lifetime is longer than 365 days");
    if (has && is_reusable(&k->boxes[i]))
        return join(k, i, w, e);
    if (!has && !own && saved_find_project(k, args->tenant, args->project, &saved))
        return waking_begin(k, saved, 0, w, e);
    if (!has && !own && ended_knows_project(k, args->tenant, args->project))
        return cove_fail(e, COVE_CONFLICT, "the sandbox of this name has ended");
    if (disk_check_room(&k->disk, e) < 0 || quota_check_claim(k, args, e) < 0)
        return -1;
    if (has)
        supersede(k, i);
    return provide(k, c, w, e);
}

void claim_box(struct keeper *k, const struct claim *c, const struct waiter *w)
{
    struct cove_err err = { 0 };

    if (answer_claim(k, c, w, &err) < 0)
        keeper_answer_error(k, w, &err);
}
