/* Ports of a sandbox that anybody may reach by their host name, from expose-port to unexpose-port. */

#include "fcgi/dialects/agent.h"
#include "fcgi/port_links.h"

struct port_args {
    const char *sandbox;
    int64_t port;
};

static const struct json_field port_fields[] = {
    JSON_STR(struct port_args, sandbox, "sandbox_id", JSON_REQUIRED, AGENT_NAME_MAX),
    JSON_INT(struct port_args, port, "port", JSON_REQUIRED, 1, 65535),
    JSON_END,
};

struct exposed {
    bool success;
    const char *url, *message;
};

static const struct json_field exposed_fields[] = {
    JSON_BOOL(struct exposed, success, "success", JSON_REQUIRED),
    JSON_STR(struct exposed, url, "url", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct exposed, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

/* The gate has its own way into the sandbox: the conversation only shows that the sandbox is there, and
 * wakes it. */
static int set_access(struct request *req, enum gate_access_word word, struct core_session *session,
                      uint16_t *ret_port, struct cove_err *e)
{
    struct port_args args = { 0 };

    if (request_json(req, port_fields, &args, e) < 0 ||
        agent_open(req, args.sandbox, session, e) < 0)
        return -1;
    core_session_close(session);
    *ret_port = (uint16_t)args.port;
    return core_port_access(session, *ret_port, word, e);
}

int agent_expose_port(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    uint16_t port;

    req->note.operation = "expose_port";
    if (set_access(req, GATE_ACCESS_PUBLIC, &session, &port, e) < 0)
        return -1;
    return agent_reply(
        rep, exposed_fields,
        &(struct exposed){
            .success = true,
            .url = port_origin(req, session.box.id, port),
            .message = arena_printf(&req->arena, "Port %u exposed successfully", port),
        });
}

int agent_unexpose_port(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    uint16_t port;

    req->note.operation = "unexpose_port";
    if (set_access(req, GATE_ACCESS_PRIVATE, &session, &port, e) < 0)
        return -1;
    return agent_reply_done(rep, arena_printf(&req->arena, "Port %u is no longer exposed", port));
}
