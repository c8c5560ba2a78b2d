/* /process_logs_streaming: what a process wrote, then what it writes, until it ends. */
#include <string.h>

#include "cove/text.h"
#include "fcgi/dialects/executor.h"
#include "fcgi/sse.h"

enum { HISTORY_LINES = 10000 };

struct logs_args {
    const char *id;
    const char *since; /* the id of the last event that the client has; NULL = all there is */
};

static const struct json_field logs_fields[] = {
    JSON_STR(struct logs_args, id, "id", JSON_REQUIRED, 128),
    JSON_STR(struct logs_args, since, "since", JSON_OPTIONAL, LOG_PLACE_TEXT),
    JSON_END,
};

struct logs {
    struct request *req;
    struct reply *rep;
    char place[LOG_PLACE_TEXT]; /* the id of the last event */
};

static void begin_event(struct logs *l, const char *name, const struct log_place *place)
{
    if (place)
        log_place_format(place, l->place);
    sse_event(l->rep, l->place, name);
}

static int tell_line(void *arg, const struct log_line *line)
{
    struct logs *l = arg;
    char time[32];

    text_format_time(line->unix_ms, time);
    begin_event(l, "log", &line->place);
    reply_str(l->rep, "timestamp", time, strlen(time));
    reply_str(l->rep, "stream", line->stream == RUN_STDOUT ? "stdout" : "stderr", 6);
    reply_str(l->rep, "data", line->text, line->len);
    if (line->goes_on)
        reply_bool(l->rep, "partial", true);
    sse_event_end(l->rep);
    return sse_flush_some(l->rep, l->req);
}

/* The process was faster than this client; others are not concerned. No field `stream`: it is no
 * line of it. */
static int tell_gap(void *arg, enum run_stream stream, uint64_t lost_bytes,
                    const struct log_place *place)
{
    struct logs *l = arg;

    begin_event(l, "gap", place);
    reply_str(l->rep, "of", stream == RUN_STDOUT ? "stdout" : "stderr", 6);
    reply_num(l->rep, "lost_bytes", (long long)lost_bytes);
    sse_event_end(l->rep);
    return sse_flush_some(l->rep, l->req);
}

static int tell_pause(void *arg, bool idle)
{
    struct logs *l = arg;

    if (idle)
        return sse_heartbeat(l->rep, l->req);
    return l->rep->body.len > 0 ? reply_flush(l->rep, l->req) : 0;
}

static void tell_end(struct logs *l, int rc, const struct cove_err *e, const char *id)
{
    const char *text = e->msg;

    if (rc == 0) {
        begin_event(l, "complete", NULL);
        reply_str(l->rep, "message", "stream ended", 12);
        sse_event_end(l->rep);
        return;
    }
    if (e->code == COVE_NOT_FOUND)
        text = arena_printf(&l->req->arena, "process not found: %s", id);
    l->req->note.cause = cove_code_name(e->code);
    begin_event(l, "error", NULL);
    reply_str(l->rep, "error", text, strlen(text));
    sse_event_end(l->rep);
}

/* ------------------------------------------------------------------ the request */

static int decode(struct request *req, struct logs_args *ret, struct cove_err *e)
{
    const char *last = request_param(req, "HTTP_LAST_EVENT_ID");

    *ret =
        (struct logs_args){ .id = request_query(req, "id"), .since = request_query(req, "since") };
    if (req->method == POST && !ret->id && json_decode(req, logs_fields, ret, e) < 0)
        return -1;
    if (!ret->id || !*ret->id)
        return cove_fail(e, COVE_INVALID, "id: is missing");
    if (!ret->since && *last)
        ret->since = last; /* what a browser's EventSource sends when it comes back */
    return 0;
}

static void stream(struct logs *l, struct core_session *session, const struct logs_args *args,
                   const struct log_place *since)
{
    struct log_follow follow = {
        .label = args->id,
        .since = since,
        .lines_max = HISTORY_LINES,
        .idle_ms = SSE_IDLE_MS,
        .client_fd = l->req->client_fd,
        .line = tell_line,
        .gap = tell_gap,
        .pause = tell_pause,
        .arg = l,
    };
    struct cove_err e = { 0 };
    int rc;

    sse_begin(l->rep, l->req);
    if (l->req->method == HEAD)
        return;
    rc = core_log_follow(session, &follow, &e);
    if (rc == 1) {
        l->req->note.cause = "client";
        return;
    }
    tell_end(l, rc, &e, args->id);
    reply_flush(l->rep, l->req);
}

int executor_logs(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct logs l = { .req = req, .rep = rep };
    struct log_place since = { { 0, 0 } };
    struct core_session session;
    struct logs_args args;

    req->note.operation = "process_logs_streaming";
    if (decode(req, &args, e) < 0)
        return -1;
    if (args.since && log_place_parse(args.since, &since, e) < 0)
        return cove_context(e, "since");
    if (executor_open(req, &session, e) < 0)
        return -1;
    log_place_format(&since, l.place);
    stream(&l, &session, &args, args.since ? &since : NULL);
    core_session_close(&session);
    return 0;
}
