/* A project asks for its sandbox: the current one, one from the pool, or a new one. */
#include <string.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"

enum { POOL_PAUSE_MS = 150 };

/* A box becomes a project's. While it is being built this is a promise; its time begins when it is
 * live. */
static void give_to(struct keeper *k, uint32_t i, const struct keeper_claim *args,
                    const struct limits *limits)
{
    struct box *b = &k->boxes[i];

    text_copy(b->info.tenant, sizeof(b->info.tenant), args->tenant);
    text_copy(b->info.project, sizeof(b->info.project), args->project);
    b->lifetime_ms = args->lifetime_ms ? args->lifetime_ms : k->config.lifetime_ms;
    b->reuse_ms = args->reuse_ms ? args->reuse_ms : k->config.reuse_ms;
    b->wanted = *limits;
    b->promised = true;
}

/* Its claimant's limits, before the first command. */
static int take_limits(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];

    if (box_limits_apply(k, b, &b->wanted, e) == 0 && network_allot(k, i, e) == 0)
        return 0;
    log_error("sandbox not given out", e, LOG_S("sandbox", b->info.id));
    waiters_fail(k, i, e);
    death_begin(k, i);
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
    b->info.dies_at_ms = now + b->lifetime_ms;
    boxes_set_state(k, i, BOX_LIVE);
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_CLAIMED, 1);
    log_event(LOG_LEVEL_INFO, "sandbox claimed", LOG_S("sandbox", b->info.id),
              LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
    waiters_answer_box(k, i, true);
}

static bool still_reusable(const struct box *b)
{
    return b->info.state == BOX_FROZEN || clock_boot_ms() < b->info.reuse_until_ms;
}

static void supersede(struct keeper *k, uint32_t i)
{
    log_event(LOG_LEVEL_INFO, "sandbox ageing", LOG_S("sandbox", k->boxes[i].info.id));
    boxes_set_state(k, i, BOX_AGEING);
}

void claim_box(struct keeper *k, const struct keeper_claim *args, const struct waiter *w)
{
    const char *template_name = args->template[0] ? args->template : k->config.template;
    struct cove_err err = { 0 };
    struct limits limits;
    bool outlived = false;
    uint32_t i, old = 0;

    if (boxes_find_current(k, args->tenant, args->project, &i) == 0) {
        bool building = k->boxes[i].info.state == BOX_BUILDING;

        if (building || (still_reusable(&k->boxes[i]) && !(args->flags & CLAIM_FRESH))) {
            if (life_thaw(k, i, &err) < 0) {
                keeper_answer_error(k, w, &err);
                return;
            }
            waiters_add(&k->boxes[i], w);
            if (!building)
                waiters_answer_box(k, i, false);
            return;
        }
        outlived = true;
        old = i;
    }
    if (quota_check_claim(k, args, &err) < 0) {
        keeper_answer_error(k, w, &err);
        return;
    }
    if (outlived)
        supersede(k, old);
    box_limits_resolve(k, template_name, args->tenant, &limits);
    if (pool_find_spare(k, BOX_WARM, template_name, &limits, &i) == 0) {
        give_to(k, i, args, &limits);
        waiters_add(&k->boxes[i], w);
        claim_go_live(k, i);
        return;
    }
    if (pool_find_spare(k, BOX_BUILDING, template_name, &limits, &i) < 0 &&
        creation_begin(k, template_name, &limits, &i, &err) < 0) {
        log_error("sandbox not created", &err, LOG_S("tenant", args->tenant),
                  LOG_S("project", args->project));
        keeper_answer_error(k, w, &err);
        return;
    }
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_CLAIMED_COLD, 1);
    give_to(k, i, args, &limits);
    waiters_add(&k->boxes[i], w);
}
