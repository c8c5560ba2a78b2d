/* What a tenant may do with a sandbox that it has: pause it, change its end, its network, end it. */
#include <string.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"

/* Freeze or thaw; what stands still half-way is set going again. */
static int set_frozen(struct keeper *k, uint32_t i, bool freeze, struct cove_err *e)
{
    const char *id = k->boxes[i].info.id;

    if (cgroup_freeze_box(&k->cgroups, id, freeze, e) < 0) {
        cgroup_freeze_box(&k->cgroups, id, !freeze, NULL);
        return -1;
    }
    boxes_set_state(k, i, freeze ? BOX_FROZEN : BOX_LIVE);
    return 0;
}

/* Whoever uses a paused sandbox sets it going again. */
int life_thaw(struct keeper *k, uint32_t i, struct cove_err *e)
{
    return k->boxes[i].info.state == BOX_FROZEN ? set_frozen(k, i, false, e) : 0;
}

static bool to_retire(const struct box *b, const struct keeper_retire *args)
{
    if (b->info.state == BOX_EMPTY || strcmp(b->info.tenant, args->tenant) != 0)
        return false;
    if (args->id[0])
        return strcmp(b->info.id, args->id) == 0;
    return b->info.tenant[0] && strcmp(b->info.project, args->project) == 0;
}

/* All that fit die; the answer goes out when the last of them is dead. */
void life_retire(struct keeper *k, const struct keeper_retire *args, const struct waiter *w)
{
    struct cove_err gone = { .code = COVE_GONE, .msg = "the sandbox was removed" };
    struct box *last = NULL;

    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct box *b = &k->boxes[i];

        if (!to_retire(b, args) || b->dead)
            continue;
        if (b->info.state != BOX_DYING) {
            waiters_fail(k, i, &gone);
            log_event(LOG_LEVEL_INFO, "sandbox retired", LOG_S("sandbox", b->info.id),
                      LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
            state_count(k->state, STATE_KEEPER, COUNT_BOXES_RETIRED, 1);
            death_begin(k, i);
        }
        if (!b->dead)
            last = b;
    }
    if (last)
        waiters_add(last, w);
    else
        keeper_answer(k, w, MSG_DONE, NULL, 0);
}

int life_extend(struct keeper *k, const struct keeper_extend *args, struct cove_err *e)
{
    uint32_t i;

    if (boxes_find_owned(k, args->tenant, args->id, &i, e) < 0)
        return -1;
    if (args->lifetime_ms == 0 || args->lifetime_ms > 365ULL * 86400000)
        return cove_fail(e, COVE_INVALID, "lifetime is not between 1 ms and 365 days");
    k->boxes[i].info.dies_at_ms = clock_boot_ms() + args->lifetime_ms;
    if (k->boxes[i].info.reuse_until_ms > k->boxes[i].info.dies_at_ms)
        k->boxes[i].info.reuse_until_ms = k->boxes[i].info.dies_at_ms;
    boxes_save(k, i);
    return 0;
}

int life_set_network(struct keeper *k, const struct keeper_network *args, struct cove_err *e)
{
    uint32_t i;

    if (boxes_find_owned(k, args->tenant, args->id, &i, e) < 0)
        return -1;
    return network_set(k, i, &args->rules, e);
}

int life_freeze(struct keeper *k, const struct keeper_which *args, bool freeze, struct cove_err *e)
{
    uint32_t i;
    struct box *b;

    if (boxes_find_owned(k, args->tenant, args->id, &i, e) < 0)
        return -1;
    b = &k->boxes[i];
    if (b->info.state == (freeze ? BOX_FROZEN : BOX_LIVE))
        return 0;
    if (b->info.state != (freeze ? BOX_LIVE : BOX_FROZEN))
        return cove_fail(e, COVE_CONFLICT, "sandbox '%s' can't be paused: it ages", b->info.id);
    return set_frozen(k, i, freeze, e);
}
