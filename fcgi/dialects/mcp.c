/*
 * The Model Context Protocol over HTTP: one address for the stateless revision and for the older ones with
 * sessions. /mcp and /mcp/SANDBOX on the main host, and 6060-ID.DOMAIN (agent_mcp_port) for sandboxes of the agent dialect.
 */
#include "fcgi/dialects/mcp.h"

#include <json-c/json.h>
#include <string.h>
#include <strings.h>

#include "cove/dialect.h"
#include "cove/which.h"
#include "fcgi/check.h"
#include "fcgi/dialects/dialects.h"

#define DEFAULT_PROJECT "default"
#define BATCHES         "2025-03-26" /* the one revision that has them */

enum { BATCH_MAX = 16 };

static int post(struct request *req, struct reply *rep, struct cove_err *e);
static int listen_to(struct request *req, struct reply *rep, struct cove_err *e);
static int end_session(struct request *req, struct reply *rep, struct cove_err *e);

static const struct route mcp_routes[] = {
    { POST, "/mcp", post, ROUTE_LONG },
    { GET, "/mcp", listen_to, ROUTE_LONG },
    { DELETE, "/mcp", end_session, 0 },
    { POST, "/mcp/{sandbox}", post, ROUTE_LONG },
    { GET, "/mcp/{sandbox}", listen_to, ROUTE_LONG },
    { DELETE, "/mcp/{sandbox}", end_session, 0 },
};

static const struct route mcp_port_routes[] = {
    { POST, "/", post, ROUTE_LONG },
    { GET, "/", listen_to, ROUTE_LONG },
    { DELETE, "/", end_session, 0 },
    { POST, "/mcp", post, ROUTE_LONG },
    { GET, "/mcp", listen_to, ROUTE_LONG },
    { DELETE, "/mcp", end_session, 0 },
    { GET, "/health", dialect_health, ROUTE_OPEN },
};

/* ------------------------------------------------------------------ which sandbox */

static bool is_port(const struct request *req)
{
    return req->host_box && req->core && req->host_port == req->core->config->agent_mcp_port;
}

/* 6060-ID.DOMAIN, or /mcp/NAME. */
static const char *addressed(const struct request *req)
{
    if (req->host_box)
        return is_port(req) ? req->host_box : NULL;
    return req->segment_count == 2 && strcmp(req->segments[0], "mcp") == 0 ? req->segments[1]
                                                                           : NULL;
}

const char *mcp_sandbox_name(const struct request *req)
{
    const char *given[] = {
        addressed(req),
        request_param(req, "HTTP_X_SANDBOX_ID"),
        request_param(req, "HTTP_X_PROJECT_ID"),
        request_query(req, "sandbox"),
    };

    for (size_t i = 0; i < ARRAY_SIZE(given); i++)
        if (given[i] && *given[i])
            return given[i];
    return DEFAULT_PROJECT;
}

/* An id means that very sandbox, which is not made anew when it has ended; any other name is a
 * project's, which gets a sandbox when it has none. */
int mcp_open(struct mcp_call *c, struct core_session *ret, struct cove_err *e)
{
    struct request *req = c->req;
    const char *name = mcp_sandbox_name(req);
    int rc;

    if (req->host_box || which_id(name)) {
        rc = core_session_open_id(req->core, req->tenant, name, ret, e);
    } else {
        if (check_project("sandbox", name, e) < 0)
            return -1;
        req->note.project = arena_strdup(&req->arena, name);
        rc = core_session_open(req->core, req->tenant, name, ret, e);
    }
    if (rc == 0)
        req->note.sandbox = arena_strdup(&req->arena, ret->box.id);
    return rc;
}

/* ------------------------------------------------------------------ origins */

/* An allowed "http://localhost:*" fits an origin with any port, and one without a port. */
static bool origin_fits(const char *allowed, size_t len, const char *origin)
{
    if (len > 2 && strncmp(allowed + len - 2, ":*", 2) == 0) {
        len -= 2;
        return strncasecmp(allowed, origin, len) == 0 &&
               (origin[len] == '\0' ||
                (origin[len] == ':' &&
                 origin[len + 1 + strspn(origin + len + 1, "0123456789")] == '\0'));
    }
    return strlen(origin) == len && strncasecmp(allowed, origin, len) == 0;
}

/* A page of another site must not use this server with its visitor's credentials, whatever cors_origins allows.
 * Programs send no Origin. */
static int check_origin(const struct request *req, struct cove_err *e)
{
    const char *origin = request_param(req, "HTTP_ORIGIN");
    const char *allowed = req->core ? req->core->config->mcp_origins : "";

    if (!*origin)
        return 0;
    while (*allowed) {
        size_t len = strcspn(allowed, " ");

        if (origin_fits(allowed, len, origin))
            return 0;
        allowed += len;
        allowed += strspn(allowed, " ");
    }
    return cove_fail(e, COVE_FORBIDDEN, "Origin: '%.80s' is not in mcp_origins", origin);
}

/* ------------------------------------------------------------------ POST */

static struct mcp_call call_of(struct request *req, struct reply *rep)
{
    return (struct mcp_call){ .req = req, .rep = rep, .w = &rep->json };
}

static void serve_one(struct request *req, struct reply *rep, struct json_object *message)
{
    struct mcp_call c = call_of(req, rep);

    if (!mcp_serve_message(&c, message))
        rep->status = 202;
}

static void refuse_body(struct request *req, struct reply *rep, int code, const char *message)
{
    struct mcp_call c = call_of(req, rep);

    mcp_refuse(&c, code, "%s", message);
    mcp_write_fault(&c);
}

static bool is_batch(const struct request *req)
{
    size_t blanks = req->body.data ? strspn(req->body.data, " \t\r\n") : 0;

    return req->body.data && req->body.data[blanks] == '[';
}

static void serve_batch_of(struct request *req, struct reply *rep, struct json_object *list)
{
    size_t count = json_object_array_length(list), answers = 0;

    json_open(&rep->json, NULL, '[');
    for (size_t i = 0; i < count; i++) {
        struct mcp_call c = call_of(req, rep);

        c.batched = true;
        answers += mcp_serve_message(&c, json_object_array_get_idx(list, i));
    }
    json_close(&rep->json, ']');
    if (answers > 0)
        return;
    reply_clear(rep);
    rep->status = 202;
}

struct batch {
    struct json_text list;
};

static const struct json_field batch_fields[] = {
    JSON_RAW(struct batch, list, "batch", JSON_REQUIRED),
    JSON_END,
};

/* json_parse() takes only objects, so the list is made the one member of an object. */
static void serve_batch(struct request *req, struct reply *rep)
{
    AUTO_BUF struct buf text = BUF(req->body.len + 16);
    struct json_object *tree = NULL, *list = NULL;
    struct json_writer w;
    size_t weight = json_weight(req->body.data, req->body.len), count;
    struct cove_err e;

    text.budget = req->body.budget;
    json_writer_init(&w, &text);
    json_put_object(&w, NULL, batch_fields,
                    &(struct batch){ .list = { req->body.data, req->body.len } });
    if (text.overflow || !budget_take(req->body.budget, weight)) {
        rep->status = 503;
        return;
    }
    if (json_parse(text.data, text.len, &tree, &e) < 0) {
        refuse_body(req, rep, MCP_PARSE, e.msg);
    } else {
        json_object_object_get_ex(tree, "batch", &list);
        count = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
        if (count < 1 || count > BATCH_MAX)
            refuse_body(req, rep, MCP_REQUEST, "a batch has 1 to 16 messages");
        else
            serve_batch_of(req, rep, list);
    }
    json_free(tree);
    budget_give(req->body.budget, weight);
}

static bool may_batch(const struct request *req)
{
    const char *version = "";

    return mcp_session_check(req, request_param(req, "HTTP_MCP_SESSION_ID"), &version) &&
           strcmp(version, BATCHES) == 0;
}

static int post(struct request *req, struct reply *rep, struct cove_err *e)
{
    static const struct json_field nothing[] = { JSON_END };
    struct cove_err why;

    req->note.operation = "mcp";
    if (check_origin(req, e) < 0)
        return -1;
    if (is_batch(req) && may_batch(req))
        serve_batch(req, rep);
    else if (is_batch(req))
        refuse_body(req, rep, MCP_REQUEST, "batches are only part of revision " BATCHES);
    else if (request_json(req, nothing, NULL, &why) < 0 && why.code == COVE_BUSY)
        return cove_fail(e, COVE_BUSY, "%s", why.msg);
    else if (!req->json)
        refuse_body(req, rep, MCP_PARSE, why.msg);
    else
        serve_one(req, rep, req->json);
    return 0;
}

/* ------------------------------------------------------------------ GET and DELETE of a session */

static int find_session(struct request *req, struct reply *rep, const char **ret_version,
                        struct cove_err *e)
{
    const char *id = request_param(req, "HTTP_MCP_SESSION_ID");

    if (check_origin(req, e) < 0)
        return -1;
    if (!*id) {
        reply_header(rep, "Allow", "POST");
        return cove_fail(e, COVE_METHOD, "without Mcp-Session-Id there is only POST");
    }
    if (!mcp_session_check(req, id, ret_version))
        return cove_fail(e, COVE_NOT_FOUND, "Mcp-Session-Id: no such session, or it has ended");
    return 0;
}

static int listen_to(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct mcp_call c = call_of(req, rep);
    const char *last = request_param(req, "HTTP_LAST_EVENT_ID");

    req->note.operation = "mcp stream";
    if (find_session(req, rep, &c.version, e) < 0)
        return -1;
    if (!mcp_accepts_stream(req))
        return cove_fail(e, COVE_INVALID, "Accept: must allow text/event-stream");
    c.session = request_param(req, "HTTP_MCP_SESSION_ID");
    c.method = "";
    if (req->method != GET)
        return 0;
    if (*last && strcmp(last, MCP_WATCH_ID) != 0)
        return mcp_resume(&c, last, e);
    mcp_serve_stream(&c, *last != '\0');
    return 0;
}

static int end_session(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *version;

    req->note.operation = "mcp end";
    if (find_session(req, rep, &version, e) < 0)
        return -1;
    mcp_session_end(req, request_param(req, "HTTP_MCP_SESSION_ID"));
    rep->status = 204;
    return 0;
}

/* ------------------------------------------------------------------ the dialect */

/* What goes wrong before a message is read has the shape of an answer to a message without an id. */
static void on_error(struct request *req, struct reply *rep, const struct cove_err *e)
{
    struct mcp_call c = call_of(req, rep);

    mcp_refuse(&c, MCP_SERVER, "%s", e->msg);
    c.fault.status = reply_error_status(NULL, 0, e->code);
    mcp_write_fault(&c);
    req->note.cause = cove_code_name(e->code);
}

#define MCP_REQUEST_HEADERS                                                                        \
    ", Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Last-Event-ID, X-Sandbox-Id"

const struct dialect mcp_dialect = {
    .name = "mcp",
    .base = "",
    .routes = mcp_routes,
    .route_count = ARRAY_SIZE(mcp_routes),
    .headers = MCP_REQUEST_HEADERS,
    .addressed = addressed,
    .on_error = on_error,
};

const struct dialect mcp_port_dialect = {
    .name = "mcp",
    .base = "",
    .routes = mcp_port_routes,
    .route_count = ARRAY_SIZE(mcp_port_routes),
    .host_port = HOST_PORT_MEANT,
    .host_maker = DIALECT_AGENT,
    .is_meant = is_port,
    .on_error = on_error,
};
