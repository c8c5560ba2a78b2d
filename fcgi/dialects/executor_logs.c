/* /process_logs_streaming: what a process wrote, then what it writes, until it ends. */

#include "fcgi/dialects/executor.h"
#include "fcgi/stream.h"

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
    struct stream stream;
    char place[LOG_PLACE_TEXT]; /* the id of the last event */
};

/* The fields of all kinds of events; each kind has its own table. */
struct event {
    uint64_t unix_ms;
    const char *stream;
    struct json_text data;
    bool partial;
    int64_t lost_bytes;
    const char *message;
};

static const struct json_field log_fields[] = {
    JSON_TIME(struct event, unix_ms, "timestamp", JSON_REQUIRED),
    JSON_STR(struct event, stream, "stream", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct event, data, "data", JSON_REQUIRED, JSON_ANY),
    JSON_BOOL(struct event, partial, "partial", JSON_OPTIONAL),
    JSON_END,
};

/* There is no field `stream`, because a gap is not a line of a stream. */
static const struct json_field gap_fields[] = {
    JSON_STR(struct event, stream, "of", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct event, lost_bytes, "lost_bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

static const struct json_field complete_fields[] = {
    JSON_STR(struct event, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static const struct json_field error_fields[] = {
    JSON_STR(struct event, message, "error", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static const char *stream_name(enum run_stream stream)
{
    return stream == RUN_STDOUT ? "stdout" : "stderr";
}

static void tell(struct logs *l, const char *name, const struct log_place *place,
                 const struct json_field *fields, const struct event *event)
{
    if (place)
        log_place_format(place, l->place);
    stream_event(&l->stream, &(struct frame){ .id = l->place, .name = name }, fields, event);
}

static void tell_line(void *arg, const struct log_line *line)
{
    struct logs *l = arg;

    tell(l, "log", &line->place, log_fields,
         &(struct event){
             .unix_ms = line->unix_ms,
             .stream = stream_name(line->stream),
             .data = { line->text, line->len },
             .partial = line->goes_on,
         });
}

/* The process wrote faster than this client read; other clients are not concerned. */
static void tell_gap(void *arg, enum run_stream stream, uint64_t lost_bytes,
                     const struct log_place *place)
{
    struct logs *l = arg;

    tell(l, "gap", place, gap_fields,
         &(struct event){ .stream = stream_name(stream), .lost_bytes = (int64_t)lost_bytes });
}

static void tell_end(struct logs *l, int rc, const struct cove_err *e, const char *id)
{
    const char *text = e->msg;

    if (rc == 0) {
        tell(l, "complete", NULL, complete_fields, &(struct event){ .message = "stream ended" });
        return;
    }
    if (e->code == COVE_NOT_FOUND)
        text = arena_printf(&l->req->arena, "process not found: %s", id);
    l->req->note.cause = cove_code_name(e->code);
    tell(l, "error", NULL, error_fields, &(struct event){ .message = text });
}

/* ------------------------------------------------------------------ the request */

static int decode(struct request *req, struct logs_args *ret, struct cove_err *e)
{
    const char *last = request_param(req, "HTTP_LAST_EVENT_ID");

    *ret =
        (struct logs_args){ .id = request_query(req, "id"), .since = request_query(req, "since") };
    if (req->method == POST && !ret->id && request_json(req, logs_fields, ret, e) < 0)
        return -1;
    if (!ret->id || !*ret->id)
        return cove_fail(e, COVE_INVALID, "id: is missing");
    if (!ret->since && *last)
        ret->since = last; /* what a browser's EventSource sends when it comes back */
    return 0;
}

static void follow_log(struct logs *l, struct core_session *session, const struct logs_args *args,
                       const struct log_place *since)
{
    struct log_follow follow = {
        .label = args->id,
        .since = since,
        .lines_max = HISTORY_LINES,
        .client_fd = l->req->client_fd,
        .stream = &l->stream,
        .line = tell_line,
        .gap = tell_gap,
        .arg = l,
    };
    struct cove_err e = { 0 };
    int rc;

    stream_begin(&l->stream);
    if (l->req->method != HEAD) {
        rc = core_log_follow(session, &follow, &e);
        if (rc == 1)
            l->req->note.cause = "client";
        else
            tell_end(l, rc, &e, args->id);
    }
    stream_end(&l->stream);
}

int executor_logs(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct logs l = { .req = req };
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
    stream_init(&l.stream, req, rep, &framing_sse);
    log_place_format(&since, l.place);
    follow_log(&l, &session, &args, args.since ? &since : NULL);
    core_session_close(&session);
    return 0;
}
