/* One port of the sandbox, reachable from outside through the gate. */
#include <string.h>

#include "cove/config.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/dialects/executor.h"
#include "fcgi/port_access.h"
#include "fcgi/port_links.h"

struct port_args {
    const char *text;
    int64_t number;
};

static const struct json_field text_fields[] = {
    JSON_STR(struct port_args, text, "port", JSON_REQUIRED, 16),
    JSON_END,
};

static const struct json_field number_fields[] = {
    JSON_INT(struct port_args, number, "port", JSON_REQUIRED, 1, 65535),
    JSON_END,
};

/* Takes the port as a string, as the document has it, or as a number, which many clients send. */
static int decode_port(struct request *req, uint16_t *ret, struct cove_err *e)
{
    struct port_args args = { 0 };
    struct cove_err ignored;
    uint64_t port;

    if (request_json(req, number_fields, &args, &ignored) == 0) {
        *ret = (uint16_t)args.number;
        return 0;
    }
    if (request_json(req, text_fields, &args, e) < 0)
        return -1;
    if (text_parse_u64(args.text, &port, &ignored) < 0 || port < 1 || port > 65535)
        return cove_fail(e, COVE_INVALID, "port: '%.16s' is not a number from 1 to 65535",
                         args.text);
    *ret = (uint16_t)port;
    return 0;
}

static int reply_conflict(struct reply *rep, const char *current)
{
    rep->status = 409;
    return executor_reply(rep, &(struct executor_result){
                                   .error = "Port already bound",
                                   .current_port = current,
                               });
}

static int reply_bound(struct request *req, struct reply *rep, uint16_t port, uint16_t proxy_port)
{
    return executor_reply(rep, &(struct executor_result){
                                   .success = true,
                                   .message = "Port binding configured",
                                   .port = arena_printf(&req->arena, "%u", port),
                                   .proxy_port = proxy_port,
                               });
}

/* The document knows one proxy port. It belongs to the project `default` of the first tenant. */
static uint16_t documented_port(struct request *req)
{
    bool first = strcmp(executor_project(req), "default") == 0 &&
                 caller_is_first_tenant(req->core, req->tenant);

    return first ? (uint16_t)req->core->config->proxy_port : 0;
}

int executor_bind_port(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    uint16_t port = 0, proxy_port = 0;

    req->note.operation = "bind_port";
    if (decode_port(req, &port, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    core_session_close(&session); /* the gate has its own way into the sandbox, which exists now */
    if (core_port_bind(&session, executor_project(req), port, documented_port(req), &proxy_port,
                       e) == 0)
        return reply_bound(req, rep, port, proxy_port);
    return e->code == COVE_CONFLICT ? reply_conflict(rep, e->msg) : -1;
}

int executor_unbind_port(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "unbind_port";
    if (core_port_unbind(req->core, req->tenant, executor_project(req), e) < 0)
        return -1;
    return executor_reply(
        rep, &(struct executor_result){ .success = true, .message = "Port binding removed" });
}

/* ------------------------------------------------------------------ by host name (extensions) */

struct access_args {
    const char *access;
    int64_t seconds;
};

static const struct json_field access_fields[] = {
    JSON_STR(struct access_args, access, "access", JSON_REQUIRED, 16),
    JSON_END,
};

static const struct json_field link_fields[] = {
    JSON_INT(struct access_args, seconds, "seconds", JSON_OPTIONAL, 1, 7 * 86400),
    JSON_END,
};

int executor_port_access(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct access_args args = { 0 };
    enum gate_access_word word = GATE_ACCESS_DEFAULT;
    struct core_session session;
    uint16_t port = 0;

    req->note.operation = "port_access";
    if (decode_port(req, &port, e) < 0 || request_json(req, access_fields, &args, e) < 0 ||
        port_access_word(args.access, &word, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    core_session_close(&session);
    if (core_port_access(&session, port, word, e) < 0)
        return -1;
    return executor_reply(rep, &(struct executor_result){
                                   .success = true,
                                   .message = "Port access configured",
                                   .url = port_origin(req, session.box.id, port),
                               });
}

int executor_port_link(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct access_args args = { .seconds = 3600 };
    struct core_session session;
    const char *url;
    uint16_t port = 0;

    req->note.operation = "port_link";
    if (decode_port(req, &port, e) < 0 || request_json(req, link_fields, &args, e) < 0 ||
        executor_open(req, &session, e) < 0)
        return -1;
    core_session_close(&session);
    url = port_link(req, session.box.id, port, (uint64_t)args.seconds, e);
    if (!url)
        return -1;
    return executor_reply(rep, &(struct executor_result){
                                   .success = true,
                                   .message = "Signed link",
                                   .url = url,
                               });
}
