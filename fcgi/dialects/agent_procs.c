/* Commands in the background: listed, read, ended. All of it is an extension of the document. */
#include <string.h>

#include "cove/text.h"
#include "fcgi/dialects/agent.h"

enum { PROCESSES_MAX = 1000, LOG_PIECE_BYTES = 1024 * 1024 };

#define SHELL_WORDS "/bin/bash -c " /* how init shows what /run-cmd starts */

/* ------------------------------------------------------------------ one of them in a reply */

struct process {
    const char *id;
    int64_t pid;
    const char *status, *command;
    uint64_t started_unix_ms, ended_unix_ms;
    bool ended;
    int64_t exit_code;
    const char *reason;
};

static const struct json_field process_fields[] = {
    JSON_STR(struct process, id, "process_id", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct process, pid, "pid", JSON_REQUIRED, 0, INT32_MAX),
    JSON_STR(struct process, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct process, command, "command", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct process, started_unix_ms, "started_at", JSON_OPTIONAL),
    JSON_TIME(struct process, ended_unix_ms, "ended_at", JSON_OPTIONAL),
    JSON_INT(struct process, exit_code, "exit_code", JSON_OPTIONAL, 0, 255,
             JSON_HAS(struct process, ended)),
    JSON_STR(struct process, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

struct listing {
    struct request *req;
    struct process *items;
    size_t count;
    bool truncated;
};

static const char *status_of(const struct box_proc *p)
{
    if (p->running)
        return "running";
    if (p->end.cause == END_KILLED)
        return "killed";
    return end_exit_code(&p->end) == 0 ? "completed" : "failed";
}

static int list_one(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    size_t prefix = strlen(SHELL_WORDS);
    struct listing *l = arg;
    struct arena *a = &l->req->arena;
    char reason[160] = "";

    if (!*label || !(p->flags & SPAWN_RECORD) || !(p->flags & SPAWN_LOG))
        return 0; /* a command of some request that waits for it */
    l->truncated = l->count == PROCESSES_MAX;
    if (l->truncated)
        return 1;
    if (!p->running)
        end_describe(&p->end, reason, sizeof(reason));
    l->items[l->count++] = (struct process){
        .id = arena_strdup(a, label),
        .pid = p->pid,
        .status = status_of(p),
        .command = arena_strdup(a, strncmp(command, SHELL_WORDS, prefix) == 0 ? command + prefix
                                                                              : command),
        .started_unix_ms = p->end.started_unix_ms,
        .ended = !p->running,
        .ended_unix_ms = p->running ? 0 : p->end.ended_unix_ms,
        .exit_code = p->running ? 0 : end_exit_code(&p->end),
        .reason = *reason ? arena_strdup(a, reason) : NULL,
    };
    return 0;
}

struct process_list {
    bool success, truncated;
    struct json_array processes;
};

static const struct json_field list_fields[] = {
    JSON_BOOL(struct process_list, success, "success", JSON_REQUIRED),
    JSON_OBJECTS(struct process_list, processes, struct process, "processes", JSON_REQUIRED,
                 process_fields, PROCESSES_MAX),
    JSON_BOOL(struct process_list, truncated, "truncated", JSON_OPTIONAL),
    JSON_END,
};

int agent_processes(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct listing l = { .req = req };
    struct core_session session;
    int rc;

    req->note.operation = "processes";
    if (agent_open(req, request_capture(req, "sandbox_id"), &session, e) < 0)
        return -1;
    l.items = arena_alloc(&req->arena, PROCESSES_MAX * sizeof(*l.items));
    rc = box_procs(&session.conn, list_one, &l, e);
    core_session_close(&session);
    if (rc < 0)
        return -1;
    return agent_reply(rep, list_fields,
                       &(struct process_list){ true, l.truncated, { l.items, l.count } });
}

/* ------------------------------------------------------------------ one process */

static int find_process(struct request *req, struct core_session *session, struct core_proc *ret,
                        struct cove_err *e)
{
    const char *id = request_capture(req, "process_id");

    if (agent_open(req, request_capture(req, "sandbox_id"), session, e) < 0)
        return -1;
    if (core_proc_find(session, id, ret, e) == 0)
        return 0;
    core_session_close(session);
    return e->code == COVE_NOT_FOUND ? cove_fail(e, COVE_NOT_FOUND, "process '%.60s' not found", id)
                                     : -1;
}

/* A process that has ended already is left as it is: killing it again changes nothing. */
int agent_kill_process(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct core_proc p;
    bool was_running;
    int rc;

    req->note.operation = "kill_process";
    if (find_process(req, &session, &p, e) < 0)
        return -1;
    was_running = p.running;
    rc = was_running ? core_proc_kill(&session, &p, e) : 0;
    core_session_close(&session);
    if (rc < 0)
        return -1;
    return agent_reply_done(rep, was_running ? "Process killed" : "Process had ended already");
}

/* ------------------------------------------------------------------ its output */

struct log_reply {
    bool success;
    struct json_text output;
    int64_t next_offset;
    bool lost, more, running, ended;
    int64_t exit_code;
};

static const struct json_field log_fields[] = {
    JSON_BOOL(struct log_reply, success, "success", JSON_REQUIRED),
    JSON_TEXT(struct log_reply, output, "output", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct log_reply, next_offset, "next_offset", JSON_ALWAYS, 0, INT64_MAX),
    JSON_BOOL(struct log_reply, lost, "lost", JSON_OPTIONAL),
    JSON_BOOL(struct log_reply, more, "more", JSON_OPTIONAL),
    JSON_BOOL(struct log_reply, running, "running", JSON_ALWAYS),
    JSON_INT(struct log_reply, exit_code, "exit_code", JSON_OPTIONAL, 0, 255,
             JSON_HAS(struct log_reply, ended)),
    JSON_END,
};

static int read_offset(struct request *req, uint64_t *ret, struct cove_err *e)
{
    const char *given = request_query(req, "offset");

    if (given && text_parse_u64(given, ret, e) < 0)
        return cove_fail(e, COVE_INVALID, "offset: '%.40s' is not the next_offset of a reply",
                         given);
    return 0;
}

/* Whether the process runs is asked before its log is read: so the log of one that has ended is complete. */
int agent_process_logs(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *id = request_capture(req, "process_id");
    struct core_log_piece piece = { 0 };
    struct core_session session;
    struct core_proc p;
    struct buf text;
    uint64_t from = 0;
    int rc;

    req->note.operation = "process_logs";
    if (read_offset(req, &from, e) < 0 || find_process(req, &session, &p, e) < 0)
        return -1;
    buf_init_within(&text, LOG_PIECE_BYTES, req->core->bytes);
    piece.text = &text;
    rc = core_log_read(&session, id, from, &piece, e);
    core_session_close(&session);
    if (rc == 0)
        agent_reply(rep, log_fields,
                    &(struct log_reply){
                        .success = true,
                        .output = { text.data ? text.data : "", text.len },
                        .next_offset = (int64_t)piece.next,
                        .lost = piece.lost,
                        .more = piece.more,
                        .running = p.running,
                        .ended = !p.running,
                        .exit_code = p.running ? 0 : end_exit_code(&p.end),
                    });
    buf_done(&text);
    return rc;
}
