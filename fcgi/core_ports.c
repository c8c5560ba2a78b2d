/* Asks the gate to bind ports of a sandbox, to open them to others, to close them. */
#include "fcgi/core.h"

#include "cove/text.h"
#include "fcgi/caller.h"

int core_port_bind(struct core_session *s, const char *project, uint16_t port, uint16_t wanted,
                   uint16_t *ret_proxy_port, struct cove_err *e)
{
    struct gate_bind args = { .port = port, .proxy_port = wanted };

    text_copy(args.tenant, sizeof(args.tenant), s->tenant);
    text_copy(args.project, sizeof(args.project), project);
    text_copy(args.id, sizeof(args.id), s->box.id);
    return gate_bind(s->core->config->run_dir, &args, ret_proxy_port, e);
}

int core_port_access(struct core_session *s, uint16_t port, enum gate_access_word word,
                     struct cove_err *e)
{
    struct gate_access args = { .port = port, .word = (uint16_t)word };

    text_copy(args.tenant, sizeof(args.tenant), s->tenant);
    text_copy(args.id, sizeof(args.id), s->box.id);
    return gate_access(s->core->config->run_dir, &args, e);
}

int core_port_unbind(struct core *c, const char *tenant, const char *project, struct cove_err *e)
{
    struct gate_unbind args = { 0 };

    if (caller_may_project(c, project, e) < 0)
        return -1;
    text_copy(args.tenant, sizeof(args.tenant), tenant);
    text_copy(args.project, sizeof(args.project), project);
    return gate_unbind(c->config->run_dir, &args, e);
}
