/* /run answers when the command has ended, /run_streaming tells each line as it is written. */
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "fcgi/dialects/executor.h"
#include "fcgi/lines.h"
#include "fcgi/stream.h"

static struct run_args run_args_of(const struct request *req, const struct executor_command *c,
                                   const struct policy_filter *filter, const char *const *argv)
{
    return (struct run_args){
        .argv = argv,
        .cwd = c->cwd,
        .env = c->env_strings,
        .timeout_ms = (uint64_t)c->timeout_s * 1000,
        .filter_fd = filter->fd,
        .exec_time = filter->exec_time,
        .dialect = DIALECT_EXECUTOR,
        .client_fd = req->client_fd,
    };
}

/* The limits of a command are known only when its sandbox is known. */
static void run_within(struct run_args *args, const struct limits *limits)
{
    uint64_t limit_ms = limits->run_timeout_ms;

    args->timeout_ms =
        args->timeout_ms && args->timeout_ms < limit_ms ? args->timeout_ms : limit_ms;
    args->max_open_files = limits->open_files_max;
    args->max_file_bytes = limits->file_max_bytes;
}

/* The text for a command that did not end well. */
static const char *failure_text(struct request *req, const struct cove_end *end)
{
    char what[160];

    if (end->cause == END_OWN && end->signal == 0)
        return "Non-zero exit code"; /* the document's words */
    end_describe(end, what, sizeof(what));
    return arena_strdup(&req->arena, what);
}

static void note_end(struct request *req, const struct cove_end *end)
{
    if (end->cause != END_OWN)
        req->note.cause = end_cause_name(end->cause);
}

/* ------------------------------------------------------------------ /run */

struct collected {
    struct buf out[2]; /* by enum run_stream */
};

static int collect(void *arg, enum run_stream stream, uint64_t offset, const char *bytes,
                   size_t len)
{
    struct collected *c = arg;

    (void)offset;
    return buf_add(&c->out[stream], bytes, len);
}

static int status_of(const struct cove_end *end)
{
    return end_was_taken_away(end->cause) ? 500 : end->cause == END_CLIENT ? 499 : 200;
}

struct run_reply {
    struct json_text stdout_text, stderr_text;
    const char *error;
    int64_t code;
    bool truncated;
    const char *cause;
    uint64_t created_unix_ms, expires_unix_ms; /* of the sandbox */
};

static const struct json_field run_fields[] = {
    JSON_TEXT(struct run_reply, stdout_text, "stdout", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct run_reply, stderr_text, "stderr", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct run_reply, error, "error", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct run_reply, code, "code", JSON_REQUIRED, 0, 255),
    JSON_BOOL(struct run_reply, truncated, "truncated", JSON_OPTIONAL),
    JSON_STR(struct run_reply, cause, "cause", JSON_OPTIONAL, JSON_ANY),
    JSON_TIME(struct run_reply, created_unix_ms, "created", JSON_OPTIONAL),
    JSON_TIME(struct run_reply, expires_unix_ms, "expiresAt", JSON_OPTIONAL),
    JSON_END,
};

static void reply_run(struct request *req, struct reply *rep, const struct core_box *box,
                      const struct cove_end *end, const struct collected *c)
{
    int code = end_exit_code(end);
    const struct run_reply r = {
        .stdout_text = { c->out[RUN_STDOUT].data, c->out[RUN_STDOUT].len },
        .stderr_text = { c->out[RUN_STDERR].data, c->out[RUN_STDERR].len },
        .error = code != 0 ? failure_text(req, end) : NULL,
        .code = code,
        .truncated = end->cause == END_OUTPUT,
        .cause = end->cause != END_OWN ? end_cause_name(end->cause) : NULL,
        .created_unix_ms = box->created_unix_ms,
        .expires_unix_ms = box->expires_unix_ms,
    };

    rep->status = status_of(end);
    reply_json(rep, run_fields, &r);
    note_end(req, end);
}

static int run_and_reply(struct request *req, struct reply *rep, const struct executor_command *c,
                         const struct policy_filter *filter, struct cove_err *e)
{
    const char *const argv[] = { "/bin/sh", "-c", c->cmd, NULL };
    struct run_args args = run_args_of(req, c, filter, argv);
    struct core_session session;
    struct run_result result;
    struct collected collected;
    int rc;

    if (executor_open(req, &session, e) < 0)
        return -1;
    run_within(&args, &session.limits);
    args.output_max_bytes = session.limits.output_max_bytes;
    args.sink = collect;
    args.sink_arg = &collected;
    buf_init_within(&collected.out[0], args.output_max_bytes, req->core->bytes);
    buf_init_within(&collected.out[1], args.output_max_bytes, req->core->bytes);
    rc = core_run(&session, &args, &result, e) < 0 ? executor_fail(e) : 0;
    core_session_close(&session);
    if (rc == 0 && (collected.out[0].starved || collected.out[1].starved))
        rc = core_fail_memory(e);
    if (rc == 0)
        reply_run(req, rep, &session.box, &result.end, &collected);
    buf_done(&collected.out[0]);
    buf_done(&collected.out[1]);
    return rc;
}

int executor_run(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "run";
    return executor_with_command(req, rep, run_and_reply, e);
}

/* ------------------------------------------------------------------ /run_streaming */

enum { SINK_BYTES = 8 * 1024 }; /* read at a time: a byte of output may become seventy of events */

struct streamed_run {
    struct request *req;
    struct stream stream;
    struct lines lines[2]; /* by enum run_stream */
    enum run_stream now;
    uint64_t events;
};

/* The fields of all kinds of events; each kind has its own table. */
struct event {
    const char *stream;
    struct json_text data;
    bool partial;
    int64_t code;
    bool failed;
    const char *cause, *message, *error;
};

static const struct json_field output_fields[] = {
    JSON_STR(struct event, stream, "stream", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct event, data, "data", JSON_REQUIRED, JSON_ANY),
    JSON_BOOL(struct event, partial, "partial", JSON_OPTIONAL),
    JSON_END,
};

static const struct json_field complete_fields[] = {
    JSON_INT(struct event, code, "code", JSON_REQUIRED, 0, 255),
    JSON_BOOL(struct event, failed, "error", JSON_REQUIRED),
    JSON_STR(struct event, cause, "cause", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct event, message, "message", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static const struct json_field error_fields[] = {
    JSON_STR(struct event, error, "error", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static void tell(struct streamed_run *s, const char *name, const struct json_field *fields,
                 const struct event *event)
{
    char id[24];

    snprintf(id, sizeof(id), "%llu", (unsigned long long)++s->events);
    stream_event(&s->stream, &(struct frame){ .id = id, .name = name }, fields, event);
}

static int tell_line(void *arg, const char *text, size_t len, bool goes_on)
{
    struct streamed_run *s = arg;

    tell(s, "output", output_fields,
         &(struct event){
             .stream = s->now == RUN_STDOUT ? "stdout" : "stderr",
             .data = { text, len },
             .partial = goes_on,
         });
    return 0;
}

/* All lines of one read are sent together, without waiting for more. */
static int tell_output(void *arg, enum run_stream stream, uint64_t offset, const char *bytes,
                       size_t len)
{
    struct streamed_run *s = arg;

    (void)offset;
    s->now = stream;
    lines_feed(&s->lines[stream], bytes, len, tell_line, s);
    return stream_send(&s->stream);
}

static void tell_error(struct streamed_run *s, const char *text)
{
    tell(s, "error", error_fields, &(struct event){ .error = text });
}

static void tell_end(struct streamed_run *s, const struct cove_end *end)
{
    int code = end_exit_code(end);

    for (int i = 0; i < 2; i++) {
        s->now = i;
        lines_end(&s->lines[i], tell_line, s);
    }
    note_end(s->req, end);
    if (end_was_taken_away(end->cause)) {
        tell_error(s, failure_text(s->req, end));
        return;
    }
    tell(s, "complete", complete_fields,
         &(struct event){
             .code = code,
             .failed = code != 0,
             .cause = end->cause != END_OWN ? end_cause_name(end->cause) : NULL,
             .message = end->cause != END_OWN ? failure_text(s->req, end) : NULL,
         });
}

/* From here on a failure is reported as an event, because the head was sent. */
static void stream_run(struct streamed_run *s, struct core_session *session, struct run_args *args)
{
    struct run_result result;
    struct cove_err e;

    lines_init(&s->lines[0]);
    lines_init(&s->lines[1]);
    stream_begin(&s->stream);
    if (core_run(session, args, &result, &e) < 0) {
        s->req->note.cause = cove_code_name(e.code);
        tell_error(s, e.msg);
    } else {
        tell_end(s, &result.end);
    }
    stream_end(&s->stream);
    lines_done(&s->lines[0]);
    lines_done(&s->lines[1]);
}

static int open_and_stream(struct request *req, struct reply *rep, const struct executor_command *c,
                           const struct policy_filter *filter, struct cove_err *e)
{
    const char *const argv[] = { "/bin/sh", "-c", c->cmd, NULL };
    struct run_args args = run_args_of(req, c, filter, argv);
    struct streamed_run s = { .req = req };
    struct core_session session;

    if (executor_open(req, &session, e) < 0)
        return -1;
    stream_init(&s.stream, req, rep, &framing_sse);
    s.stream.keep = strcmp(req->core->config->on_disconnect, "keep") == 0;
    run_within(&args, &session.limits);
    args.output_max_bytes =
        UINT64_MAX; /* no output gathers here: a client that reads slowly slows the command down */
    args.stream = &s.stream;
    args.sink = tell_output;
    args.sink_bytes = SINK_BYTES;
    args.sink_arg = &s;
    stream_run(&s, &session, &args);
    core_session_close(&session);
    return 0;
}

int executor_run_streaming(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "run_streaming";
    return executor_with_command(req, rep, open_and_stream, e);
}
