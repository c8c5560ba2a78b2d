/* The execute dialect's body: every field is checked before anything is done. */
#include <inttypes.h>
#include <string.h>

#include "cove/config.h"
#include "cove/text.h"
#include "fcgi/dialects/execute.h"

enum { ANY_COUNT = JSON_VALUES_MAX, ENV_MAX_COUNT = 256, TIMEOUT_MAX_S = 86400 * 7 };

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
    JSON_STR(struct execute_args, cwd, "cwd", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR_MAP(struct execute_args, env, "env", JSON_OPTIONAL, ENV_MAX_COUNT, ENV_MAX_BYTES),
    JSON_END,
};

/* A project is a name that people see in logs and listings, never a path. */
static bool is_control(const char *s, size_t len)
{
    unsigned char c = (unsigned char)*s;

    return c < ' ' || c == 127 || (len == 2 && c == 0xC2 && (unsigned char)s[1] < 0xA0);
}

static int check_project(const char *name, struct cove_err *e)
{
    size_t left = strlen(name);

    if (left == 0)
        return cove_fail(e, COVE_INVALID, "projectId: must not be empty");
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return cove_fail(e, COVE_INVALID, "projectId: must not be '.' or '..'");
    while (left > 0) {
        size_t len = text_utf8_seq(name, left);

        if (len == 0)
            return cove_fail(e, COVE_INVALID, "projectId: must be valid UTF-8");
        if (is_control(name, len))
            return cove_fail(e, COVE_INVALID, "projectId: must not contain control characters");
        if (*name == '/' || *name == '\\')
            return cove_fail(e, COVE_INVALID, "projectId: must not contain '%c'", *name);
        name += len;
        left -= len;
    }
    return 0;
}

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

static bool is_env_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

    return *name && strchr(letters, *name) && name[strspn(name, all)] == '\0';
}

static int check_env(struct request *req, struct execute_args *args, struct cove_err *e)
{
    const char **strings = arena_alloc(&req->arena, (args->env.count + 1) * sizeof(*strings));
    size_t total = 0;

    for (size_t i = 0; i < args->env.count; i++) {
        const struct pair *p = &args->env.items[i];

        if (!is_env_name(p->name))
            return cove_fail(e, COVE_INVALID,
                             "env: '%.60s' is not a name of letters, digits and '_'", p->name);
        strings[i] = arena_printf(&req->arena, "%s=%s", p->name, p->value);
        total += strlen(strings[i]) + 1;
    }
    if (total > ENV_MAX_BYTES)
        return cove_fail(e, COVE_INVALID, "env: %zu bytes are more than %d", total, ENV_MAX_BYTES);
    args->env_strings = strings;
    return 0;
}

int execute_decode_action(struct request *req, struct execute_args *ret, struct cove_err *e)
{
    return json_decode(req, action_fields, ret, e);
}

int execute_decode_project(struct request *req, struct execute_args *ret, struct cove_err *e)
{
    if (json_decode(req, project_fields, ret, e) < 0 || check_project(ret->project, e) < 0)
        return -1;
    req->note.project = ret->project;
    return 0;
}

int execute_decode(struct request *req, const struct cove_config *config, struct execute_args *ret,
                   struct cove_err *e)
{
    if (execute_decode_project(req, ret, e) < 0 || json_decode(req, execute_fields, ret, e) < 0)
        return -1;
    if (ret->cwd && *ret->cwd != '/')
        return cove_fail(e, COVE_INVALID, "cwd: must begin with '/'");
    if (check_commands(&ret->commands, config, e) < 0)
        return -1;
    return check_env(req, ret, e);
}
