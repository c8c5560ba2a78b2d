/* Background processes of a sandbox: listed with how they ended, started, killed; their logs followed. */
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/text.h"
#include "fcgi/dialects/console.h"
#include "fcgi/stream.h"

enum {
    PROCESSES_MAX = 2000,
    LIST_BYTES = 8 * 1024 * 1024,
    HISTORY_LINES = 500,
    NAME_MAX_BYTES = 128,
};

/* ------------------------------------------------------------------ the list */

struct process {
    const char *id, *command, *reason;
    int64_t pid, cpu_ms, memory_bytes, exit_code;
    bool running, ended, log, terminal;
    uint64_t started_unix_ms, ended_unix_ms;
};

static const struct json_field process_fields[] = {
    JSON_STR(struct process, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct process, pid, "pid", JSON_REQUIRED, 0, INT32_MAX),
    JSON_STR(struct process, command, "command", JSON_OPTIONAL, JSON_ANY),
    JSON_BOOL(struct process, running, "running", JSON_REQUIRED),
    JSON_BOOL(struct process, log, "log", JSON_REQUIRED),
    JSON_BOOL(struct process, terminal, "terminal", JSON_REQUIRED),
    JSON_TIME(struct process, started_unix_ms, "started", JSON_REQUIRED),
    JSON_INT(struct process, cpu_ms, "cpuMs", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct process, memory_bytes, "memoryBytes", JSON_OPTIONAL, 0, INT64_MAX),
    JSON_INT(struct process, exit_code, "exitCode", JSON_OPTIONAL, 0, 255,
             JSON_HAS(struct process, ended)),
    JSON_TIME(struct process, ended_unix_ms, "ended", JSON_OPTIONAL),
    JSON_STR(struct process, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

struct listing {
    struct json_writer *w;
    size_t count;
};

/* A process that has no label of its own is known by init's number. */
static int put_process(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    struct listing *l = arg;
    char reason[160] = "", number[16];
    struct process shown = {
        .id = *label ? label : number,
        .command = command,
        .pid = p->pid,
        .cpu_ms = (int64_t)(p->cpu_us / 1000),
        .memory_bytes = (int64_t)p->memory_bytes,
        .running = p->running,
        .ended = !p->running,
        .log = p->flags & SPAWN_LOG,
        .terminal = p->flags & SPAWN_PTY,
        .started_unix_ms = p->end.started_unix_ms,
    };

    if (l->count++ == PROCESSES_MAX)
        return 1;
    snprintf(number, sizeof(number), "%u", p->proc);
    if (shown.ended) {
        end_describe(&p->end, reason, sizeof(reason));
        shown.exit_code = end_exit_code(&p->end);
        shown.ended_unix_ms = p->end.ended_unix_ms;
        shown.reason = *reason ? reason : NULL;
    }
    json_put_object(l->w, NULL, process_fields, &shown);
    return 0;
}

static int put_processes(struct request *req, struct json_writer *w, struct cove_err *e)
{
    struct listing l = { .w = w };
    struct core_session session;
    int rc;

    if (console_open(req, &session, e) < 0)
        return -1;
    json_open(w, NULL, '{');
    json_open(w, "processes", '[');
    rc = box_procs(&session.conn, put_process, &l, e);
    core_session_close(&session);
    json_close(w, ']');
    json_close(w, '}');
    return rc;
}

int console_processes(struct request *req, struct reply *rep, struct cove_err *e)
{
    int (*drain)(void *arg) = rep->json.drain;
    int rc;

    req->note.operation = "list-processes";
    rep->json.drain = NULL; /* init has a deadline, which a slow client must not use up */
    rc = put_processes(req, &rep->json, e);
    rep->json.drain = drain;
    return rc;
}

/* Sends the whole list whenever it has changed. */
static int tell_processes(struct stream *s, struct request *req, uint64_t *told, struct cove_err *e)
{
    AUTO_BUF struct buf list = BUF(LIST_BYTES);
    struct json_writer w;
    struct buf *out;
    uint64_t hash;

    json_writer_init(&w, &list);
    if (put_processes(req, &w, e) < 0)
        return -1;
    hash = text_hash(TEXT_HASH_START, list.data);
    if (hash == *told || list.overflow)
        return 0;
    *told = hash;
    out = stream_open_frame(s, &(struct frame){ .name = "processes" });
    if (!out)
        return 0;
    buf_add(out, list.data, list.len);
    stream_close_frame(s);
    return 0;
}

int console_follow_processes(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_info box;
    struct stream stream;
    uint64_t told = 0;

    req->note.operation = "processes";
    if (console_find(req, &box, e) < 0)
        return -1;
    stream_init(&stream, req, rep, &framing_sse);
    stream_begin(&stream);
    while (tell_processes(&stream, req, &told, e) == 0 && stream_drain(&stream) == 0 &&
           console_wait(&stream, req))
        ;
    stream_end(&stream);
    return 0;
}

/* ------------------------------------------------------------------ start and kill */

struct start_args {
    const char *command;
};

static const struct json_field start_fields[] = {
    JSON_STR(struct start_args, command, "command", JSON_REQUIRED, SIZE_MAX / 2),
    JSON_END,
};

struct started {
    const char *id;
    int64_t pid;
};

static const struct json_field started_fields[] = {
    JSON_STR(struct started, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct started, pid, "pid", JSON_REQUIRED, 0, INT32_MAX),
    JSON_END,
};

static int start(struct request *req, struct reply *rep, const char *command,
                 const struct policy_filter *filter, struct cove_err *e)
{
    const char *const argv[] = { "/bin/sh", "-c", command, NULL };
    char id[COVE_UUID_LEN + 1];
    struct core_spawn args = {
        .argv = argv,
        .label = id,
        .filter = filter,
        .dialect = DIALECT_CONSOLE,
    };
    struct core_session session;
    struct box_spawned spawned;
    int rc;

    text_new_uuid(id);
    if (console_open(req, &session, e) < 0)
        return -1;
    rc = core_spawn(&session, &args, &spawned, e);
    core_session_close(&session);
    if (rc < 0)
        return -1;
    rep->status = 201;
    reply_json(rep, started_fields, &(struct started){ id, spawned.pid });
    return 0;
}

int console_start(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct start_args args = { 0 };
    struct box_info box;

    req->note.operation = "start-process";
    if (request_json(req, start_fields, &args, e) < 0)
        return -1;
    if (!*args.command)
        return cove_fail(e, COVE_INVALID, "command: must not be empty");
    if (console_find(req, &box, e) < 0)
        return -1;
    return console_with_permit(req, rep, args.command, start, e);
}

int console_kill_process(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *label = request_capture(req, "process");
    struct core_session session;
    struct core_proc p;
    int rc;

    req->note.operation = "kill-process";
    if (strlen(label) > NAME_MAX_BYTES)
        return cove_fail(e, COVE_NOT_FOUND, "no process of this name");
    if (console_open(req, &session, e) < 0)
        return -1;
    rc = core_proc_find(&session, label, &p, e);
    if (rc == 0 && p.running)
        rc = core_proc_kill(&session, &p, e);
    core_session_close(&session);
    return rc < 0 ? -1 : console_reply_ok(rep);
}

/* ------------------------------------------------------------------ logs */

struct log_event {
    uint64_t unix_ms;
    const char *stream;
    struct json_text text;
    int64_t lost_bytes;
    const char *message;
};

static const struct json_field line_fields[] = {
    JSON_TIME(struct log_event, unix_ms, "time", JSON_REQUIRED),
    JSON_STR(struct log_event, stream, "stream", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct log_event, text, "text", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static const struct json_field gap_fields[] = {
    JSON_INT(struct log_event, lost_bytes, "lostBytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

static const struct json_field end_fields[] = {
    JSON_STR(struct log_event, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

struct log {
    struct stream stream;
    char place[LOG_PLACE_TEXT]; /* the id of the last event: where a browser goes on */
};

static void tell(struct log *l, const char *name, const struct log_place *place,
                 const struct json_field *fields, const struct log_event *event)
{
    if (place)
        log_place_format(place, l->place);
    stream_event(&l->stream, &(struct frame){ .id = l->place, .name = name }, fields, event);
}

static void tell_line(void *arg, const struct log_line *line)
{
    tell(arg, "line", &line->place, line_fields,
         &(struct log_event){
             .unix_ms = line->unix_ms,
             .stream = line->stream == RUN_STDOUT ? "stdout" : "stderr",
             .text = { line->text, line->len },
         });
}

static void tell_gap(void *arg, enum run_stream stream, uint64_t lost_bytes,
                     const struct log_place *place)
{
    (void)stream;
    tell(arg, "gap", place, gap_fields, &(struct log_event){ .lost_bytes = (int64_t)lost_bytes });
}

/* After the head was sent, a failure is reported as an event: after a cut a browser would come back for ever. */
static void follow(struct log *l, struct core_session *s, const struct log_follow *args)
{
    struct cove_err e = { 0 };
    int rc = core_log_follow(s, args, &e);

    if (rc <= 0)
        tell(l, "end", NULL, end_fields,
             &(struct log_event){ .message = rc == 0 ? "the process has ended" : e.msg });
    stream_end(&l->stream);
}

int console_log(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *last = request_param(req, "HTTP_LAST_EVENT_ID");
    struct log_place since = { { 0, 0 } };
    struct log l = { 0 };
    struct core_session session;
    struct log_follow args = {
        .label = request_capture(req, "process"),
        .lines_max = HISTORY_LINES,
        .client_fd = req->client_fd,
        .stream = &l.stream,
        .line = tell_line,
        .gap = tell_gap,
        .arg = &l,
    };

    req->note.operation = "log";
    if (*last && log_place_parse(last, &since, e) < 0)
        return cove_context(e, "Last-Event-ID");
    args.since = *last ? &since : NULL;
    if (console_open(req, &session, e) < 0)
        return -1;
    stream_init(&l.stream, req, rep, &framing_sse);
    l.stream.stands = console_stands;
    log_place_format(&since, l.place);
    stream_begin(&l.stream);
    follow(&l, &session, &args);
    core_session_close(&session);
    return 0;
}
