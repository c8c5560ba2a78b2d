/* The execute dialect's bodies: of a request every field is checked before anything is done. */
#include <inttypes.h>
#include <string.h>

#include "cove/config.h"
#include "cove/msg.h"
#include "fcgi/check.h"
#include "fcgi/dialects/execute.h"

enum { ANY_COUNT = JSON_VALUES_MAX };

static const struct json_field action_fields[] = {
    JSON_STR(struct execute_args, action, "action", JSON_OPTIONAL, 64),
    JSON_END,
};

static const struct json_field project_fields[] = {
    JSON_STR(struct execute_args, project, "projectId", JSON_REQUIRED, PROJECT_MAX_BYTES),
    JSON_END,
};

static const struct json_field execute_fields[] = {
    /* count and size of commands are configuration: check_commands() */
    JSON_STR_ARRAY(struct execute_args, commands, "commands", JSON_REQUIRED, ANY_COUNT, SIZE_MAX),
    JSON_BOOL(struct execute_args, stop_on_error, "stopOnError", JSON_OPTIONAL),
    JSON_INT(struct execute_args, timeout_s, "timeout", JSON_OPTIONAL, 1, TIMEOUT_MAX_S),
    JSON_STR(struct execute_args, template, "template", JSON_OPTIONAL, COVE_TEMPLATE_MAX - 1),
    JSON_STR(struct execute_args, cwd, "cwd", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR_MAP(struct execute_args, env, "env", JSON_OPTIONAL, ENV_MAX_COUNT, ENV_MAX_BYTES),
    JSON_END,
};

static const struct json_field ended_fields[] = {
    JSON_STR(struct execute_ended, cause, "cause", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct execute_ended, limit, "limit", JSON_REQUIRED, 0, INT64_MAX),
    JSON_STR(struct execute_ended, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

const struct json_field execute_reply_fields[] = {
    JSON_BOOL(struct execute_reply, success, "success", JSON_REQUIRED),
    JSON_TEXT(struct execute_reply, stdout_text, "stdout", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct execute_reply, stderr_text, "stderr", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct execute_reply, exit_code, "exitCode", JSON_REQUIRED, 0, 255),
    JSON_STR(struct execute_reply, sandbox, "sandboxId", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct execute_reply, error, "error", JSON_OPTIONAL, JSON_ANY),
    JSON_BOOL(struct execute_reply, truncated, "truncated", JSON_OPTIONAL),
    JSON_OBJECT(struct execute_reply, ended, "ended", JSON_OPTIONAL, ended_fields),
    JSON_TIME(struct execute_reply, created_unix_ms, "created", JSON_OPTIONAL),
    JSON_TIME(struct execute_reply, expires_unix_ms, "expiresAt", JSON_OPTIONAL),
    JSON_END,
};

const struct json_field execute_error_fields[] = {
    JSON_BOOL(struct execute_reply, success, "success", JSON_REQUIRED),
    JSON_STR(struct execute_reply, error, "error", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct execute_reply, exit_code, "exitCode", JSON_REQUIRED, 0, 255),
    JSON_STR(struct execute_reply, rule, "rule", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct execute_reply, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct execute_reply, hint, "hint", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

const struct json_field execute_success_fields[] = {
    JSON_BOOL(struct execute_reply, success, "success", JSON_REQUIRED),
    JSON_END,
};

const struct json_field execute_life_fields[] = {
    JSON_BOOL(struct execute_reply, success, "success", JSON_REQUIRED),
    JSON_STR(struct execute_reply, sandbox, "sandboxId", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct execute_reply, created_unix_ms, "created", JSON_REQUIRED),
    JSON_TIME(struct execute_reply, expires_unix_ms, "expiresAt", JSON_REQUIRED),
    JSON_END,
};

static const struct json_field extend_fields[] = {
    JSON_INT(struct execute_args, seconds, "seconds", JSON_REQUIRED, 1, TIMEOUT_MAX_S),
    JSON_END,
};

static int check_commands(const struct json_strings *commands, const struct cove_config *config,
                          struct cove_err *e)
{
    if (commands->count == 0)
        return cove_fail(e, COVE_INVALID, "commands: must not be empty");
    if (commands->count > config->commands_max)
        return cove_fail(e, COVE_INVALID, "commands: %zu entries are more than %" PRIu64,
                         commands->count, config->commands_max);
    for (size_t i = 0; i < commands->count; i++) {
        size_t len = strlen(commands->items[i]);

        if (len > config->command_max_bytes)
            return cove_fail(e, COVE_INVALID, "commands[%zu]: %zu bytes are more than %" PRIu64, i,
                             len, config->command_max_bytes);
    }
    return 0;
}

int execute_decode_action(struct request *req, struct execute_args *ret, struct cove_err *e)
{
    return request_json(req, action_fields, ret, e);
}

int execute_decode_project(struct request *req, struct execute_args *ret, struct cove_err *e)
{
    if (request_json(req, project_fields, ret, e) < 0 ||
        check_project("projectId", ret->project, e) < 0)
        return -1;
    req->note.project = ret->project;
    return 0;
}

int execute_decode_extend(struct request *req, const struct cove_config *config,
                          struct execute_args *ret, struct cove_err *e)
{
    if (execute_decode_project(req, ret, e) < 0 || request_json(req, extend_fields, ret, e) < 0)
        return -1;
    return check_extension(ret->seconds, config, e);
}

int execute_decode(struct request *req, const struct cove_config *config, struct execute_args *ret,
                   struct cove_err *e)
{
    if (execute_decode_project(req, ret, e) < 0 || request_json(req, execute_fields, ret, e) < 0)
        return -1;
    if (check_template("template", ret->template, e) < 0 || check_cwd(ret->cwd, e) < 0 ||
        check_commands(&ret->commands, config, e) < 0)
        return -1;
    return check_env(&req->arena, &ret->env, &ret->env_strings, e);
}
