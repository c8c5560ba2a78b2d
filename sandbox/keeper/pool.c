/* The pool: sandboxes that are made ahead and belong to nobody yet. */
#include <string.h>

#include "cove/log.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/publish.h"
#include "sandbox/keeper/quota.h"

enum { POOL_RETRY_MS = 1000, SHRINK_MS = 1000 };

/* A spare sandbox in this state (warm, or still being built) that can be brought to these limits. */
int pool_find_spare(const struct keeper *k, enum box_state state, const char *template_name,
                    const struct limits *limits, uint32_t *ret)
{
    const struct manifest *m = manifests_find(&k->manifests, template_name);
    const struct box *b;

    if (!m)
        return -1;
    TAILQ_FOREACH(b, &k->found.places[state == BOX_WARM ? PLACE_SPARE : PLACE_RAW], in_place)
    {
        if (!b->dead && b->template_version == m->version &&
            strcmp(b->info.template, template_name) == 0 && box_limits_fit(&b->limits, limits)) {
            *ret = (uint32_t)(b - k->boxes);
            return 0;
        }
    }
    return -1;
}

/* Ends a sandbox of the pool that has become useless: its limits are not those that sandboxes of the pool
 * get now, or its template was replaced. */
void pool_review_one(struct keeper *k, uint32_t i)
{
    const struct box *b = &k->boxes[i];
    struct limits limits;

    if (b->info.state != BOX_WARM)
        return;
    box_limits_resolve(k, b->info.template, "", &limits);
    if (!box_limits_fit(&b->limits, &limits) ||
        !templates_is_current(k, b->info.template, b->template_version))
        death_begin(k, i, END_GONE, 0);
}

void pool_review(struct keeper *k)
{
    struct box *b = TAILQ_FIRST(&k->found.places[PLACE_SPARE]), *next;

    for (; b; b = next) {
        next = TAILQ_NEXT(b, in_place);
        pool_review_one(k, (uint32_t)(b - k->boxes));
    }
}

/* Makes disks ahead, so that a sandbox which does not come from the pool is built faster. While at least one
 * disk is ready, none is made right after a claim. */
static uint64_t refill_disks(struct keeper *k, uint64_t now, uint64_t next)
{
    struct cove_err err = { 0 };

    if (!disk_wants_more(&k->disk))
        return next;
    if (k->disk.ready_count > 0 && now < k->pool_pause_ms)
        return earliest_ms(next, k->pool_pause_ms);
    if (now < k->pool_retry_ms)
        return earliest_ms(next, k->pool_retry_ms);
    if (disk_make_ahead(&k->disk, &err) < 0) {
        log_error("no disk made ahead", &err);
        k->pool_retry_ms = now + POOL_RETRY_MS;
        return earliest_ms(next, k->pool_retry_ms);
    }
    return now;
}

/* Ends one surplus sandbox at a time, and not often: a template that was asked for a moment ago may be asked
 * for again. */
static void shrink(struct keeper *k, uint64_t now)
{
    const struct box *b;

    if (now < k->pool_shrink_ms)
        return;
    k->pool_shrink_ms = now + SHRINK_MS;
    b = demand_surplus(k, now);
    if (b)
        death_begin(k, (uint32_t)(b - k->boxes), END_GONE, 0);
}

/*
 * Builds one sandbox per call, so that requests which came in meanwhile are served before the next one is
 * built. As long as the pool has a sandbox, none is built right after a claim: building takes a cpu, and moving
 * a process into v1 cgroups stops every fork on the machine for milliseconds, just when the new sandbox runs
 * its first command.
 */
uint64_t pool_refill(struct keeper *k, uint64_t now, uint64_t next)
{
    char name[COVE_TEMPLATE_MAX];
    struct cove_err err = { 0 };
    struct limits limits;
    const char *wanted;
    uint32_t i;

    if (k->stopping)
        return next;
    shrink(k, now);
    wanted = demand_next(k, now);
    if (!wanted)
        return refill_disks(k, now, next);
    if (demand_spare(k, wanted) > 0 && now < k->pool_pause_ms)
        return earliest_ms(next, k->pool_pause_ms);
    if (now < k->pool_retry_ms)
        return earliest_ms(next, k->pool_retry_ms);
    text_copy(name, sizeof(name), wanted);
    box_limits_resolve(k, name, "", &limits);
    if (creation_begin(k, name, NULL, &limits, &i, &err) < 0) {
        if (err.code != COVE_BUSY)
            log_error("pool not refilled", &err, LOG_S("template", name));
        demand_forget(k, name);
        k->pool_retry_ms = now + POOL_RETRY_MS;
        return earliest_ms(next, k->pool_retry_ms);
    }
    return now; /* call again at once, after other events were handled */
}
