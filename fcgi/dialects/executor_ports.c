/* One port of the sandbox, reachable from outside through the gate. */
#include <string.h>

#include "cove/config.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/dialects/executor.h"
#include "fcgi/port_access.h"

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

/* A string in the document; a number is what many would send. */
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

/* The document knows one proxy port. It is the one of the first tenant's project `default`. */
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
    core_session_close(&session); /* the gate has its own way in; the sandbox is there now */
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

static int read_access(const char *word, enum gate_access_word *ret, struct cove_err *e)
{
    static const char *const words[] = { [GATE_ACCESS_DEFAULT] = "default",
                                         [GATE_ACCESS_PUBLIC] = "public",
                                         [GATE_ACCESS_PRIVATE] = "private" };

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(words[i], word) == 0) {
            *ret = (enum gate_access_word)i;
            return 0;
        }
    }
    return cove_fail(e, COVE_INVALID, "access: must be public, private or default");
}

/* https://PORT-ID.DOMAIN, where DOMAIN is the name by which the client came here, without the label of a
 * sandbox's port if it has one. */
static const char *origin_of(struct request *req, const char *id, unsigned port)
{
    const char *host = request_param(req, "COVE_AUTHORITY");

    if (req->host_box)
        host += strcspn(host, ".") + (strchr(host, '.') != NULL);
    return arena_printf(&req->arena, "%s://%u-%s.%s", request_param(req, "REQUEST_SCHEME"), port,
                        id, host);
}

int executor_port_access(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct access_args args = { 0 };
    enum gate_access_word word = GATE_ACCESS_DEFAULT;
    struct core_session session;
    uint16_t port = 0;

    req->note.operation = "port_access";
    if (decode_port(req, &port, e) < 0 || request_json(req, access_fields, &args, e) < 0 ||
        read_access(args.access, &word, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    core_session_close(&session);
    if (core_port_access(&session, port, word, e) < 0)
        return -1;
    return executor_reply(rep, &(struct executor_result){
                                   .success = true,
                                   .message = "Port access configured",
                                   .url = origin_of(req, session.box.id, port),
                               });
}

int executor_port_link(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct access_args args = { .seconds = 3600 };
    struct core_session session;
    char token[PORT_TOKEN_MAX];
    uint16_t port = 0;

    req->note.operation = "port_link";
    if (decode_port(req, &port, e) < 0 || request_json(req, link_fields, &args, e) < 0 ||
        executor_open(req, &session, e) < 0)
        return -1;
    core_session_close(&session);
    if (!req->core->token_secret)
        return cove_fail(e, COVE_UNSUPPORTED, "this server has no secret to sign links with");
    port_token_make(req->core->token_secret, session.box.id, port,
                    clock_unix_ms() / 1000 + (uint64_t)args.seconds, token);
    return executor_reply(rep, &(struct executor_result){
                                   .success = true,
                                   .message = "Signed link",
                                   .url = arena_printf(&req->arena, "%s/.cove/open?token=%s&to=/",
                                                       origin_of(req, session.box.id, port), token),
                               });
}
