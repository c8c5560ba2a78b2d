/* May these commands run? The question every dialect asks before its first spawn. */
#include <string.h>

#include "cove/dialect.h"
#include "cove/mem.h"
#include "fcgi/core.h"

static const char *find_forbidden(const struct policy *policy, const struct policy_query *query,
                                  const struct core_ask *ask, struct policy_result *ret)
{
    for (size_t i = 0; i < ask->count; i++) {
        policy_check(policy, query, ask->commands[i], strlen(ask->commands[i]), ret);
        if (ret->denied)
            return ask->commands[i];
    }
    return NULL;
}

static void record_refusal(struct core *c, const struct core_ask *ask, const struct core_permit *p)
{
    struct keeper_audit_entry entry = {
        .event = "refused",
        .dialect = dialect_name(ask->dialect),
        .tenant = ask->tenant,
        .project = ask->project,
        .rule = p->verdict.rule,
        .form = policy_form_name(p->verdict.form),
        .command = p->forbidden,
    };

    core_count(c, COUNT_REFUSALS, 1);
    core_audit(c, &entry);
}

/* With `audit = all`: what may run is written down before it does, so that nothing runs unseen. */
static void record_permitted(struct core *c, const struct core_ask *ask)
{
    for (size_t i = 0; i < ask->count; i++) {
        struct keeper_audit_entry entry = {
            .event = "ran",
            .dialect = dialect_name(ask->dialect),
            .tenant = ask->tenant,
            .project = ask->project,
            .command = ask->commands[i],
        };

        core_audit(c, &entry);
    }
}

int core_permit_get(struct core *c, const struct core_ask *ask, struct core_permit *ret,
                    struct cove_err *e)
{
    struct core_permit p = { .policy = live_get(c->policy), .filter.fd = -1 };
    struct policy_query query = {
        .dialect = dialect_name(ask->dialect),
        .tenant = ask->tenant,
        .template = c->config->template,
    };

    if (!p.policy)
        return cove_fail(e, COVE_BUSY, "no policy is loaded, so nothing may run");
    p.forbidden = find_forbidden(policy_set_policy(p.policy->value), &query, ask, &p.verdict);
    if (p.forbidden) {
        record_refusal(c, ask, &p);
    } else if (policy_set_filter(p.policy->value, &query, &p.filter, e) < 0) {
        live_put(p.policy);
        return -1;
    } else if (policy_audit_all(policy_set_policy(p.policy->value), &query)) {
        record_permitted(c, ask);
    }
    *ret = p;
    return 0;
}

void core_permit_put(struct core_permit *p)
{
    if (p->policy)
        live_put(take_ptr(p->policy));
}
