#include "fcgi/core_sandboxes.h"

#include <stdio.h>
#include <string.h>

#include "cove/samples.h"
#include "cove/text.h"
#include "cove/which.h"
#include "fcgi/caller.h"
#include "fcgi/core_snapshots.h"

enum { WAKE_MIN_MS = 5 * 60 * 1000 };

/* The keeper has answered that the sandbox of this name has ended: reads its record. */
static int find_once(struct core *c, const struct core_new *args, struct box_info *ret,
                     struct cove_err *e)
{
    if (e->code != COVE_CONFLICT || !args->once ||
        !which_ended_project(c->state, args->tenant, args->once, ret) ||
        caller_may_box(c, ret, e) < 0)
        return -1;
    if (args->ret_made)
        *args->ret_made = false;
    return 0;
}

int core_sandbox_create(struct core *c, const struct core_new *args, struct box_info *ret,
                        struct cove_err *e)
{
    struct keeper_claim claim = {
        .flags = (args->once ? 0 : CLAIM_OWN_PROJECT) |
                 (args->attributes->auto_pause ? CLAIM_END_FREEZES : 0),
        .dialect = args->dialect,
        .key_sandboxes = caller_sandboxes(c),
        .lifetime_ms = args->lifetime_ms,
        .reuse_ms = args->once ? args->lifetime_ms : 0,
        .keep_ended_s = args->keep_ended_s,
    };
    AUTO_BUF struct buf attributes;
    struct keeper_box box;

    buf_init(&attributes, COVE_ATTRIBUTES_MAX);
    caller_key_id(c, claim.key);
    if (args->once && !text_copy(claim.project, sizeof(claim.project), args->once))
        return cove_fail(e, COVE_INVALID, "the name is longer than %zu bytes",
                         sizeof(claim.project) - 1);
    if (caller_may_project(c, claim.project, e) < 0)
        return -1;
    if (args->template && !text_copy(claim.template, sizeof(claim.template),
                                     core_template_word(args->tenant, args->template)))
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s…' not found", args->template);
    text_copy(claim.tenant, sizeof(claim.tenant), args->tenant);
    if (core_attributes_write(args->attributes, &attributes, e) < 0)
        return -1;
    if (keeper_claim(&c->keeper, &claim, attributes.data, attributes.len, &box, e) < 0)
        return find_once(c, args, ret, e);
    if (args->ret_made)
        *args->ret_made = box.created;
    state_box_read(c->state, box.index, ret);
    return 0;
}

int core_sandbox_find(struct core *c, const char *tenant, const char *id, struct box_info *ret,
                      struct cove_err *e)
{
    struct which w;

    if (!text_is_id(id) || which_sandbox_id(c->state, tenant, id, &w) == WHICH_NONE ||
        caller_may_box(c, &w.box, e) < 0)
        return cove_fail(e, COVE_NOT_FOUND,
                         "Sandbox \"%.40s\" doesn't exist or you don't have access to it", id);
    *ret = w.box;
    return 0;
}

static bool is_listed(const struct box_info *b)
{
    return b->state == BOX_LIVE || b->state == BOX_AGEING || b->state == BOX_ENDED ||
           box_is_paused(b);
}

static bool list_table(struct core *c, const struct state *table, const char *tenant,
                       int (*each)(void *arg, const struct box_info *box), void *arg)
{
    uint32_t count = table ? state_box_count(table) : 0;

    for (uint32_t i = 0; i < count; i++) {
        struct box_info box;

        state_box_read(table, i, &box);
        if (is_listed(&box) && strcmp(box.tenant, tenant) == 0 &&
            caller_may_box(c, &box, NULL) == 0 && each(arg, &box) != 0)
            return false;
    }
    return true;
}

void core_sandbox_list(struct core *c, const char *tenant,
                       int (*each)(void *arg, const struct box_info *box), void *arg)
{
    if (list_table(c, c->state, tenant, each, arg))
        list_table(c, state_saved(c->state), tenant, each, arg);
}

void core_sandbox_list_ended(struct core *c, const char *tenant,
                             int (*each)(void *arg, const struct box_info *box), void *arg)
{
    list_table(c, state_ended(c->state), tenant, each, arg);
}

int core_sandbox_find_ended(struct core *c, const char *tenant, const char *name,
                            struct box_info *ret, struct cove_err *e)
{
    if (!which_ended_id(c->state, tenant, name, ret) || caller_may_box(c, ret, e) < 0)
        return cove_fail(e, COVE_NOT_FOUND, "sandbox '%.80s' not found", name);
    return 0;
}

int core_sandbox_describe(struct core *c, const struct box_info *box,
                          const struct core_attributes *attributes, struct cove_err *e)
{
    struct keeper_which which = { 0 };
    AUTO_BUF struct buf text;

    buf_init(&text, COVE_ATTRIBUTES_MAX);
    text_copy(which.tenant, sizeof(which.tenant), box->tenant);
    text_copy(which.id, sizeof(which.id), box->id);
    if (core_attributes_write(attributes, &text, e) < 0)
        return -1;
    return keeper_attributes(&c->keeper, &which, text.data, text.len, e);
}

int core_sandbox_wake(struct core *c, struct which *w, struct cove_err *e)
{
    uint64_t ms = w->box.lifetime_ms > WAKE_MIN_MS ? w->box.lifetime_ms : WAKE_MIN_MS;

    return core_set_going(c, w, ms, e);
}

int core_sandbox_kill(struct core *c, const struct box_info *box, struct cove_err *e)
{
    struct keeper_retire args = { 0 };

    text_copy(args.tenant, sizeof(args.tenant), box->tenant);
    text_copy(args.id, sizeof(args.id), box->id);
    return keeper_retire(&c->keeper, &args, e);
}

static struct keeper_extend extend_args(const struct box_info *box, uint64_t lifetime_ms)
{
    struct keeper_extend args = { .lifetime_ms = lifetime_ms };

    text_copy(args.tenant, sizeof(args.tenant), box->tenant);
    text_copy(args.id, sizeof(args.id), box->id);
    return args;
}

int core_sandbox_extend(struct core *c, const struct box_info *box, uint64_t lifetime_ms,
                        bool only_longer, struct cove_err *e)
{
    struct keeper_extend args = extend_args(box, lifetime_ms);

    args.flags = EXTEND_REUSE | (only_longer ? EXTEND_ONLY_LONGER : 0);
    return keeper_extend(&c->keeper, &args, e);
}

int core_sandbox_schedule(struct core *c, const struct box_info *box, uint64_t lifetime_ms,
                          bool pauses, struct cove_err *e)
{
    struct keeper_extend args = extend_args(box, lifetime_ms);

    args.flags = pauses ? EXTEND_END_FREEZES : EXTEND_END_KILLS;
    return keeper_extend(&c->keeper, &args, e);
}

int core_sandbox_pause(struct core *c, const struct box_info *box, struct cove_err *e)
{
    struct keeper_extend args = extend_args(box, 0);
    struct limits limits;

    if (box_is_paused(box))
        return cove_fail(e, COVE_CONFLICT, "Sandbox \"%s\" is already paused", box->id);
    caller_limits(c, box->tenant, box->template, &limits);
    if (limits.pause_way == PAUSE_SAVES)
        return core_sandbox_save(c, box, e);
    return keeper_freeze(&c->keeper, &args, e);
}

int core_sandbox_save(struct core *c, const struct box_info *box, struct cove_err *e)
{
    struct keeper_which args = { 0 };

    if (box->state == BOX_SAVED)
        return cove_fail(e, COVE_CONFLICT, "Sandbox \"%s\" is already paused", box->id);
    text_copy(args.tenant, sizeof(args.tenant), box->tenant);
    text_copy(args.id, sizeof(args.id), box->id);
    return keeper_save(&c->keeper, &args, e);
}

int core_sandbox_resume(struct core *c, const struct box_info *box, uint64_t lifetime_ms,
                        struct cove_err *e)
{
    struct keeper_extend args = extend_args(box, lifetime_ms);
    struct keeper_box woken;

    if (box->state == BOX_SAVED || box->flags & BOX_IS_SAVING)
        return keeper_wake(&c->keeper, &args, &woken, e);
    return keeper_thaw(&c->keeper, &args, e);
}

uint64_t core_sandbox_ends_unix_ms(const struct box_info *box)
{
    uint64_t end = box_is_paused(box) && box->frozen_ms ? box->frozen_ms : box->dies_at_ms;

    return box->created_unix_ms + (end - box->created_ms);
}

int core_sandbox_samples(struct core *c, const struct box_info *box, struct sample_ring *ret,
                         struct cove_err *e)
{
    struct which found;
    char path[256];

    ret->count = 0;
    snprintf(path, sizeof(path), "%s/samples", c->config->run_dir);
    if (which_sandbox_id(c->state, box->tenant, box->id, &found) != WHICH_HERE)
        return 0;
    return samples_read(path, found.index, found.box.generation, ret, e);
}
