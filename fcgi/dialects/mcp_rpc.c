/* One JSON-RPC message from its beginning to its end: read (mcp_message.c), done, answered. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cove/log.h"
#include "fcgi/dialects/mcp.h"

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

/* What is written into c->w between these two is one message: the whole reply, one of a batch, or a frame. */
static void begin_message(struct mcp_call *c)
{
    struct buf *out;

    if (!c->streaming)
        return;
    buf_clear(&c->nowhere);
    if (c->replay.all)
        out = mcp_replay_open(c, "message");
    else
        out =
            stream_open_frame(&c->stream, &(struct frame){ .id = c->event_id, .name = "message" });
    json_writer_init(&c->frame, out ? out : &c->nowhere);
    c->w = &c->frame;
}

static void end_message(struct mcp_call *c)
{
    if (!c->streaming)
        return;
    if (c->replay.all)
        mcp_replay_close(c);
    else
        stream_close_frame(&c->stream);
    stream_send(&c->stream);
}

/* The HTTP status of a JSON-RPC error. The older revisions use 200 for most of them. */
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

struct fault_data {
    const char *uri, *requested;
    struct json_strings supported;
};

static const struct json_field fault_data_fields[] = {
    JSON_STR(struct fault_data, uri, "uri", JSON_OPTIONAL, JSON_ANY),
    JSON_STR_ARRAY(struct fault_data, supported, "supported", JSON_OPTIONAL, JSON_ANY, JSON_ANY),
    JSON_STR(struct fault_data, requested, "requested", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

struct fault {
    int64_t code;
    const char *message;
    struct fault_data *data;
};

static const struct json_field fault_fields[] = {
    JSON_INT(struct fault, code, "code", JSON_REQUIRED, INT32_MIN, INT32_MAX),
    JSON_STR(struct fault, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_OBJECT(struct fault, data, "data", JSON_OPTIONAL, fault_data_fields),
    JSON_END,
};

struct fault_message {
    const char *jsonrpc;
    struct json_text id;
    struct fault *fault;
};

static const struct json_field fault_message_fields[] = {
    JSON_STR(struct fault_message, jsonrpc, "jsonrpc", JSON_REQUIRED, JSON_ANY),
    JSON_RAW(struct fault_message, id, "id", JSON_NULLABLE),
    JSON_OBJECT(struct fault_message, fault, "error", JSON_REQUIRED, fault_fields),
    JSON_END,
};

void mcp_put_fault(struct json_writer *w, const struct json_text *id, const struct mcp_fault *f)
{
    struct fault_data data = { .uri = f->uri, .requested = f->requested };
    struct fault fault = {
        .code = f->code,
        .message = f->message,
        .data = f->uri || f->requested ? &data : NULL,
    };

    if (f->requested)
        data.supported = mcp_versions();
    json_put_object(w, NULL, fault_message_fields, &(struct fault_message){ "2.0", *id, &fault });
}

void mcp_write_fault(struct mcp_call *c)
{
    if (!c->streaming && !c->batched)
        c->rep->status = status_of(c);
    c->req->note.cause = "rpc";
    begin_message(c);
    mcp_put_fault(c->w, &c->id, &c->fault);
    end_message(c);
    c->answered = true;
}

struct server {
    const char *name, *version;
};

static const struct json_field server_fields[] = {
    JSON_STR(struct server, name, "name", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct server, version, "version", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

struct meta {
    struct json_text subscription; /* the id of the subscriptions/listen that this belongs to */
    const struct server *server;
};

static const struct json_field meta_fields[] = {
    JSON_RAW(struct meta, subscription, MCP_META "subscriptionId", JSON_OPTIONAL),
    JSON_OBJECT(struct meta, server, MCP_META "serverInfo", JSON_OPTIONAL, server_fields),
    JSON_END,
};

struct inner { /* the first members of "result" and "params" in the newest revision */
    const char *type;
    struct meta *meta;
};

static const struct json_field inner_fields[] = {
    JSON_STR(struct inner, type, "resultType", JSON_OPTIONAL, JSON_ANY),
    JSON_OBJECT(struct inner, meta, "_meta", JSON_OPTIONAL, meta_fields),
    JSON_END,
};

static void open_message(struct mcp_call *c, const struct mcp_head *head, const char *content)
{
    begin_message(c);
    json_open(c->w, NULL, '{');
    json_put_members(c->w, mcp_head_fields, head);
    json_open(c->w, content, '{');
}

static void close_message(struct mcp_call *c)
{
    json_close(c->w, '}');
    json_close(c->w, '}');
    end_message(c);
}

static struct json_text subscription_of(const struct mcp_call *c)
{
    return strcmp(c->method, "subscriptions/listen") == 0 ? c->id : (struct json_text){ 0 };
}

void mcp_result_begin(struct mcp_call *c)
{
    static const struct server server = { "cove", COVE_VERSION };
    struct meta meta = { .server = &server };

    open_message(c, &(struct mcp_head){ .jsonrpc = "2.0", .id = c->id }, "result");
    if (!c->modern)
        return;
    meta.subscription = subscription_of(c);
    json_put_members(c->w, inner_fields, &(struct inner){ "complete", &meta });
}

void mcp_result_end(struct mcp_call *c)
{
    close_message(c);
    c->answered = true;
}

void mcp_notification_begin(struct mcp_call *c, const char *method)
{
    struct meta meta = { 0 };

    open_message(c, &(struct mcp_head){ .jsonrpc = "2.0", .method = method }, "params");
    meta.subscription = c->modern ? subscription_of(c) : meta.subscription;
    if (meta.subscription.bytes)
        json_put_members(c->w, inner_fields, &(struct inner){ .meta = &meta });
}

void mcp_notification_end(struct mcp_call *c)
{
    close_message(c);
}

struct mcp_progress {
    struct json_text token, message;
    int64_t progress;
};

static const struct json_field progress_fields[] = {
    JSON_RAW(struct mcp_progress, token, "progressToken", JSON_REQUIRED),
    JSON_INT(struct mcp_progress, progress, "progress", JSON_REQUIRED, 0, INT64_MAX),
    JSON_TEXT(struct mcp_progress, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

void mcp_put_progress(struct mcp_call *c, int64_t more, const char *message, size_t len)
{
    if (!c->streaming || !c->progress.bytes)
        return;
    c->progressed += more;
    mcp_notification_begin(c, "notifications/progress");
    json_put_members(c->w, progress_fields,
                     &(struct mcp_progress){ c->progress, { message, len }, c->progressed });
    mcp_notification_end(c);
}

struct cache {
    int64_t ttl_ms;
    const char *scope;
};

static const struct json_field cache_fields[] = {
    JSON_INT(struct cache, ttl_ms, "ttlMs", JSON_REQUIRED, 0, INT64_MAX),
    JSON_STR(struct cache, scope, "cacheScope", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

void mcp_put_cache(struct mcp_call *c, int64_t ttl_ms)
{
    if (c->modern)
        json_put_members(c->w, cache_fields,
                         &(struct cache){ ttl_ms, ttl_ms > 0 ? "public" : "private" });
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

    if (mcp_read_message(c, message) == 0) {
        is_request = c->method && c->id.bytes;
        if (c->method)
            run_method(c);
    }
    if (c->fault.code && !c->answered && (is_request || c->fault.status))
        mcp_write_fault(c);
    if (c->streaming)
        end_stream(c);
    return c->answered || c->streaming;
}
