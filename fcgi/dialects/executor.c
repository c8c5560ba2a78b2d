/*
 * The executor dialect: commands, files, background processes and a port of one sandbox, as in its
 * document (docs/api/executor.yaml). What the document does not have is marked as an extension.
 */
#include "fcgi/dialects/executor.h"

#include <string.h>

#include "cove/dialect.h"
#include "fcgi/check.h"
#include "fcgi/dialects/dialects.h"

#define DEFAULT_PROJECT "default"

enum { EXECUTOR_PORT = 8080 }; /* where the document's own server listens: 8080-ID.DOMAIN */

static executor_handler executor_extend;

static const struct route executor_routes[] = {
    /* command execution */
    { POST, "/run", executor_run, ROUTE_LONG },
    { POST, "/run_streaming", executor_run_streaming, ROUTE_LONG },
    /* file operations */
    { POST, "/write_file", executor_write_file, ROUTE_BOX },
    { POST, "/read_file", executor_read_file, ROUTE_BOX },
    { POST, "/delete_file", executor_delete_file, ROUTE_BOX },
    { POST, "/make_dir", executor_make_dir, ROUTE_BOX },
    { POST, "/delete_dir", executor_delete_dir, ROUTE_LONG },
    { POST, "/list_dir", executor_list_dir, ROUTE_BOX },
    { GET, "/raw_file", executor_get_raw, ROUTE_LONG },             /* extension */
    { PUT, "/raw_file", executor_put_raw, ROUTE_LONG | ROUTE_RAW }, /* extension */
    /* port management */
    { POST, "/bind_port", executor_bind_port, ROUTE_BOX },
    { POST, "/unbind_port", executor_unbind_port, 0 },
    { POST, "/port_access", executor_port_access, 0 }, /* extension */
    { POST, "/port_link", executor_port_link, 0 },     /* extension */
    /* background processes */
    { POST, "/start_process", executor_start, ROUTE_BOX },
    { GET, "/list_processes", executor_list, ROUTE_BOX },
    { POST, "/kill_process", executor_kill, ROUTE_BOX },
    { GET | POST, "/process_logs_streaming", executor_logs, ROUTE_LONG },
    { POST, "/signal_process", executor_signal, ROUTE_BOX }, /* extension */
    { POST, "/process_stdin", executor_stdin, ROUTE_LONG },  /* extension */
    { POST, "/remove_process", executor_remove, ROUTE_BOX }, /* extension */
    { GET, "/terminal", executor_terminal, ROUTE_BOX },      /* extension: a WebSocket */
    { GET, "/process_lines", executor_lines, ROUTE_BOX },    /* likewise */
    { GET, "/health", dialect_health, ROUTE_OPEN },
    { POST, "/extend_sandbox", executor_extend, 0 }, /* extension: the sandbox lives on */
};

/* ------------------------------------------------------------------ bad news */

static const struct error_reply error_replies[] = {
    /* the document knows no such status */
    { COVE_GONE, 500 },
    { COVE_LIMIT, 500 },
    { COVE_UNSUPPORTED, 500 },
};

static void on_error(struct request *req, struct reply *rep, const struct cove_err *e)
{
    (void)req;
    rep->status = reply_error_status(error_replies, ARRAY_SIZE(error_replies), e->code);
    executor_reply(rep, &(struct executor_result){ .error = e->msg });
}

void executor_forbidden(struct request *req, struct reply *rep, const struct core_permit *p)
{
    req->note.cause = arena_printf(&req->arena, "policy: %s", p->verdict.rule);
    req->failure = arena_printf(&req->arena,
                                "🚨 Forbidden command detected: \"%s\". "
                                "This operation is not allowed for security reasons.",
                                p->forbidden);
    rep->status = 403;
    executor_reply(rep, &(struct executor_result){
                            .error = req->failure,
                            .code = 1,
                            .rule = p->verdict.rule,
                            .reason = p->verdict.reason,
                        });
}

int executor_fail(struct cove_err *e)
{
    if (e->code == COVE_NOT_FOUND)
        e->code = COVE_INVALID;
    return -1;
}

static const struct json_field result_fields[] = {
    JSON_BOOL(struct executor_result, success, "success", JSON_REQUIRED),
    JSON_STR(struct executor_result, error, "error", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct executor_result, code, "code", JSON_OPTIONAL, 0, 255),
    JSON_STR(struct executor_result, rule, "rule", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct executor_result, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct executor_result, message, "message", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct executor_result, current_port, "current_port", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct executor_result, port, "port", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct executor_result, proxy_port, "proxy_port", JSON_OPTIONAL, 1, 65535),
    JSON_STR(struct executor_result, url, "url", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct executor_result, bytes, "bytes", JSON_OPTIONAL, 0, INT64_MAX,
             JSON_HAS(struct executor_result, has_bytes)),
    JSON_STR(struct executor_result, sandbox, "sandbox_id", JSON_OPTIONAL, JSON_ANY),
    JSON_TIME(struct executor_result, created_unix_ms, "created", JSON_OPTIONAL),
    JSON_TIME(struct executor_result, expires_unix_ms, "expiresAt", JSON_OPTIONAL),
    JSON_END,
};

int executor_reply(struct reply *rep, const struct executor_result *r)
{
    reply_json(rep, result_fields, r);
    return 0;
}

/* ------------------------------------------------------------------ which sandbox */

static int open_by_host(struct request *req, const char *id, struct core_session *ret,
                        struct cove_err *e)
{
    req->note.sandbox = id;
    return core_session_open_id(req->core, req->tenant, id, ret, e);
}

const char *executor_project(struct request *req)
{
    const char *given = request_param(req, "HTTP_X_PROJECT_ID");

    return req->host_box ? req->host_box : *given ? given : DEFAULT_PROJECT;
}

/* An extension: the template of a sandbox that has to be made. */
static int take_template(struct request *req, struct cove_err *e)
{
    const char *given = request_param(req, "HTTP_X_TEMPLATE");

    if (!*given)
        return 0;
    req->core->template = arena_strdup(&req->arena, given);
    return check_template("X-Template", given, e);
}

int executor_open(struct request *req, struct core_session *ret, struct cove_err *e)
{
    const char *project = executor_project(req);

    if (req->host_box)
        return open_by_host(req, req->host_box, ret, e);
    if (check_project("X-Project-Id", project, e) < 0 || take_template(req, e) < 0)
        return -1;
    req->note.project = arena_strdup(&req->arena, project);
    if (core_session_open(req->core, req->tenant, project, ret, e) < 0)
        return -1;
    req->note.sandbox = arena_strdup(&req->arena, ret->box.id);
    return 0;
}

/* ------------------------------------------------------------------ a command */

static const struct json_field command_fields[] = {
    JSON_STR(struct executor_command, cmd, "cmd", JSON_REQUIRED, SIZE_MAX / 2),
    JSON_STR(struct executor_command, cwd, "cwd", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR_MAP(struct executor_command, env, "env", JSON_OPTIONAL, ENV_MAX_COUNT, ENV_MAX_BYTES),
    JSON_INT(struct executor_command, timeout_s, "timeout", JSON_OPTIONAL, 1, TIMEOUT_MAX_S),
    JSON_BOOL(struct executor_command, keep_stdin, "stdin", JSON_OPTIONAL),
    JSON_END,
};

static int decode_command(struct request *req, struct executor_command *ret, struct cove_err *e)
{
    uint64_t max = req->core->config->command_max_bytes;

    *ret = (struct executor_command){ 0 };
    if (request_json(req, command_fields, ret, e) < 0)
        return -1;
    if (ret->cwd && !*ret->cwd)
        ret->cwd = NULL; /* "" is how some clients say "not given" */
    if (strlen(ret->cmd) == 0)
        return cove_fail(e, COVE_INVALID, "cmd: must not be empty");
    if (strlen(ret->cmd) > max)
        return cove_fail(e, COVE_INVALID, "cmd: %zu bytes are more than %llu", strlen(ret->cmd),
                         (unsigned long long)max);
    if (check_cwd(ret->cwd, e) < 0)
        return -1;
    return check_env(&req->arena, &ret->env, &ret->env_strings, e);
}

int executor_with_command(struct request *req, struct reply *rep, executor_verb *verb,
                          struct cove_err *e)
{
    struct executor_command command;
    struct core_permit permit;
    int rc = 0;

    if (decode_command(req, &command, e) < 0)
        return -1;
    if (take_template(req, e) < 0 ||
        core_permit_one(req->core, DIALECT_EXECUTOR, req->tenant, executor_project(req),
                        command.cmd, &permit, e) < 0)
        return -1;
    if (permit.forbidden) {
        executor_forbidden(req, rep, &permit);
    } else {
        rc = verb(req, rep, &command, &permit.filter, e);
    }
    core_permit_put(&permit);
    return rc;
}

/* ------------------------------------------------------------------ /extend_sandbox (extension) */

struct extend_args {
    int64_t seconds;
};

static const struct json_field extend_fields[] = {
    JSON_INT(struct extend_args, seconds, "seconds", JSON_REQUIRED, 1, TIMEOUT_MAX_S),
    JSON_END,
};

static int executor_extend(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct extend_args args;
    struct core_box box;

    req->note.operation = "extend_sandbox";
    if (request_json(req, extend_fields, &args, e) < 0 ||
        check_extension(args.seconds, req->core->config, e) < 0 ||
        core_extend(req->core, req->tenant, executor_project(req), (uint64_t)args.seconds * 1000,
                    &box, e) < 0)
        return -1;
    return executor_reply(rep, &(struct executor_result){
                                   .success = true,
                                   .sandbox = box.id,
                                   .created_unix_ms = box.created_unix_ms,
                                   .expires_unix_ms = box.expires_unix_ms,
                               });
}

const struct dialect executor_dialect = {
    .name = "executor",
    .base = "",
    .routes = executor_routes,
    .route_count = ARRAY_SIZE(executor_routes),
    .headers = ", X-Project-Id",
    .host_port = EXECUTOR_PORT,
    .host_maker = DIALECT_EXECUTOR,
    .on_error = on_error,
};
