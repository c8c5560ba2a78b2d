/*
 * The execute dialect: shell commands in a project's sandbox, as in docs/api/execute.yaml.
 *
 *   POST .../execute {"projectId", "commands": [...], "stopOnError"?, "timeout"?, "cwd"?, "env"?, "template"?}
 *   POST .../cleanup {"projectId"}
 *   POST .../extend {"projectId", "seconds"}                         an extension of the document
 *   POST / or /worker with "action": "execute", "cleanup" or "extend"
 */
#include "fcgi/dialects/execute.h"

#include <string.h>

#include "cove/dialect.h"
#include "cove/log.h"
#include "fcgi/core.h"
#include "fcgi/dialects/dialects.h"

enum { SHOWN_BYTES = 100 }; /* bytes of a command that a message shows */

/* ------------------------------------------------------------------ bad news */

static const struct error_reply error_replies[] = {
    /* the document knows no such status */
    { COVE_TIMEOUT, 500 },
    { COVE_GONE, 500 },
    { COVE_UNSUPPORTED, 500 },
};

static void on_error(struct request *req, struct reply *rep, const struct cove_err *e)
{
    const struct execute_reply r = { .error = e->msg, .exit_code = 1 };

    (void)req;
    rep->status = reply_error_status(error_replies, ARRAY_SIZE(error_replies), e->code);
    reply_json(rep, execute_error_fields, &r);
}

static void reply_forbidden(struct request *req, struct reply *rep, const struct core_permit *p)
{
    const struct execute_reply r = {
        .error = arena_printf(&req->arena,
                              "🚨 Forbidden command detected: \"%s\". "
                              "This operation is not allowed for security reasons.",
                              p->forbidden),
        .exit_code = 1,
        .rule = p->verdict.rule,
        .reason = p->verdict.reason,
        .hint = arena_printf(&req->arena, "your operator can lift or narrow the rule %s",
                             p->verdict.rule),
    };

    req->note.cause = arena_printf(&req->arena, "policy: %s", p->verdict.rule);
    rep->status = 400;
    reply_json(rep, execute_error_fields, &r);
}

/* ------------------------------------------------------------------ running */

struct outcome { /* of all commands of one request */
    struct buf stdout_text, stderr_text;
    int exit_code;         /* the first that is not zero */
    struct cove_end end;   /* the first that was not the command's own doing */
    const char *command;   /* that end's */
    struct cove_err error; /* code COVE_OK unless a command could not be started */
};

static void outcome_init(struct outcome *o, const struct core_session *s)
{
    *o = (struct outcome){ .end.cause = END_OWN };
    buf_init_within(&o->stdout_text, s->limits.output_max_bytes, s->core->bytes);
    buf_init_within(&o->stderr_text, s->limits.output_max_bytes, s->core->bytes);
}

static void outcome_done(struct outcome *o)
{
    buf_done(&o->stdout_text);
    buf_done(&o->stderr_text);
}

static int collect(void *arg, enum run_stream stream, uint64_t offset, const char *bytes,
                   size_t len)
{
    struct outcome *o = arg;

    (void)offset; /* the reply has all output, so its place in the stream does not matter */
    return buf_add(stream == RUN_STDOUT ? &o->stdout_text : &o->stderr_text, bytes, len);
}

/* Does a command that ended in this way also end the request, so that no further command runs? */
static bool ends_all(uint32_t cause)
{
    return cause == END_DEADLINE || cause == END_OUTPUT || cause == END_CLIENT ||
           end_was_taken_away(cause);
}

static void note_end(struct outcome *o, const char *command, const struct cove_end *end)
{
    int code = end_exit_code(end);

    if (o->exit_code == 0 || end->cause == END_DEADLINE)
        o->exit_code = code;
    if (end->cause != END_OWN && (o->end.cause == END_OWN || ends_all(end->cause))) {
        o->end = *end;
        o->command = command;
    }
}

/* true: go on with the next one. */
static bool run_one(struct core_session *s, const struct execute_args *args, const char *command,
                    struct run_args *run, struct outcome *o)
{
    const char *const argv[] = { "/bin/bash", "-c", command, NULL };
    struct run_result result;

    run->argv = argv;
    run->output_used = o->stdout_text.len + o->stderr_text.len;
    if (core_run(s, run, &result, &o->error) < 0) {
        if (o->error.code == COVE_NOT_FOUND)
            o->error.code =
                COVE_INVALID; /* a spawn that finds no path did not find the caller's cwd */
        o->command = command;
        return false;
    }
    note_end(o, command, &result.end);
    return !ends_all(result.end.cause) && !(args->stop_on_error && o->exit_code != 0);
}

static void run_all(struct core_session *s, const struct request *req,
                    const struct execute_args *args, const struct policy_filter *filter,
                    struct outcome *o)
{
    const struct limits *limits = &s->limits;
    uint64_t asked_ms = (uint64_t)args->timeout_s * 1000;
    struct run_args run = {
        .cwd = args->cwd,
        .env = args->env_strings,
        .timeout_ms = asked_ms && asked_ms < limits->command_timeout_ms
                          ? asked_ms
                          : limits->command_timeout_ms,
        .output_max_bytes = limits->output_max_bytes,
        .max_open_files = limits->open_files_max,
        .max_file_bytes = limits->file_max_bytes,
        .filter_fd = filter->fd,
        .exec_time = filter->exec_time,
        .dialect = DIALECT_EXECUTE,
        .client_fd = req->client_fd,
        .sink = collect,
        .sink_arg = o,
    };

    for (size_t i = 0; i < args->commands.count; i++)
        if (!run_one(s, args, args->commands.items[i], &run, o))
            return;
}

/* ------------------------------------------------------------------ the reply */

static const char *shorten(struct arena *a, const char *command)
{
    size_t len = strlen(command);

    if (len <= SHOWN_BYTES)
        return command;
    len = SHOWN_BYTES;
    while (len > 0 && ((unsigned char)command[len] & 0xC0) == 0x80)
        len--; /* not in the middle of a character */
    return arena_printf(a, "%.*s…", (int)len, command);
}

static const char *error_text(struct request *req, const struct outcome *o)
{
    char what[160];

    if (o->error.code == COVE_OK)
        end_describe(&o->end, what, sizeof(what));
    return arena_printf(&req->arena, "command \"%s\": %s", shorten(&req->arena, o->command),
                        o->error.code == COVE_OK ? what : o->error.msg);
}

static int status_of(const struct outcome *o)
{
    if (o->error.code != COVE_OK)
        return reply_error_status(error_replies, ARRAY_SIZE(error_replies), o->error.code);
    /* 499 is nginx's own status for a client that left. The log and the counters have it; no client reads it. */
    if (o->end.cause == END_CLIENT)
        return 499;
    return o->end.cause == END_DEADLINE || end_was_taken_away(o->end.cause) ? 500 : 200;
}

static const char *shown_id(struct request *req, const char *id)
{
    return arena_printf(&req->arena, "sandbox_%s", id);
}

static void reply_outcome(struct request *req, struct reply *rep, const struct core_box *box,
                          const struct outcome *o)
{
    bool failed = o->error.code != COVE_OK, ended = o->end.cause != END_OWN;
    int exit_code = failed && o->exit_code == 0 ? 1 : o->exit_code;
    char what[160];
    struct execute_ended end = {
        .cause = end_cause_name(o->end.cause),
        .limit = (int64_t)o->end.limit,
        .message = what,
    };
    const struct execute_reply r = {
        .success = exit_code == 0,
        .stdout_text = { o->stdout_text.data, o->stdout_text.len },
        .stderr_text = { o->stderr_text.data, o->stderr_text.len },
        .exit_code = exit_code,
        .sandbox = shown_id(req, box->id),
        .created_unix_ms = box->created_unix_ms,
        .expires_unix_ms = box->expires_unix_ms,
        .error = failed || ended ? error_text(req, o) : NULL,
        .truncated = o->end.cause == END_OUTPUT,
        .ended = ended ? &end : NULL,
    };

    end_describe(&o->end, what, sizeof(what));
    rep->status = status_of(o);
    reply_json(rep, execute_reply_fields, &r);
    if (failed)
        req->note.cause = cove_code_name(o->error.code);
    else if (ended)
        req->note.cause = end_cause_name(o->end.cause);
}

/* ------------------------------------------------------------------ /execute */

static int run_in_sandbox(struct request *req, struct reply *rep, const struct execute_args *args,
                          const struct policy_filter *filter, struct cove_err *e)
{
    struct core_session session;
    struct outcome outcome;
    int rc = 0;

    if (core_session_open(req->core, req->tenant, args->project, &session, e) < 0)
        return -1;
    req->note.sandbox = arena_strdup(&req->arena, session.box.id);
    outcome_init(&outcome, &session);
    run_all(&session, req, args, filter, &outcome);
    core_session_close(&session);
    if (outcome.stdout_text.starved || outcome.stderr_text.starved)
        rc = core_fail_memory(e);
    else
        reply_outcome(req, rep, &session.box, &outcome);
    outcome_done(&outcome);
    return rc;
}

static int execute(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct execute_args args = { 0 };
    struct core_permit permit;
    int rc;

    req->note.operation = "execute";
    if (execute_decode(req, req->core->config, &args, e) < 0)
        return -1;
    req->core->template = args.template;
    struct core_ask ask = {
        .dialect = DIALECT_EXECUTE,
        .tenant = req->tenant,
        .project = args.project,
        .commands = args.commands.items,
        .count = args.commands.count,
    };
    if (core_permit_get(req->core, &ask, &permit, e) < 0)
        return -1;
    if (permit.forbidden) {
        reply_forbidden(req, rep, &permit);
        rc = 0;
    } else {
        rc = run_in_sandbox(req, rep, &args, &permit.filter, e);
    }
    core_permit_put(&permit);
    return rc;
}

/* ------------------------------------------------------------------ /cleanup, and action */

static int cleanup(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct execute_args args = { 0 };

    req->note.operation = "cleanup";
    if (execute_decode_project(req, &args, e) < 0 ||
        core_retire(req->core, req->tenant, args.project, e) < 0)
        return -1;
    reply_json(rep, execute_success_fields, &(struct execute_reply){ .success = true });
    return 0;
}

/* An extension of the document: prolongs the life of a project's sandbox. */
static int extend(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct execute_args args = { 0 };
    struct core_box box;

    req->note.operation = "extend";
    if (execute_decode_extend(req, req->core->config, &args, e) < 0 ||
        core_extend(req->core, req->tenant, args.project, (uint64_t)args.seconds * 1000, &box, e) <
            0)
        return -1;
    reply_json(rep, execute_life_fields,
               &(struct execute_reply){
                   .success = true,
                   .sandbox = shown_id(req, box.id),
                   .created_unix_ms = box.created_unix_ms,
                   .expires_unix_ms = box.expires_unix_ms,
               });
    return 0;
}

static int by_action(struct request *req, struct reply *rep, struct cove_err *e)
{
    static const struct {
        const char *action;
        int (*handle)(struct request *req, struct reply *rep, struct cove_err *e);
    } actions[] = {
        { "execute", execute },
        { "cleanup", cleanup },
        { "extend", extend },
    };
    struct execute_args args = { 0 };

    if (execute_decode_action(req, &args, e) < 0)
        return -1;
    if (!args.action)
        return cove_fail(e, COVE_INVALID, "action: is missing");
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        if (strcmp(args.action, actions[i].action) == 0)
            return actions[i].handle(req, rep, e);
    return cove_fail(e, COVE_NOT_FOUND, "action: '%s' is none of execute, cleanup, extend",
                     args.action);
}

static const struct route execute_routes[] = {
    { POST, "/**/execute", execute, ROUTE_LONG },
    { POST, "/**/cleanup", cleanup, 0 },
    { POST, "/**/extend", extend, 0 }, /* extension */
    { POST, "/", by_action, ROUTE_LONG },
    { POST, "/worker", by_action, ROUTE_LONG },
};

static const struct credential credentials[] = { { "HTTP_X_API_KEY", "" }, { NULL, NULL } };

const struct dialect execute_dialect = {
    .name = "execute",
    .base = "",
    .routes = execute_routes,
    .route_count = ARRAY_SIZE(execute_routes),
    .credentials = credentials,
    .headers = ", X-API-Key",
    .on_error = on_error,
};
