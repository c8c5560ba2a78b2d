/* One JSON-RPC message: read, checked against its headers and its session, answered. */
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cove/base64.h"
#include "cove/log.h"
#include "cove/text.h"
#include "fcgi/dialects/mcp.h"

#define META "io.modelcontextprotocol/"

/* ------------------------------------------------------------------ reading */

struct capabilities { /* of a client: nothing of cove's needs any */
    bool unused;
};

static const struct json_field capability_fields[] = { JSON_END };

struct meta {
    const char *version;
    struct capabilities *capabilities;
};

static const struct json_field meta_fields[] = {
    JSON_STR(struct meta, version, META "protocolVersion", JSON_OPTIONAL, 40),
    JSON_OBJECT(struct meta, capabilities, META "clientCapabilities", JSON_OPTIONAL,
                capability_fields),
    JSON_END,
};

struct params {
    const char *name, *uri, *cursor;
    struct meta *meta;
};

static const struct json_field params_fields[] = {
    JSON_STR(struct params, name, "name", JSON_OPTIONAL, MCP_ID_MAX),
    JSON_STR(struct params, uri, "uri", JSON_OPTIONAL, MCP_URI_MAX),
    JSON_STR(struct params, cursor, "cursor", JSON_OPTIONAL, MCP_URI_MAX),
    JSON_OBJECT(struct params, meta, "_meta", JSON_OPTIONAL, meta_fields),
    JSON_END,
};

struct head {
    const char *jsonrpc, *method;
};

static const struct json_field head_fields[] = {
    JSON_STR(struct head, jsonrpc, "jsonrpc", JSON_REQUIRED, 8),
    JSON_STR(struct head, method, "method", JSON_OPTIONAL, MCP_ID_MAX),
    JSON_END,
};

/* A text or a whole number; false: it is something else, or too long. */
static bool read_id(struct json_object *from, const char *name, struct mcp_id *ret)
{
    struct json_object *v = NULL;

    if (!from || !json_object_object_get_ex(from, name, &v))
        return true;
    ret->given = true;
    ret->is_text = json_object_is_type(v, json_type_string);
    if (!ret->is_text) {
        ret->number = v ? json_object_get_int64(v) : 0;
        return json_object_is_type(v, json_type_int);
    }
    ret->text = json_object_get_string(v);
    return json_object_get_string_len(v) <= MCP_ID_MAX &&
           text_is_utf8(ret->text, (size_t)json_object_get_string_len(v));
}

static struct json_object *member(struct json_object *of, const char *name)
{
    struct json_object *v = NULL;

    return of && json_object_object_get_ex(of, name, &v) && json_object_is_type(v, json_type_object)
               ? v
               : NULL;
}

static int read_head(struct mcp_call *c, struct json_object *message)
{
    struct head head = { 0 };
    struct cove_err e;

    if (!json_object_is_type(message, json_type_object))
        return mcp_refuse(c, MCP_REQUEST, "a message must be a JSON object");
    if (!read_id(message, "id", &c->id)) {
        c->id.given = false;
        return mcp_refuse(c, MCP_REQUEST,
                          "id: must be a whole number, or a text of at most %d bytes", MCP_ID_MAX);
    }
    if (json_read(&c->req->arena, message, head_fields, &head, &e) < 0)
        return mcp_refuse(c, MCP_REQUEST, "%s", e.msg);
    if (strcmp(head.jsonrpc, "2.0") != 0)
        return mcp_refuse(c, MCP_REQUEST, "jsonrpc: must be \"2.0\"");
    c->method = head.method;
    return 0;
}

static int read_params(struct mcp_call *c, struct json_object *message, struct params *ret)
{
    struct json_object *params = NULL;
    struct cove_err e;

    if (!json_object_object_get_ex(message, "params", &params))
        return 0;
    if (!json_object_is_type(params, json_type_object))
        return mcp_refuse(c, MCP_PARAMS, "params: must be an object");
    c->params = params;
    if (json_read(&c->req->arena, params, params_fields, ret, &e) < 0)
        return mcp_refuse(c, MCP_PARAMS, "params: %s", e.msg);
    if (!read_id(member(params, "_meta"), "progressToken", &c->progress))
        return mcp_refuse(c, MCP_PARAMS,
                          "params._meta.progressToken: must be a text or a whole number");
    c->arguments = member(params, "arguments");
    c->name = ret->name;
    c->uri = ret->uri;
    c->cursor = ret->cursor;
    return 0;
}

/* ------------------------------------------------------------------ which revision */

static const char *header(const struct mcp_call *c, const char *param)
{
    return request_param(c->req, param);
}

static int refuse_version(struct mcp_call *c, const char *requested)
{
    c->fault.requested = requested;
    return mcp_refuse(c, MCP_VERSION, "protocol version '%.40s' is not served here", requested);
}

/* A header's value may be wrapped as =?base64?...?= when it is not plain ASCII. */
static const char *header_text(struct mcp_call *c, const char *param)
{
    static const char open[] = "=?base64?";
    const char *value = header(c, param);
    size_t len = strlen(value), start = sizeof(open) - 1, out;
    char *text;

    if (len < start + 2 || strncmp(value, open, start) != 0 || strcmp(value + len - 2, "?=") != 0)
        return value;
    text = arena_alloc(&c->req->arena, len);
    if (base64_decode(value + start, len - start - 2, text, &out) < 0)
        return value;
    text[out] = '\0';
    return text;
}

static int check_headers(struct mcp_call *c)
{
    const char *target = c->name ? c->name : c->uri;
    bool named = strcmp(c->method, "tools/call") == 0 || strcmp(c->method, "prompts/get") == 0 ||
                 strcmp(c->method, "resources/read") == 0;

    if (strcmp(header(c, "HTTP_MCP_METHOD"), c->method) != 0)
        return mcp_refuse(c, MCP_HEADERS, "Mcp-Method: does not say what the body's method says");
    if (named && target && strcmp(header_text(c, "HTTP_MCP_NAME"), target) != 0)
        return mcp_refuse(c, MCP_HEADERS, "Mcp-Name: does not say what the body's params say");
    return 0;
}

static int check_modern(struct mcp_call *c, const struct meta *meta)
{
    const char *version = header(c, "HTTP_MCP_PROTOCOL_VERSION");

    c->version = MCP_MODERN;
    if (!meta || !meta->version)
        return mcp_refuse(c, MCP_PARAMS, "params._meta: " META "protocolVersion is missing");
    if (strcmp(version, meta->version) != 0)
        return mcp_refuse(c, MCP_HEADERS,
                          "MCP-Protocol-Version: does not say what params._meta says");
    if (strcmp(meta->version, MCP_MODERN) != 0)
        return refuse_version(c, meta->version);
    if (!meta->capabilities)
        return mcp_refuse(c, MCP_PARAMS, "params._meta: " META "clientCapabilities is missing");
    return check_headers(c);
}

static bool is_known_version(const char *version)
{
    static const char *const known[] = { MCP_LATEST, "2025-06-18", "2025-03-26" };

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(known[i], version) == 0)
            return true;
    return false;
}

static int check_session(struct mcp_call *c)
{
    const char *version = header(c, "HTTP_MCP_PROTOCOL_VERSION");
    const char *id = header(c, "HTTP_MCP_SESSION_ID");

    if (*version && !is_known_version(version))
        return refuse_version(c, version);
    if (strcmp(c->method, "initialize") == 0)
        return 0;
    if (!*id) {
        mcp_refuse(c, MCP_SERVER, "Mcp-Session-Id: is missing: send initialize first");
        c->fault.status = 400;
        return -1;
    }
    if (!mcp_session_check(c->req, id, &c->version)) {
        mcp_refuse(c, MCP_SERVER,
                   "Mcp-Session-Id: no such session, or it has ended: send initialize");
        c->fault.status = 404;
        return -1;
    }
    c->session = id;
    return 0;
}

static bool is_answer(struct json_object *message)
{
    return json_object_object_get_ex(message, "result", NULL) ||
           json_object_object_get_ex(message, "error", NULL);
}

static int read_message(struct mcp_call *c, struct json_object *message)
{
    const char *version = header(c, "HTTP_MCP_PROTOCOL_VERSION");
    struct params params = { 0 };

    if (read_head(c, message) < 0)
        return -1;
    c->modern = strcmp(version, MCP_MODERN) == 0;
    if (!c->method) /* a client's answer: nothing was asked, so nothing waits for it */
        return is_answer(message) ? 0 : mcp_refuse(c, MCP_REQUEST, "method: is missing");
    if (read_params(c, message, &params) < 0)
        return -1;
    c->modern = c->modern || (params.meta && params.meta->version);
    return c->modern ? check_modern(c, params.meta) : check_session(c);
}

/* ------------------------------------------------------------------ answering */

int mcp_refuse(struct mcp_call *c, int code, const char *fmt, ...)
{
    char text[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    c->fault.code = code;
    c->fault.message = arena_strdup(&c->req->arena, text);
    return -1;
}

void mcp_put_id(struct json_writer *w, const char *name, const struct mcp_id *id)
{
    if (!id->given)
        json_put_null(w, name);
    else if (id->is_text)
        json_put_str(w, name, id->text);
    else
        json_put_int(w, name, id->number);
}

static void begin_message(struct mcp_call *c)
{
    struct buf *out;

    if (c->streaming) {
        buf_clear(&c->nowhere);
        if (c->replay.all)
            out = mcp_replay_open(c, "message");
        else
            out = stream_open_frame(&c->stream,
                                    &(struct frame){ .id = c->event_id, .name = "message" });
        json_writer_init(&c->frame, out ? out : &c->nowhere);
        c->w = &c->frame;
    }
    json_open(c->w, NULL, '{');
    json_put_str(c->w, "jsonrpc", "2.0");
}

static void end_message(struct mcp_call *c)
{
    json_close(c->w, '}');
    if (!c->streaming)
        return;
    if (c->replay.all)
        mcp_replay_close(c);
    else
        stream_close_frame(&c->stream);
    stream_send(&c->stream);
}

/* What HTTP says to an error that JSON-RPC has told. The older revisions tell most of them with 200. */
static int status_of(const struct mcp_call *c)
{
    if (c->fault.status)
        return c->fault.status;
    if (c->fault.code == MCP_METHOD)
        return c->modern ? 404 : 200;
    if (c->fault.code == MCP_PARAMS)
        return c->modern && !c->fault.uri ? 400 : 200;
    return c->fault.code == MCP_INTERNAL || c->fault.code == MCP_NO_RESOURCE ? 200 : 400;
}

static void put_data(struct mcp_call *c)
{
    if (!c->fault.uri && !c->fault.requested)
        return;
    json_open(c->w, "data", '{');
    if (c->fault.uri)
        json_put_str(c->w, "uri", c->fault.uri);
    if (c->fault.requested) {
        json_open(c->w, "supported", '[');
        json_put_str(c->w, NULL, MCP_MODERN);
        json_put_str(c->w, NULL, MCP_LATEST);
        json_close(c->w, ']');
        json_put_str(c->w, "requested", c->fault.requested);
    }
    json_close(c->w, '}');
}

void mcp_write_fault(struct mcp_call *c)
{
    if (!c->streaming && !c->batched)
        c->rep->status = status_of(c);
    c->req->note.cause = "rpc";
    begin_message(c);
    mcp_put_id(c->w, "id", &c->id);
    json_open(c->w, "error", '{');
    json_put_int(c->w, "code", c->fault.code);
    json_put_str(c->w, "message", c->fault.message);
    put_data(c);
    json_close(c->w, '}');
    end_message(c);
    c->answered = true;
}

void mcp_result_begin(struct mcp_call *c)
{
    begin_message(c);
    mcp_put_id(c->w, "id", &c->id);
    json_open(c->w, "result", '{');
    if (!c->modern)
        return;
    json_put_str(c->w, "resultType", "complete");
    json_open(c->w, "_meta", '{');
    if (strcmp(c->method, "subscriptions/listen") == 0)
        mcp_put_id(c->w, META "subscriptionId", &c->id);
    json_open(c->w, META "serverInfo", '{');
    json_put_str(c->w, "name", "cove");
    json_put_str(c->w, "version", COVE_VERSION);
    json_close(c->w, '}');
    json_close(c->w, '}');
}

void mcp_result_end(struct mcp_call *c)
{
    json_close(c->w, '}');
    end_message(c);
    c->answered = true;
}

void mcp_notification_begin(struct mcp_call *c, const char *method)
{
    begin_message(c);
    json_put_str(c->w, "method", method);
    json_open(c->w, "params", '{');
    if (!c->modern || strcmp(c->method, "subscriptions/listen") != 0)
        return;
    json_open(c->w, "_meta", '{');
    mcp_put_id(c->w, META "subscriptionId", &c->id);
    json_close(c->w, '}');
}

void mcp_notification_end(struct mcp_call *c)
{
    json_close(c->w, '}');
    end_message(c);
}

void mcp_put_progress(struct mcp_call *c, int64_t more, const char *message, size_t len)
{
    if (!c->streaming || !c->progress.given)
        return;
    c->progressed += more;
    mcp_notification_begin(c, "notifications/progress");
    mcp_put_id(c->w, "progressToken", &c->progress);
    json_put_int(c->w, "progress", c->progressed);
    json_put_text(c->w, "message", message, len);
    mcp_notification_end(c);
}

void mcp_put_cache(struct mcp_call *c, int64_t ttl_ms)
{
    if (!c->modern)
        return;
    json_put_int(c->w, "ttlMs", ttl_ms);
    json_put_str(c->w, "cacheScope", ttl_ms > 0 ? "public" : "private");
}

/* ------------------------------------------------------------------ streams */

bool mcp_accepts_stream(const struct request *req)
{
    return strstr(request_param(req, "HTTP_ACCEPT"), "text/event-stream") != NULL;
}

enum { LOOK_MS = 250, HEARTBEAT_TICKS = 60 };

/* Has another request of the session cancelled this one, or did its client leave for good? Looked for
 * four times a second, while a heartbeat for proxies is sent every 15 s. */
static void look_for_cancel(struct stream *s, void *arg)
{
    struct mcp_call *c = arg;

    replay_prolong(&c->replay);
    if (mcp_is_cancelled(c) || (s->gone && mcp_is_forsaken(c))) {
        s->gone = true; /* the source ends; nothing was cut, so the stream can still be ended */
        s->keep = false;
    } else if (s->gone) {
        return;
    } else if (++c->quiet_ticks % HEARTBEAT_TICKS == 0) {
        buf_add_str(&s->rep->body, s->framing->heartbeat);
    }
}

void mcp_begin_stream(struct mcp_call *c)
{
    if (c->streaming || c->batched || !mcp_accepts_stream(c->req))
        return;
    stream_init(&c->stream, c->req, c->rep, &framing_sse);
    if (c->session) {
        c->stream.idle_ms = LOOK_MS;
        c->stream.heartbeat = look_for_cancel;
        c->stream.heartbeat_arg = c;
    }
    mcp_replay_begin(c);
    stream_begin(&c->stream);
    buf_init(&c->nowhere, c->replay.all ? STREAM_BUFFER_MAX : 64 * 1024);
    c->streaming = true;
    mcp_put_first_id(c);
}

static void end_stream(struct mcp_call *c)
{
    if (c->cancelled && !c->rep->ended)
        c->stream.gone = false;
    replay_end(&c->replay);
    stream_end(&c->stream);
    buf_done(&c->nowhere);
}

/* ------------------------------------------------------------------ all of it */

static void fail_internal(struct mcp_call *c, const struct cove_err *e)
{
    if (e->code == COVE_INTERNAL)
        log_error("request failed", e, LOG_S("request_id", c->req->request_id));
    mcp_refuse(c, e->code == COVE_INVALID ? MCP_PARAMS : MCP_INTERNAL, "%s", e->msg);
}

static void run_method(struct mcp_call *c)
{
    mcp_method *method = mcp_find_method(c);
    struct cove_err e = { 0 };

    c->req->note.operation = arena_printf(&c->req->arena, "mcp %.60s", c->method);
    if (!method)
        mcp_refuse(c, MCP_METHOD, "method '%.60s' is not known in revision %s", c->method,
                   c->version ? c->version : MCP_LATEST);
    else if (method(c, &e) < 0 && !c->fault.code)
        fail_internal(c, &e);
}

bool mcp_serve_message(struct mcp_call *c, struct json_object *message)
{
    bool is_request = true;

    if (read_message(c, message) == 0) {
        is_request = c->method && c->id.given;
        if (c->method)
            run_method(c);
    }
    if (c->fault.code && !c->answered && (is_request || c->fault.status))
        mcp_write_fault(c);
    if (c->streaming)
        end_stream(c);
    return c->answered || c->streaming;
}
