/* May these commands run? Every dialect asks this before it starts a command. */

#include "cove/dialect.h"
#include "cove/keys.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "cove/which.h"
#include "fcgi/caller.h"
#include "fcgi/core.h"

static const char *find_forbidden(const struct policy *policy, const struct policy_query *query,
                                  const struct core_ask *ask, struct policy_result *ret)
{
    size_t i = policy_check_all(policy, query, ask->commands, ask->count, ret);

    return i < ask->count ? ask->commands[i] : NULL;
}

static bool client_is_gone(void *core)
{
    return core_client_has_left(((const struct core *)core)->client_fd);
}

/* The fields of an audit line that tell who asked, and in which sandbox the command would have run, if the project
 * has one. */
static struct keeper_audit_entry entry_of(const struct core *c, const struct core_ask *ask,
                                          const struct box_info *box, const char *event)
{
    return (struct keeper_audit_entry){
        .event = event,
        .dialect = dialect_name(ask->dialect),
        .tenant = ask->tenant,
        .key = c->caller && c->caller->key ? c->caller->key->name : NULL,
        .project = ask->project,
        .sandbox = box->id,
    };
}

static void record_refusal(struct core *c, const struct core_ask *ask, const struct box_info *box,
                           const struct core_permit *p)
{
    struct keeper_audit_entry entry = entry_of(c, ask, box, "refused");

    entry.rule = p->verdict.rule;
    entry.form = policy_form_name(p->verdict.form);
    entry.command = p->forbidden;
    core_count(c, COUNT_REFUSALS, 1);
    core_audit(c, &entry);
}

/* With `audit = all` a command is written down before it runs, so that none runs unseen. */
static void record_permitted(struct core *c, const struct core_ask *ask, const struct box_info *box)
{
    for (size_t i = 0; i < ask->count; i++) {
        struct keeper_audit_entry entry = entry_of(c, ask, box, "ran");

        entry.command = ask->commands[i];
        core_audit(c, &entry);
    }
}

int core_permit_get(struct core *c, const struct core_ask *ask, struct core_permit *ret,
                    struct cove_err *e)
{
    struct core_permit p = { .policy = live_get(c->policy), .filter.fd = -1 };
    struct policy_query query = { .dialect = dialect_name(ask->dialect),
                                  .tenant = ask->tenant,
                                  .gone = client_is_gone,
                                  .gone_arg = c };
    struct core_template template;
    struct which w;

    which_sandbox(c->state, ask->tenant, ask->project ? ask->project : "", &w);
    core_template_of(c, ask->tenant, &w, &template);
    query.template = template.policy;
    query.profile = template.seccomp[0] ? template.seccomp : NULL;
    text_copy(c->judged_template, sizeof(c->judged_template), template.name);
    if (!p.policy)
        return cove_fail(e, COVE_BUSY, "no policy is loaded, so nothing may run");
    p.forbidden = find_forbidden(policy_set_policy(p.policy->value), &query, ask, &p.verdict);
    if (p.forbidden && p.verdict.gone) {
        live_put(p.policy);
        return cove_fail(e, COVE_GONE, "the client has left");
    }
    if (p.forbidden) {
        record_refusal(c, ask, &w.box, &p);
    } else if (policy_set_filter(p.policy->value, &query, &p.filter, e) < 0) {
        live_put(p.policy);
        return -1;
    } else if (policy_audit_all(policy_set_policy(p.policy->value), &query)) {
        record_permitted(c, ask, &w.box);
    }
    *ret = p;
    return 0;
}

int core_permit_one(struct core *c, uint32_t dialect, const char *tenant, const char *name,
                    const char *command, struct core_permit *ret, struct cove_err *e)
{
    struct core_ask ask = {
        .dialect = dialect,
        .tenant = tenant,
        .project = name,
        .commands = &command,
        .count = 1,
    };

    return core_permit_get(c, &ask, ret, e);
}

void core_permit_put(struct core_permit *p)
{
    if (p->policy)
        live_put(take_ptr(p->policy));
}
