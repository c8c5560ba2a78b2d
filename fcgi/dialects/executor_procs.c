/* Background processes: started, listed, killed; and told, fed and forgotten (extensions). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/text.h"
#include "fcgi/check.h"
#include "fcgi/dialects/executor.h"

#define SHELL_WORDS                                                                                \
    "/bin/sh -c " /* how init shows what we start: the rest is what the client sent */

enum { ID_MAX = 128, PAGE_MAX = 10000 };

/* ------------------------------------------------------------------ status */

static const char *status_of(bool running, const struct cove_end *end)
{
    if (running)
        return "running";
    if (end->cause == END_KILLED)
        return "killed";
    return end_exit_code(end) == 0 ? "completed" : "failed";
}

/* ------------------------------------------------------------------ a process in a reply */

struct process {
    const char *id;
    int64_t pid;
    const char *status, *command;
    uint64_t started_unix_ms;
    int64_t cpu_ms, memory_bytes;
    bool listed; /* cpu_ms is told */
    bool running, ended;
    int64_t exit_code;
    uint64_t ended_unix_ms;
    const char *reason;
};

static const struct json_field process_fields[] = {
    JSON_STR(struct process, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct process, pid, "pid", JSON_REQUIRED, 0, INT32_MAX),
    JSON_STR(struct process, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct process, command, "command", JSON_OPTIONAL, JSON_ANY),
    JSON_TIME(struct process, started_unix_ms, "started", JSON_OPTIONAL),
    JSON_INT(struct process, cpu_ms, "cpu_ms", JSON_OPTIONAL, 0, INT64_MAX,
             JSON_HAS(struct process, listed)),
    JSON_INT(struct process, memory_bytes, "memory_bytes", JSON_OPTIONAL, 0, INT64_MAX,
             JSON_HAS(struct process, running)),
    JSON_INT(struct process, exit_code, "exit_code", JSON_OPTIONAL, 0, 255,
             JSON_HAS(struct process, ended)),
    JSON_TIME(struct process, ended_unix_ms, "ended", JSON_OPTIONAL,
              JSON_HAS(struct process, ended)),
    JSON_STR(struct process, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

/* ------------------------------------------------------------------ /start_process */

static int start(struct request *req, struct reply *rep, const struct executor_command *c,
                 const struct policy_filter *filter, struct cove_err *e)
{
    const char *const argv[] = { "/bin/sh", "-c", c->cmd, NULL };
    char id[COVE_UUID_LEN + 1];
    struct core_spawn args = {
        .argv = argv,
        .env = c->env_strings,
        .cwd = c->cwd,
        .label = id,
        .filter = filter,
        .dialect = DIALECT_EXECUTOR,
        .keep_stdin = c->keep_stdin,
    };
    struct core_session session;
    struct box_spawned spawned;
    int rc;

    text_new_uuid(id);
    if (executor_open(req, &session, e) < 0)
        return -1;
    rc = core_spawn(&session, &args, &spawned, e);
    core_session_close(&session);
    if (rc < 0) {
        cove_context(e, "Failed to start process");
        return executor_fail(e);
    }
    rep->status = 201;
    reply_json(rep, process_fields,
               &(struct process){ .id = id, .pid = spawned.pid, .status = "running" });
    return 0;
}

int executor_start(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "start_process";
    return executor_with_command(req, rep, start, e);
}

/* ------------------------------------------------------------------ /list_processes */

struct listing {
    struct reply *rep;
    /* the page begins behind the process of this number, which may be gone by now */
    uint64_t after;
    uint64_t left;
    bool more;
};

static void reply_process(struct reply *rep, const struct box_proc *p, const char *id,
                          const char *command)
{
    size_t prefix = strlen(SHELL_WORDS);
    char reason[160] = "";
    struct process shown = {
        .id = id,
        .pid = p->pid,
        .status = status_of(p->running, &p->end),
        .command = strncmp(command, SHELL_WORDS, prefix) == 0 ? command + prefix : command,
        .started_unix_ms = p->end.started_unix_ms,
        .cpu_ms = (int64_t)(p->cpu_us / 1000),
        .listed = true,
        .running = p->running,
        .memory_bytes = (int64_t)p->memory_bytes,
        .ended = !p->running,
    };

    if (shown.ended) {
        end_describe(&p->end, reason, sizeof(reason));
        shown.exit_code = end_exit_code(&p->end);
        shown.ended_unix_ms = p->end.ended_unix_ms;
        shown.reason = *reason ? reason : NULL;
    }
    json_put_object(&rep->json, NULL, process_fields, &shown);
}

/* Lists processes that have a name and a log: these are background processes, the others are commands of requests. */
static int list_one(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    struct listing *l = arg;

    if (!*label || !(p->flags & SPAWN_RECORD) || !(p->flags & SPAWN_LOG))
        return 0;
    if (p->proc <= l->after)
        return 0;
    if (l->left == 0) {
        l->more = true;
        return 1;
    }
    l->left--;
    l->after = p->proc;
    reply_process(l->rep, p, label, command);
    return 0;
}

struct page_end {
    const char *next; /* `after` of the next page */
};

static const struct json_field page_end_fields[] = {
    JSON_STR(struct page_end, next, "next", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

int executor_list(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *limit = request_query(req, "limit"), *after = request_query(req, "after");
    struct listing l = { .rep = rep, .left = PAGE_MAX };
    struct core_session session;
    struct page_end end = { 0 };
    int (*drain)(void *arg);
    int rc;

    req->note.operation = "list_processes";
    if (limit && (text_parse_u64(limit, &l.left, e) < 0 || l.left < 1 || l.left > PAGE_MAX))
        return cove_fail(e, COVE_INVALID, "limit: must be a number from 1 to %d", PAGE_MAX);
    if (after && text_parse_u64(after, &l.after, e) < 0)
        return cove_fail(e, COVE_INVALID, "after: '%.60s' is not the `next` of an earlier page",
                         after);
    if (executor_open(req, &session, e) < 0)
        return -1;
    drain = rep->json.drain;
    rep->json.drain = NULL; /* init has a deadline, which a slow client must not use up */
    json_open(&rep->json, NULL, '{');
    json_open(&rep->json, "processes", '[');
    rc = box_procs(&session.conn, list_one, &l, e);
    core_session_close(&session);
    rep->json.drain = drain;
    json_close(&rep->json, ']');
    if (l.more)
        end.next = arena_printf(&req->arena, "%llu", (unsigned long long)l.after);
    json_put_members(&rep->json, page_end_fields, &end);
    json_close(&rep->json, '}');
    return rc;
}

/* ------------------------------------------------------------------ one process, by id */

struct proc_args {
    const char *id;
    const char *signal;
    struct json_text data;
    const char *encoding;
    bool close;
};

static const struct json_field id_fields[] = {
    JSON_STR(struct proc_args, id, "id", JSON_REQUIRED, ID_MAX),
    JSON_END,
};

/* Opens the session if the process exists; the caller closes it. */
static int find(struct request *req, struct proc_args *args, struct core_session *session,
                struct core_proc *ret, struct cove_err *e)
{
    if (request_json(req, id_fields, args, e) < 0 || executor_open(req, session, e) < 0)
        return -1;
    if (core_proc_find(session, args->id, ret, e) == 0)
        return 0;
    core_session_close(session);
    if (e->code == COVE_NOT_FOUND || e->code == COVE_INVALID)
        return cove_fail(e, COVE_INVALID, "process not found: %.128s", args->id);
    return -1;
}

static int fail_not_running(const struct core_proc *p, struct cove_err *e)
{
    return cove_fail(e, COVE_INVALID, "process is not running (status: %s)",
                     status_of(p->running, &p->end));
}

static int reply_message(struct reply *rep, const char *message)
{
    return executor_reply(rep, &(struct executor_result){ .success = true, .message = message });
}

/* ------------------------------------------------------------------ /kill_process */

int executor_kill(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct proc_args args = { 0 };
    struct core_session session;
    struct core_proc p;
    int rc;

    req->note.operation = "kill_process";
    if (find(req, &args, &session, &p, e) < 0)
        return -1;
    rc = p.running ? core_proc_kill(&session, &p, e) : fail_not_running(&p, e);
    if (rc == 0 && p.end.cause != END_KILLED)
        rc = fail_not_running(&p, e); /* it was quicker */
    core_session_close(&session);
    return rc < 0 ? -1 : reply_message(rep, "Process killed successfully");
}

/* ------------------------------------------------------------------ /signal_process (extension) */

static const struct json_field signal_fields[] = {
    JSON_STR(struct proc_args, signal, "signal", JSON_REQUIRED, 16),
    JSON_END,
};

/* The number of a signal: of "TERM", "SIGTERM" or "15"; 0 if there is no such signal. */
static int signal_number(const char *name)
{
    char *end;
    long number = strtol(name, &end, 10);

    if (*name && !*end)
        return number >= 1 && number <= SIGRTMAX ? (int)number : 0;
    if (strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (int i = 1; i < NSIG; i++)
        if (sigabbrev_np(i) && strcmp(sigabbrev_np(i), name) == 0)
            return i;
    return 0;
}

int executor_signal(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct proc_args args = { 0 };
    struct core_session session;
    struct core_proc p;
    int rc, signo;

    req->note.operation = "signal_process";
    if (request_json(req, signal_fields, &args, e) < 0)
        return -1;
    signo = signal_number(args.signal);
    if (!signo)
        return cove_fail(e, COVE_INVALID, "signal: '%.16s' is not a signal", args.signal);
    if (find(req, &args, &session, &p, e) < 0)
        return -1;
    rc = p.running ? core_proc_signal(&session, &p, signo, e) : fail_not_running(&p, e);
    core_session_close(&session);
    return rc < 0 ? -1 : reply_message(rep, "Signal sent");
}

/* ------------------------------------------------------------------ /process_stdin (extension) */

static const struct json_field stdin_fields[] = {
    JSON_TEXT(struct proc_args, data, "data", JSON_OPTIONAL, SIZE_MAX / 2),
    JSON_STR(struct proc_args, encoding, "encoding", JSON_OPTIONAL, 16),
    JSON_BOOL(struct proc_args, close, "close", JSON_OPTIONAL),
    JSON_END,
};

int executor_stdin(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct proc_args args = { .data.bytes = "", .encoding = "utf-8" };
    struct core_session session;
    struct core_proc p;
    size_t written;
    int rc;

    req->note.operation = "process_stdin";
    if (request_json(req, stdin_fields, &args, e) < 0)
        return -1;
    if ((strcmp(args.encoding, "base64") == 0 &&
         check_base64(&req->arena, "data", &args.data, e) < 0) ||
        find(req, &args, &session, &p, e) < 0)
        return -1;
    rc = p.running ? core_proc_stdin(&session, &p, args.data.bytes, args.data.len, args.close,
                                     &written, e)
                   : fail_not_running(&p, e);
    core_session_close(&session);
    if (rc < 0)
        return -1;
    return executor_reply(rep, &(struct executor_result){
                                   .success = true,
                                   .bytes = (int64_t)written,
                                   .has_bytes = true,
                               });
}

/* ------------------------------------------------------------------ /remove_process (extension) */

int executor_remove(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct proc_args args = { 0 };
    struct core_session session;
    struct core_proc p;
    int rc;

    req->note.operation = "remove_process";
    if (find(req, &args, &session, &p, e) < 0)
        return -1;
    rc = p.running ? cove_fail(e, COVE_INVALID, "process is running: kill it first")
                   : core_proc_forget(&session, &p, e);
    core_session_close(&session);
    return rc < 0 ? -1 : reply_message(rep, "Process removed");
}
