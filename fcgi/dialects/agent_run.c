/* /run-cmd: a command's output as one text when it has ended, or a handle of it when it runs in the
 * background. */
#include <string.h>

#include "cove/dialect.h"
#include "cove/text.h"
#include "fcgi/check.h"
#include "fcgi/dialects/agent.h"

struct run_body {
    const char *sandbox, *command;
    bool background;
    /* extensions */
    const char *cwd;
    struct json_map env;
    int64_t timeout_s; /* 0 = as configured */
    const char *const *env_strings;
};

static const struct json_field run_body_fields[] = {
    JSON_STR(struct run_body, sandbox, "sandbox_id", JSON_REQUIRED, AGENT_NAME_MAX),
    JSON_STR(struct run_body, command, "command", JSON_REQUIRED, SIZE_MAX / 2),
    JSON_BOOL(struct run_body, background, "background", JSON_OPTIONAL),
    JSON_STR(struct run_body, cwd, "cwd", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR_MAP(struct run_body, env, "env", JSON_OPTIONAL, ENV_MAX_COUNT, ENV_MAX_BYTES),
    JSON_INT(struct run_body, timeout_s, "timeout_seconds", JSON_OPTIONAL, 1, TIMEOUT_MAX_S),
    JSON_END,
};

static int decode(struct request *req, struct run_body *ret, struct cove_err *e)
{
    uint64_t max = req->core->config->command_max_bytes;

    if (request_json(req, run_body_fields, ret, e) < 0)
        return -1;
    if (!*ret->command)
        return cove_fail(e, COVE_INVALID, "command: must not be empty");
    if (strlen(ret->command) > max)
        return cove_fail(e, COVE_INVALID, "command: %zu bytes are more than %llu",
                         strlen(ret->command), (unsigned long long)max);
    if (check_cwd(ret->cwd, e) < 0)
        return -1;
    return check_env(&req->arena, &ret->env, &ret->env_strings, e);
}

/* ------------------------------------------------------------------ what is told of a command */

struct run_reply {
    bool success;
    struct json_text output;
    const char *message;
    int64_t exit_code;
    /* what ended the command, if it did not end by itself: "memory", "deadline", */
    const char *cause;
    bool truncated;
    const char *process; /* handle of one in the background */
    int64_t pid;
    bool has_exit_code;
};

static const struct json_field run_fields[] = {
    JSON_BOOL(struct run_reply, success, "success", JSON_REQUIRED),
    JSON_TEXT(struct run_reply, output, "output", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct run_reply, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct run_reply, exit_code, "exit_code", JSON_OPTIONAL, 0, 255,
             JSON_HAS(struct run_reply, has_exit_code)),
    JSON_STR(struct run_reply, cause, "cause", JSON_OPTIONAL, JSON_ANY),
    JSON_BOOL(struct run_reply, truncated, "truncated", JSON_OPTIONAL),
    JSON_STR(struct run_reply, process, "process_id", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct run_reply, pid, "pid", JSON_OPTIONAL, 1, INT32_MAX),
    JSON_END,
};

static const char *message_of(struct request *req, const struct cove_end *end)
{
    char what[160];

    if (end->cause == END_OWN && end->signal == 0)
        return end->exit_code == 0
                   ? "Command executed successfully"
                   : arena_printf(&req->arena, "Command exited with code %d", end->exit_code);
    end_describe(end, what, sizeof(what));
    return arena_printf(&req->arena, "Command was ended: %s", what);
}

/* Answers with an error of the document, and with the output that there is as data. */
static void reply_broken(struct reply *rep, int status, const char *name, const struct run_reply *r)
{
    agent_reply_with(rep, status, (struct agent_head){ .error = name, .message = r->message },
                     run_fields, r);
}

static void reply_run(struct request *req, struct reply *rep, const struct cove_end *end,
                      const struct buf *output)
{
    struct run_reply r = {
        .output = { output->data ? output->data : "", output->len },
        .message = message_of(req, end),
        .exit_code = end_exit_code(end),
        .has_exit_code = true,
        .cause = end->cause != END_OWN ? end_cause_name(end->cause) : NULL,
        .truncated = end->cause == END_OUTPUT,
    };

    r.success = r.exit_code == 0;
    if (end->cause != END_OWN)
        req->note.cause = end_cause_name(end->cause);
    if (end->cause == END_DEADLINE)
        reply_broken(rep, 408, "SandboxTimeoutException", &r);
    else if (end->cause == END_GONE || end->cause == END_EXPIRED)
        reply_broken(rep, 404, "SandboxNotFoundException", &r);
    else if (end->cause == END_SERVER)
        reply_broken(rep, 500, "General Error", &r);
    else
        agent_reply(rep, run_fields, &r);
}

/* ------------------------------------------------------------------ running it */

/* Both streams in the order in which they were read: one text, as a terminal would show it. */
static int collect(void *arg, enum run_stream stream, uint64_t offset, const char *bytes,
                   size_t len)
{
    (void)stream;
    (void)offset;
    return buf_add(arg, bytes, len);
}

static uint64_t timeout_ms(const struct run_body *body, const struct limits *limits)
{
    uint64_t asked = (uint64_t)body->timeout_s * 1000, most = limits->run_timeout_ms;

    return asked && asked < most ? asked : most;
}

static int run(struct request *req, struct reply *rep, const struct run_body *body,
               const struct policy_filter *filter, struct core_session *s, struct cove_err *e)
{
    const char *const argv[] = { "/bin/bash", "-c", body->command, NULL };
    struct run_result result;
    struct buf output;
    struct run_args args = {
        .argv = argv,
        .env = body->env_strings,
        .cwd = body->cwd,
        .timeout_ms = timeout_ms(body, &s->limits),
        .output_max_bytes = s->limits.output_max_bytes,
        .max_open_files = s->limits.open_files_max,
        .max_file_bytes = s->limits.file_max_bytes,
        .filter_fd = filter->fd,
        .exec_time = filter->exec_time,
        .dialect = DIALECT_AGENT,
        .client_fd = req->client_fd,
        .sink = collect,
        .sink_arg = &output,
    };
    int rc;

    buf_init_within(&output, args.output_max_bytes, req->core->bytes);
    rc = core_run(s, &args, &result, e);
    if (rc == 0 && output.starved)
        rc = core_fail_memory(e);
    if (rc == 0)
        reply_run(req, rep, &result.end, &output);
    buf_done(&output);
    return rc < 0 && e->code == COVE_NOT_FOUND ? agent_fail_file(req, rep, e) : rc;
}

static int start(struct request *req, struct reply *rep, const struct run_body *body,
                 const struct policy_filter *filter, struct core_session *s, struct cove_err *e)
{
    const char *const argv[] = { "/bin/bash", "-c", body->command, NULL };
    char id[COVE_UUID_LEN + 1];
    struct core_spawn args = {
        .argv = argv,
        .env = body->env_strings,
        .cwd = body->cwd,
        .label = id,
        .filter = filter,
        .dialect = DIALECT_AGENT,
        .timeout_ms = (uint32_t)(body->timeout_s * 1000),
    };
    struct box_spawned spawned;

    text_new_uuid(id);
    if (core_spawn(s, &args, &spawned, e) < 0)
        return e->code == COVE_NOT_FOUND ? agent_fail_file(req, rep, e) : -1;
    return agent_reply(rep, run_fields,
                       &(struct run_reply){
                           .success = true,
                           .output = { "", 0 },
                           .message = "Command started in background",
                           .process = id,
                           .pid = spawned.pid,
                       });
}

/* ------------------------------------------------------------------ may it run */

static void reply_forbidden(struct request *req, struct reply *rep, const struct core_permit *p)
{
    struct agent_head head = {
        .error = "SandboxPermissionError",
        .message = arena_printf(&req->arena,
                                "🚨 Forbidden command detected: \"%s\". "
                                "This operation is not allowed for security reasons.",
                                p->forbidden),
        .rule = p->verdict.rule,
        .reason = p->verdict.reason,
    };

    req->note.cause = arena_printf(&req->arena, "policy: %s", p->verdict.rule);
    agent_reply_with(rep, 403, head, NULL, NULL);
}

static int open_and_run(struct request *req, struct reply *rep, const struct run_body *body,
                        const struct policy_filter *filter, struct cove_err *e)
{
    struct core_session session;
    int rc;

    if (agent_open(req, body->sandbox, &session, e) < 0)
        return -1;
    rc = (body->background ? start : run)(req, rep, body, filter, &session, e);
    core_session_close(&session);
    return rc;
}

int agent_run_cmd(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct run_body body = { 0 };
    struct core_permit permit;
    struct box_info box;
    int rc = 0;

    req->note.operation = "run_cmd";
    if (decode(req, &body, e) < 0 || agent_find(req, body.sandbox, &box, e) < 0)
        return -1;
    if (core_permit_one(req->core, DIALECT_AGENT, req->tenant, box.id, body.command, &permit, e) <
        0)
        return -1;
    if (permit.forbidden)
        reply_forbidden(req, rep, &permit);
    else
        rc = open_and_run(req, rep, &body, &permit.filter, e);
    core_permit_put(&permit);
    return rc;
}
