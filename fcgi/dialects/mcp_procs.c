/* Processes that go on: started, listed, their output read by offset, killed. */
#include <stdlib.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/text.h"
#include "fcgi/check.h"
#include "fcgi/dialects/mcp.h"

enum { LISTED_MAX = 200, LOG_DEFAULT = 30000, LOG_LEAST = 1000, LOG_MOST = 128 * 1024 };

static const char *status_of(bool running, const struct cove_end *end)
{
    if (running)
        return "running";
    return end->cause == END_KILLED ? "killed" : end_exit_code(end) == 0 ? "completed" : "failed";
}

static const char *reason_of(struct arena *a, const struct cove_end *end)
{
    char what[160] = "";

    end_describe(end, what, sizeof(what));
    return *what ? arena_strdup(a, what) : NULL;
}

/* ------------------------------------------------------------------ start_process */

static const struct json_field start_fields[] = {
    JSON_STR(struct mcp_command, command, "command", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct mcp_command, cwd, "cwd", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR_MAP(struct mcp_command, env, "env", JSON_OPTIONAL, ENV_MAX_COUNT, ENV_MAX_BYTES),
    JSON_END,
};

struct process {
    const char *id, *status, *command, *reason;
    int64_t pid, exit_code;
    bool ended;
    uint64_t started_unix_ms;
};

static const struct json_field process_fields[] = {
    JSON_STR(struct process, id, "process_id", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct process, pid, "pid", JSON_OPTIONAL, 0, INT32_MAX),
    JSON_STR(struct process, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct process, command, "command", JSON_OPTIONAL, JSON_ANY),
    JSON_TIME(struct process, started_unix_ms, "started", JSON_OPTIONAL),
    JSON_INT(struct process, exit_code, "exit_code", JSON_OPTIONAL, 0, 255,
             JSON_HAS(struct process, ended)),
    JSON_STR(struct process, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static const struct mcp_about about[] = {
    { "command", "The command, as sh takes it." },
    { "cwd", "Absolute path of the directory to run in. Default: the home directory." },
    { "env", "Environment variables for this process." },
    { "process_id", "Names the process in read_process_log and kill_process." },
    { "pid", "Its number inside the sandbox." },
    { "status", "running, completed (exit code 0), failed or killed." },
    { "started", "When it was started." },
    { "exit_code", "As a shell shows it, once it has ended." },
    { "reason", "How it ended, in words." },
    { "processes", "The processes that start_process started, oldest first." },
    { "truncated", "True: there are more than are listed." },
    { "offset",
      "Where to begin: next_offset of an earlier call. Default: what is kept of the beginning." },
    { "max_bytes", "How much to return at most. Default: 30000." },
    { "output", "What the process wrote, standard output and standard error as they came." },
    { "next_offset", "Pass it as offset to read on from here." },
    { "lost_bytes", "Output that was overwritten before it was read: a log keeps the newest." },
    { NULL, NULL },
};

static int spawn(struct mcp_call *c, const void *command, const char *const *env,
                 const struct policy_filter *filter, struct cove_err *e)
{
    const struct mcp_command *a = command;
    const char *const argv[] = { "/bin/sh", "-c", a->command, NULL };
    char id[COVE_UUID_LEN + 1];
    struct core_spawn args = {
        .argv = argv,
        .env = env,
        .cwd = a->cwd,
        .label = id,
        .filter = filter,
        .dialect = DIALECT_MCP,
    };
    struct core_session s;
    struct box_spawned spawned;
    int rc;

    text_new_uuid(id);
    if (mcp_open(c, &s, e) < 0)
        return -1;
    rc = core_spawn(&s, &args, &spawned, e);
    core_session_close(&s);
    if (rc < 0)
        return -1;
    return mcp_replyf(
        c, process_fields,
        &(struct process){
            .id = id, .pid = spawned.pid, .status = "running", .command = a->command },
        "Started as process %s. Read its output with read_process_log.", id);
}

static int start(struct mcp_call *c, const void *args, struct cove_err *e)
{
    return mcp_with_permit(c, args, spawn, e);
}

const struct mcp_tool mcp_tool_start = {
    .name = "start_process",
    .title = "Start a process",
    .description = "Start a program that goes on in the background, such as a server, and return "
                   "at once. It runs "
                   "until it ends by itself, is killed, or the sandbox ends.",
    .hints = MCP_DESTROYS | MCP_OPEN,
    .args = start_fields,
    .args_size = sizeof(struct mcp_command),
    .result = process_fields,
    .about = about,
    .run = start,
};

/* ------------------------------------------------------------------ list_processes */

struct listing {
    struct arena *arena;
    struct process *items;
    struct json_array list;
    bool truncated;
};

static const struct json_field no_fields[] = { JSON_END };

static const struct json_field listing_fields[] = {
    JSON_OBJECTS(struct listing, list, struct process, "processes", JSON_REQUIRED, process_fields,
                 LISTED_MAX),
    JSON_BOOL(struct listing, truncated, "truncated", JSON_REQUIRED),
    JSON_END,
};

/* Lists processes that have a name and a log: these were started in the background, the others are commands of
 * requests. */
static int list_one(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    static const char shell[] = "/bin/sh -c ";
    struct listing *l = arg;

    if (!*label || !(p->flags & SPAWN_RECORD) || !(p->flags & SPAWN_LOG))
        return 0;
    l->truncated = l->list.count == LISTED_MAX;
    if (l->truncated)
        return 1;
    if (strncmp(command, shell, sizeof(shell) - 1) == 0)
        command += sizeof(shell) - 1;
    l->items[l->list.count++] = (struct process){
        .id = arena_strdup(l->arena, label),
        .pid = p->pid,
        .status = status_of(p->running, &p->end),
        .command = arena_strndup(l->arena, command, 200),
        .started_unix_ms = p->end.started_unix_ms,
        .ended = !p->running,
        .exit_code = p->running ? 0 : end_exit_code(&p->end),
        .reason = p->running ? NULL : reason_of(l->arena, &p->end),
    };
    return 0;
}

static int list(struct mcp_call *c, const void *args, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(LISTED_MAX * 400);
    struct listing l = { .arena = &c->req->arena };
    struct core_session s;
    int rc;

    (void)args;
    l.list.items = l.items = arena_alloc(l.arena, LISTED_MAX * sizeof(*l.items));
    if (mcp_open(c, &s, e) < 0)
        return -1;
    rc = box_procs(&s.conn, list_one, &l, e);
    core_session_close(&s);
    if (rc < 0)
        return -1;
    for (size_t i = 0; i < l.list.count; i++)
        buf_addf(&text, "%s  %s  %s\n", l.items[i].id, l.items[i].status, l.items[i].command);
    if (l.list.count == 0)
        buf_add_str(&text, "No process was started with start_process.");
    return mcp_reply(c, text.data, text.len, listing_fields, &l);
}

const struct mcp_tool mcp_tool_processes = {
    .name = "list_processes",
    .title = "List processes",
    .description =
        "List the processes that start_process started, with their status and exit code.",
    .hints = MCP_READS,
    .args = no_fields,
    .result = listing_fields,
    .about = about,
    .run = list,
};

/* ------------------------------------------------------------------ kill_process */

struct id_args {
    const char *id, *offset;
    int64_t max_bytes;
};

static const struct json_field id_fields[] = {
    JSON_STR(struct id_args, id, "process_id", JSON_REQUIRED, MCP_ID_MAX),
    JSON_END,
};

static int fail_process(const char *id, struct cove_err *e)
{
    if (e->code == COVE_NOT_FOUND || e->code == COVE_INVALID)
        return cove_fail(e, COVE_INVALID,
                         "process_id: there is no process '%.60s'; see list_processes", id);
    return -1;
}

static int kill_one(struct mcp_call *c, const void *args, struct cove_err *e)
{
    const struct id_args *a = args;
    struct core_session s;
    struct core_proc p;
    bool was_running = false;
    int rc;

    if (mcp_open(c, &s, e) < 0)
        return -1;
    rc = core_proc_find(&s, a->id, &p, e) < 0 ? fail_process(a->id, e) : 0;
    if (rc == 0 && p.running) {
        was_running = true;
        rc = core_proc_kill(&s, &p, e);
    }
    core_session_close(&s);
    if (rc < 0)
        return -1;
    return mcp_replyf(c, process_fields,
                      &(struct process){ .id = a->id,
                                         .status = status_of(false, &p.end),
                                         .ended = true,
                                         .exit_code = end_exit_code(&p.end),
                                         .reason = reason_of(&c->req->arena, &p.end) },
                      was_running ? "Killed, with all it had started." : "It had ended before.");
}

const struct mcp_tool mcp_tool_kill = {
    .name = "kill_process",
    .title = "Kill a process",
    .description =
        "End a process that start_process started, with everything it has started itself.",
    .hints = MCP_DESTROYS | MCP_REPEATS,
    .args = id_fields,
    .args_size = sizeof(struct id_args),
    .result = process_fields,
    .about = about,
    .run = kill_one,
};

/* ------------------------------------------------------------------ read_process_log */

static const struct json_field log_fields[] = {
    JSON_STR(struct id_args, id, "process_id", JSON_REQUIRED, MCP_ID_MAX),
    JSON_STR(struct id_args, offset, "offset", JSON_OPTIONAL, LOG_PLACE_TEXT),
    JSON_INT(struct id_args, max_bytes, "max_bytes", JSON_OPTIONAL, LOG_LEAST, LOG_MOST),
    JSON_END,
};

struct log_result {
    const char *id, *status, *next, *reason;
    struct json_text output;
    int64_t lost, exit_code;
    bool ended;
};

static const struct json_field log_result_fields[] = {
    JSON_STR(struct log_result, id, "process_id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct log_result, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct log_result, output, "output", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct log_result, next, "next_offset", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct log_result, lost, "lost_bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct log_result, exit_code, "exit_code", JSON_OPTIONAL, 0, 255,
             JSON_HAS(struct log_result, ended)),
    JSON_STR(struct log_result, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

/* Reads a piece of a process's log: `piece` has the place to begin at, and afterwards the text and the next place. */
static int read_log(struct core_session *s, const struct id_args *a, struct core_log_part *piece,
                    struct core_proc *p, struct cove_err *e)
{
    piece->most = a->max_bytes ? (size_t)a->max_bytes : LOG_DEFAULT;
    /* The status comes first: what was written until then is in the log. */
    if (core_proc_find(s, a->id, p, e) < 0)
        return fail_process(a->id, e);
    return core_log_read_part(s, p->proc, piece, e);
}

static int log_tool(struct mcp_call *c, const void *args, struct cove_err *e)
{
    const struct id_args *a = args;
    struct core_log_part piece = { 0 };
    char next[LOG_PLACE_TEXT];
    struct core_session s;
    struct core_proc p;
    int rc;

    if (a->offset && *a->offset && log_place_parse(a->offset, &piece.place, e) < 0)
        return cove_context(e, "offset");
    if (mcp_open(c, &s, e) < 0)
        return -1;
    rc = read_log(&s, a, &piece, &p, e);
    core_session_close(&s);
    AUTO_BUF struct buf out = piece.text; /* freed in any case */
    if (rc < 0)
        return -1;
    log_place_format(&piece.place, next);
    struct log_result r = {
        .id = a->id,
        .status = status_of(p.running, &p.end),
        .output = { out.data ? out.data : "", out.len },
        .next = next,
        .lost = a->offset && *a->offset ? (int64_t)piece.lost : 0,
        .ended = !p.running,
        .exit_code = p.running ? 0 : end_exit_code(&p.end),
        .reason = p.running ? NULL : reason_of(&c->req->arena, &p.end),
    };
    AUTO_BUF struct buf text = BUF(out.len + 200);

    buf_add(&text, r.output.bytes, r.output.len);
    buf_addf(&text, "%s[process is %s, next offset %s]", out.len ? "\n" : "", r.status, next);
    return mcp_reply(c, text.data, text.len, log_result_fields, &r);
}

const struct mcp_tool mcp_tool_log = {
    .name = "read_process_log",
    .title = "Read a process's output",
    .description = "Read what a process wrote, from an offset on, without waiting for more. Call "
                   "it again with "
                   "next_offset for what was written since.",
    .hints = MCP_READS,
    .args = log_fields,
    .args_size = sizeof(struct id_args),
    .result = log_result_fields,
    .about = about,
    .run = log_tool,
};
