/* One JSON-RPC message from its beginning to its end: read (mcp_message.c), done, answered. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cove/log.h"
#include "cove/text.h"
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
        mcp_put_versions(c->w, "supported");
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
        mcp_put_id(c->w, MCP_META "subscriptionId", &c->id);
    json_open(c->w, MCP_META "serverInfo", '{');
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
    mcp_put_id(c->w, MCP_META "subscriptionId", &c->id);
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

    if (mcp_read_message(c, message) == 0) {
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
