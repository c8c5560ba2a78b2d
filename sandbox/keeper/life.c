/* What a tenant may do with a sandbox that it has: pause it, change its end, its network, its
 * attributes, end it. */
#include <string.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

enum { FREEZE_LOOK_MS = 1, FREEZE_MAX_MS = 500 };

/* ------------------------------------------------------------------ its end */

/* A sandbox that is its own project can be used until its end. A named project's sandbox keeps its own,
 * earlier time. */
static void set_end(struct box_info *b, uint64_t lifetime_ms)
{
    b->dies_at_ms = clock_boot_ms() + lifetime_ms;
    if (b->flags & BOX_OWN_PROJECT || b->reuse_until_ms > b->dies_at_ms)
        b->reuse_until_ms = b->dies_at_ms;
}

/* Lets the project use its sandbox for longer, unless the project has another current sandbox by now. */
static void reuse_longer(struct box_info *b, uint64_t lifetime_ms)
{
    uint64_t until_ms = clock_boot_ms() + lifetime_ms;

    if (b->state != BOX_AGEING && b->reuse_until_ms < until_ms)
        b->reuse_until_ms = until_ms < b->dies_at_ms ? until_ms : b->dies_at_ms;
}

static void set_end_action(struct box_info *b, uint32_t extend_flags)
{
    if (extend_flags & EXTEND_END_FREEZES)
        b->flags |= BOX_END_FREEZES;
    if (extend_flags & EXTEND_END_KILLS)
        b->flags &= ~(uint32_t)BOX_END_FREEZES;
}

static int check_lifetime(uint64_t lifetime_ms, struct cove_err *e)
{
    return lifetime_ms <= LIFETIME_MAX_MS
               ? 0
               : cove_fail(e, COVE_INVALID, "lifetime is longer than 365 days");
}

int life_extend(struct keeper *k, const struct keeper_extend *args, struct cove_err *e)
{
    struct box_info *b;
    uint32_t i;

    if (boxes_find_owned(k, args->tenant, args->id, &i, e) < 0 ||
        check_lifetime(args->lifetime_ms, e) < 0)
        return -1;
    if (args->lifetime_ms == 0)
        return cove_fail(e, COVE_INVALID, "lifetime is 0");
    b = &k->boxes[i].info;
    if (!(args->flags & EXTEND_ONLY_LONGER) || b->dies_at_ms < clock_boot_ms() + args->lifetime_ms)
        set_end(b, args->lifetime_ms);
    if (args->flags & EXTEND_REUSE)
        reuse_longer(b, args->lifetime_ms);
    set_end_action(b, args->flags);
    boxes_save(k, i);
    return 0;
}

/* ------------------------------------------------------------------ pausing it */

/* Does not wait for the kernel: life_freeze_tick() sees later that all processes stand still. */
static int set_frozen(struct keeper *k, uint32_t i, bool freeze, struct cove_err *e)
{
    struct box_info *b = &k->boxes[i].info;

    if (cgroup_freeze_begin(&k->cgroups, b->id, freeze, e) < 0)
        return -1;
    b->frozen_ms = freeze ? clock_boot_ms() : 0;
    k->boxes[i].freeze_began_ms = b->frozen_ms;
    k->boxes[i].save_at_ms = 0;
    b->state = freeze ? BOX_FROZEN : BOX_LIVE;
    return 0;
}

static int freeze(struct keeper *k, uint32_t i, uint64_t lifetime_ms, struct cove_err *e)
{
    if (set_frozen(k, i, true, e) < 0)
        return -1;
    if (lifetime_ms)
        set_end(&k->boxes[i].info, lifetime_ms);
    boxes_save(k, i);
    return 0;
}

/* Some processes of the sandbox stand still and others do not, so all of them go on again. A sandbox whose
 * lifetime is over ends instead. */
static void give_up_freezing(struct keeper *k, uint32_t i)
{
    const struct box_info *b = &k->boxes[i].info;

    k->boxes[i].freeze_began_ms = 0;
    if (b->flags & BOX_FROZEN_AT_END)
        death_begin(k, i, END_EXPIRED, b->lifetime_ms);
    else
        life_thaw(k, i, 0, NULL);
}

void life_freeze_tick(struct keeper *k, uint32_t i, uint64_t now)
{
    struct box *b = &k->boxes[i];
    struct cove_err err = { 0 };

    if (cgroup_is_frozen(&k->cgroups, b->info.id)) {
        b->freeze_began_ms = 0;
        waiters_answer(k, i, MSG_DONE, NULL, 0);
    } else if (now < b->freeze_began_ms + FREEZE_MAX_MS) {
        b->freeze_look_ms = now + FREEZE_LOOK_MS;
    } else {
        cove_fail(&err, COVE_TIMEOUT, "sandbox '%s' did not freeze within %d ms", b->info.id,
                  FREEZE_MAX_MS);
        log_error("sandbox not frozen, it goes on", &err, LOG_S("tenant", b->info.tenant));
        waiters_fail(k, i, &err);
        give_up_freezing(k, i);
    }
}

int life_thaw(struct keeper *k, uint32_t i, uint64_t lifetime_ms, struct cove_err *e)
{
    const struct cove_err used = { .code = COVE_CONFLICT,
                                   .msg = "the sandbox was used while it was being paused" };
    struct box_info *b = &k->boxes[i].info;

    if (b->state != BOX_FROZEN)
        return 0;
    saving_cancel(k, i, "it was used while it was being saved");
    waiters_fail(k, i, &used);
    if (set_frozen(k, i, false, e) < 0)
        return -1;
    if (!lifetime_ms && b->flags & BOX_FROZEN_AT_END)
        lifetime_ms = b->lifetime_ms;
    b->flags &= ~(uint32_t)BOX_FROZEN_AT_END;
    if (lifetime_ms)
        set_end(b, lifetime_ms);
    boxes_save(k, i);
    return 0;
}

void life_keep_frozen(struct keeper *k, uint32_t i)
{
    k->boxes[i].info.flags |= BOX_FROZEN_AT_END;
    set_end(&k->boxes[i].info, k->config.paused_lifetime_ms);
    boxes_save(k, i);
}

int life_freeze_at_end(struct keeper *k, uint32_t i, struct cove_err *e)
{
    k->boxes[i].info.flags |= BOX_FROZEN_AT_END;
    if (freeze(k, i, k->config.paused_lifetime_ms, e) == 0)
        return 0;
    k->boxes[i].info.flags &= ~(uint32_t)BOX_FROZEN_AT_END;
    return -1;
}

static int find_to_freeze(struct keeper *k, const struct keeper_extend *args, uint32_t *ret,
                          struct cove_err *e)
{
    if (boxes_find_owned(k, args->tenant, args->id, ret, e) < 0 ||
        check_lifetime(args->lifetime_ms, e) < 0)
        return -1;
    if (k->boxes[*ret].info.state == BOX_AGEING)
        return cove_fail(e, COVE_CONFLICT,
                         "sandbox '%s' cannot be paused: a newer one has taken its place",
                         args->id);
    return 0;
}

int life_freeze(struct keeper *k, const struct keeper_extend *args, bool to_frozen,
                const struct waiter *w, struct cove_err *e)
{
    uint32_t i;
    struct box *b;

    if (find_to_freeze(k, args, &i, e) < 0)
        return -1;
    b = &k->boxes[i];
    set_end_action(&b->info, args->flags);
    if (!to_frozen && life_thaw(k, i, args->lifetime_ms, e) < 0)
        return -1;
    if (to_frozen && b->info.state == BOX_LIVE && freeze(k, i, args->lifetime_ms, e) < 0)
        return -1;
    boxes_save(k, i);
    if (w && to_frozen && b->freeze_began_ms)
        waiters_add(b, w);
    else if (w)
        keeper_answer(k, w, MSG_DONE, NULL, 0);
    return 0;
}

/* ------------------------------------------------------------------ its network and attributes */

int life_set_network(struct keeper *k, const struct keeper_network *args, struct cove_err *e)
{
    uint32_t i;

    if (boxes_find_owned(k, args->tenant, args->id, &i, e) < 0)
        return -1;
    return network_set(k, i, &args->rules, e);
}

int life_set_attributes(struct keeper *k, const struct keeper_which *args, int fd,
                        struct cove_err *e)
{
    uint32_t i;

    if (boxes_find_owned(k, args->tenant, args->id, &i, e) < 0)
        return -1;
    return attributes_copy(k, k->boxes[i].info.id, fd, e);
}

/* ------------------------------------------------------------------ ending it */

static bool to_retire(const struct box *b, const struct keeper_retire *args)
{
    if (b->info.state == BOX_EMPTY || strcmp(b->info.tenant, args->tenant) != 0)
        return false;
    if (args->id[0])
        return strcmp(b->info.id, args->id) == 0;
    return b->info.tenant[0] && strcmp(b->info.project, args->project) == 0;
}

/* Ends all sandboxes that the request names. The answer is sent when the last of them is dead. */
void life_retire(struct keeper *k, const struct keeper_retire *args, const struct waiter *w)
{
    struct cove_err gone = { .code = COVE_GONE, .msg = "the sandbox was removed" };
    struct box *first =
        args->id[0] ? boxes_by_id(k, args->id) : boxes_of_project(k, args->tenant, args->project);
    struct box *b, *last = NULL;

    for (b = first; b; b = args->id[0] ? NULL : LIST_NEXT(b, same_project)) {
        uint32_t i = (uint32_t)(b - k->boxes);

        if (!to_retire(b, args) || b->dead)
            continue;
        if (b->info.state != BOX_DYING) {
            saving_cancel(k, i, "it was removed while it was being saved");
            waiters_fail(k, i, &gone);
            log_event(LOG_LEVEL_INFO, "sandbox retired", LOG_S("sandbox", b->info.id),
                      LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
            state_count(k->state, STATE_KEEPER, COUNT_BOXES_RETIRED, 1);
            death_begin(k, i, END_KILLED, 0);
        }
        if (!b->dead)
            last = b;
    }
    saved_retire(k, args);
    ended_retire(k, args);
    if (last)
        waiters_add(last, w);
    else
        keeper_answer(k, w, MSG_DONE, NULL, 0);
}
