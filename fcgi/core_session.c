/*
 * A sandbox by any of its names, and a conversation with it. A project that has none gets one from the keeper; a
 * sandbox that is paused runs again.
 */
#include "fcgi/core.h"

#include <string.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "cove/which.h"
#include "fcgi/caller.h"
#include "fcgi/core_snapshots.h"
#include "fcgi/kept.h"
#include "fcgi/shares.h"

/* ------------------------------------------------------------------ finding */

/* By its id a sandbox can be used as long as it lives; as a project's it is replaced after a while. */
static bool is_current(const struct which *w)
{
    return w->where == WHICH_SAVED ||
           (w->where == WHICH_HERE && (w->by_id || clock_boot_ms() < w->box.reuse_until_ms));
}

void core_template_of(struct core *c, const char *tenant, const struct which *w,
                      struct core_template *ret)
{
    const char *made = c->template ? c->template : c->config->template;
    bool known = is_current(w) && w->box.template[0];
    struct keeper_snapshot snapshot;

    if (!core_template_resolve(c, tenant, known ? w->box.template : made, ret) && !known &&
        c->template && core_snapshot_find(c, tenant, made, &snapshot, NULL) == 0)
        core_template_resolve(c, tenant, snapshot.template, ret);
}

/* By its project's name a sandbox is found until another takes its place; by its id until it dies. */
static void fill_box(const struct box_info *info, bool by_id, struct core_box *ret)
{
    uint64_t end_ms = by_id ? info->dies_at_ms : info->reuse_until_ms, now_ms = clock_boot_ms();

    ret->created_unix_ms = info->created_unix_ms;
    ret->expires_unix_ms = clock_unix_ms() + (end_ms > now_ms ? end_ms - now_ms : 0);
    text_copy(ret->template, sizeof(ret->template), info->template);
    text_copy(ret->snapshot, sizeof(ret->snapshot), info->snapshot);
}

static void take_known(const struct which *w, struct core_box *ret)
{
    *ret = (struct core_box){ .index = w->index, .generation = w->box.generation, .known = true };
    text_copy(ret->id, sizeof(ret->id), w->box.id);
    fill_box(&w->box, w->by_id, ret);
}

static int claim(struct core *c, const char *tenant, const char *project, struct core_box *ret,
                 struct cove_err *e)
{
    struct keeper_claim args = { 0 };
    struct keeper_box box;
    struct box_info info;

    args.dialect = c->dialect;
    args.key_sandboxes = caller_sandboxes(c);
    caller_key_id(c, args.key);
    if (!text_copy(args.tenant, sizeof(args.tenant), tenant) ||
        !text_copy(args.project, sizeof(args.project), project))
        return cove_fail(e, COVE_INVALID, "project: name too long");
    if (c->template &&
        !text_copy(args.template, sizeof(args.template), core_template_word(tenant, c->template)))
        return cove_fail(e, COVE_NOT_FOUND, "no template '%.60s'", c->template);
    if (keeper_claim(&c->keeper, &args, NULL, 0, &box, e) < 0)
        return -1;
    *ret = (struct core_box){ .index = box.index, .generation = box.generation };
    text_copy(ret->id, sizeof(ret->id), box.id);
    state_box_read(c->state, box.index, &info);
    fill_box(&info, false, ret);
    return 0;
}

/* The project's sandbox: the living one if it may still be reused, else one from the keeper. */
static int box_for_project(struct core *c, const char *tenant, const char *project,
                           const struct which *w, struct core_box *ret, struct cove_err *e)
{
    if (caller_may_project(c, project, e) < 0)
        return -1;
    /* also for a frozen one, which the keeper wakes */
    if (!is_current(w) || w->box.state != BOX_LIVE)
        return claim(c, tenant, project, ret, e);
    take_known(w, ret);
    return 0;
}

int core_retire(struct core *c, const char *tenant, const char *name, struct cove_err *e)
{
    struct keeper_retire args = { 0 };
    struct which w;

    text_copy(args.tenant, sizeof(args.tenant), tenant);
    if (which_sandbox_id(c->state, tenant, name, &w) != WHICH_NONE) {
        if (caller_may_box(c, &w.box, e) < 0)
            return -1;
        text_copy(args.id, sizeof(args.id), w.box.id);
        return keeper_retire(&c->keeper, &args, e);
    }
    if (caller_may_project(c, name, e) < 0)
        return -1;
    if (!text_copy(args.project, sizeof(args.project), name))
        return cove_fail(e, COVE_INVALID, "project: name too long");
    return keeper_retire(&c->keeper, &args, e);
}

int core_extend(struct core *c, const char *tenant, const char *name, uint64_t lifetime_ms,
                struct core_box *ret, struct cove_err *e)
{
    struct keeper_extend args = { .lifetime_ms = lifetime_ms,
                                  .flags = EXTEND_ONLY_LONGER | EXTEND_REUSE };
    struct which w;

    if (which_sandbox(c->state, tenant, name, &w) == WHICH_NONE)
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox: %.60s", name);
    if (caller_may_box(c, &w.box, e) < 0)
        return -1;
    text_copy(args.tenant, sizeof(args.tenant), tenant);
    text_copy(args.id, sizeof(args.id), w.box.id);
    if (keeper_extend(&c->keeper, &args, e) < 0)
        return -1;
    state_box_read(c->state, w.index, &w.box);
    take_known(&w, ret);
    return 0;
}

int core_network(struct core *c, const char *tenant, const char *id, const struct net_rules *rules,
                 struct cove_err *e)
{
    struct keeper_network args = { .rules = *rules };
    struct which w;

    if (which_sandbox_id(c->state, tenant, id, &w) == WHICH_NONE)
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox: %.24s", id);
    if (caller_may_box(c, &w.box, e) < 0)
        return -1;
    text_copy(args.tenant, sizeof(args.tenant), tenant);
    text_copy(args.id, sizeof(args.id), w.box.id);
    return keeper_network(&c->keeper, &args, e);
}

/* ------------------------------------------------------------------ talking */

void core_session_distrust(struct core_session *s)
{
    struct keeper_retire args = { 0 };
    struct box_info info;
    struct cove_err e;

    if (s->retired)
        return;
    /* The sandbox is ended only while it runs. A paused init answers nothing, and once a sandbox is saved, ending it by its id would
     * remove what was saved. */
    state_box_read(s->core->state, s->box.index, &info);
    if (info.generation != s->box.generation ||
        (info.state != BOX_LIVE && info.state != BOX_AGEING))
        return;
    s->retired = true;
    log_event(LOG_LEVEL_WARN, "sandbox misbehaves and is ended", LOG_S("sandbox", s->box.id),
              LOG_S("tenant", s->tenant));
    text_copy(args.tenant, sizeof(args.tenant), s->tenant);
    text_copy(args.id, sizeof(args.id), s->box.id);
    if (keeper_retire(&s->core->keeper, &args, &e) < 0)
        log_error("sandbox could not be ended", &e, LOG_S("sandbox", s->box.id));
}

/*
 * The commands of this request were judged by a template's rules. A sandbox may have been replaced
 * meanwhile by one of another template, with other rules: then nothing runs, and the client asks anew.
 */
static int check_judged(const struct core_session *s, struct cove_err *e)
{
    const char *judged = s->core->judged_template;

    if (!*judged || strcmp(judged, s->box.template) == 0)
        return 0;
    return cove_fail(e, COVE_BUSY, "the sandbox was replaced meanwhile, try again");
}

/* The sandbox's share of threads is taken before the connection is made, because an init that does not accept holds a
 * thread, too. */
static int connect_box(struct core_session *s, struct cove_err *e)
{
    struct core *c = s->core;

    if (!shares_take(c->box_shares, s->box.id, true, NULL)) {
        core_count(c, COUNT_OVERLOADED, 1);
        return cove_fail(e, COVE_BUSY,
                         "this sandbox has %u requests under way, try again in a second",
                         c->box_shares->most);
    }
    if (kept_take(c->kept, &s->box, &s->conn) ||
        box_open(c->config->run_dir, s->box.id, &s->conn, e) == 0)
        return 0;
    shares_release(c->box_shares, s->box.id, true);
    return -1;
}

static int begin_session(struct core_session *s, struct core_session *ret, struct cove_err *e)
{
    struct state_task *task = s->core->task;

    if (core_template_check(s, e) < 0 || check_judged(s, e) < 0) {
        box_close(&s->conn);
        shares_release(s->core->box_shares, s->box.id, true);
        return -1;
    }
    if (task) {
        task->box = s->box.index;
        task->generation = s->box.generation;
    }
    s->conn.buf = take_ptr(s->core->messages);
    caller_limits(s->core, s->tenant, s->box.template, &s->limits);
    core_template_begin(s);
    *ret = *s;
    return 0;
}

/* Wakes a paused sandbox. One that was saved, or is being saved, gets a new slot when it is awake. */
static int thaw_or_wake(struct core *c, const struct which *w, const struct keeper_extend *args,
                        struct keeper_box *ret, struct cove_err *e)
{
    if (w->where == WHICH_SAVED || w->box.flags & BOX_IS_SAVING)
        return keeper_wake(&c->keeper, args, ret, e);
    *ret = (struct keeper_box){ .index = w->index, .generation = w->box.generation };
    return keeper_thaw(&c->keeper, args, e);
}

int core_set_going(struct core *c, struct which *w, uint64_t lifetime_ms, struct cove_err *e)
{
    struct keeper_extend args = { .lifetime_ms = lifetime_ms };
    struct keeper_box box;

    if (!box_is_paused(&w->box))
        return 0;
    text_copy(args.tenant, sizeof(args.tenant), w->box.tenant);
    text_copy(args.id, sizeof(args.id), w->box.id);
    if (thaw_or_wake(c, w, &args, &box, e) < 0)
        return -1;
    w->where = WHICH_HERE;
    w->index = box.index;
    state_box_read(c->state, box.index, &w->box);
    if (w->box.generation == box.generation)
        return 0;
    return cove_fail(e, COVE_GONE, "the sandbox has ended");
}

int core_session_open_found(struct core *c, const char *tenant, struct which *w,
                            struct core_session *ret, struct cove_err *e)
{
    struct core_session s = { .core = c, .tenant = tenant };

    if (caller_may_box(c, &w->box, e) < 0 || core_set_going(c, w, 0, e) < 0)
        return -1;
    w->by_id = true; /* this very sandbox is meant, by whatever name it was found */
    take_known(w, &s.box);
    if (connect_box(&s, e) < 0)
        return -1;
    return begin_session(&s, ret, e);
}

int core_session_open_id(struct core *c, const char *tenant, const char *id,
                         struct core_session *ret, struct cove_err *e)
{
    struct which w;

    if (which_sandbox_id(c->state, tenant, id, &w) == WHICH_NONE)
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox: %.24s", id);
    return core_session_open_found(c, tenant, &w, ret, e);
}

int core_session_open(struct core *c, const char *tenant, const char *name,
                      struct core_session *ret, struct cove_err *e)
{
    struct core_session s = { .core = c, .tenant = tenant };
    struct which w;

    if (which_sandbox(c->state, tenant, name, &w) != WHICH_NONE && w.by_id)
        return core_session_open_found(c, tenant, &w, ret, e);
    if (box_for_project(c, tenant, name, &w, &s.box, e) < 0)
        return -1;
    if (connect_box(&s, e) < 0) {
        /* The sandbox may have ended since the lookup: then the keeper is asked. A sandbox that the keeper
         * named is not asked for again. */
        if (!s.box.known || e->code != COVE_GONE)
            return -1;
        if (claim(c, tenant, name, &s.box, e) < 0 || connect_box(&s, e) < 0)
            return -1;
    }
    return begin_session(&s, ret, e);
}

void core_session_close(struct core_session *s)
{
    if (s->conn.unanswered)
        core_session_distrust(s);
    core_template_end(s);
    shares_release(s->core->box_shares, s->box.id, true);
    kept_put(s->core->kept, &s->box, &s->conn);
    if (s->core->task && s->conn.sock > 0)
        core_task_close_later(s->core, take_fd(&s->conn.sock));
    if (s->core->task && !s->core->messages)
        s->core->messages = take_ptr(s->conn.buf);
    box_close(&s->conn);
}
