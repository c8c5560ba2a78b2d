/* The tools: their table, tools/list, tools/call, and what their answers have in common. */
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/log.h"
#include "fcgi/check.h"
#include "fcgi/dialects/mcp.h"

static const struct mcp_tool *const tools[] = {
    &mcp_tool_run,    &mcp_tool_start, &mcp_tool_processes, &mcp_tool_log,
    &mcp_tool_kill,   &mcp_tool_read,  &mcp_tool_write,     &mcp_tool_edit,
    &mcp_tool_list,   &mcp_tool_mkdir, &mcp_tool_move,      &mcp_tool_delete,
    &mcp_tool_search, &mcp_tool_find,  &mcp_tool_expose,    &mcp_tool_info,
};

/* ------------------------------------------------------------------ tools/list */

struct annotations {
    const char *title;
    bool reads, destroys, repeats, open;
};

static const struct json_field annotation_fields[] = {
    JSON_STR(struct annotations, title, "title", JSON_REQUIRED, JSON_ANY),
    JSON_BOOL(struct annotations, reads, "readOnlyHint", JSON_REQUIRED),
    JSON_BOOL(struct annotations, destroys, "destructiveHint", JSON_REQUIRED),
    JSON_BOOL(struct annotations, repeats, "idempotentHint", JSON_REQUIRED),
    JSON_BOOL(struct annotations, open, "openWorldHint", JSON_REQUIRED),
    JSON_END,
};

struct listed_tool { /* its schemas stand beside these members (mcp_schema.c) */
    const char *name, *title, *description;
    struct annotations *annotations;
};

static const struct json_field listed_fields[] = {
    JSON_STR(struct listed_tool, name, "name", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct listed_tool, title, "title", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct listed_tool, description, "description", JSON_REQUIRED, JSON_ANY),
    JSON_OBJECT(struct listed_tool, annotations, "annotations", JSON_REQUIRED, annotation_fields),
    JSON_END,
};

static void put_tool(struct json_writer *w, const struct mcp_tool *t)
{
    struct annotations annotations = {
        .title = t->title,
        .reads = t->hints & MCP_READS,
        .destroys = t->hints & MCP_DESTROYS,
        .repeats = t->hints & (MCP_REPEATS | MCP_READS),
        .open = t->hints & MCP_OPEN,
    };
    struct listed_tool listed = { t->name, t->title, t->description, &annotations };

    json_open(w, NULL, '{');
    json_put_members(w, listed_fields, &listed);
    mcp_put_schema(w, "inputSchema", t->args, t->about, true);
    mcp_put_schema(w, "outputSchema", t->result, t->about, false);
    json_close(w, '}');
}

int mcp_list_tools(struct mcp_call *c, struct cove_err *e)
{
    (void)e;
    if (c->cursor)
        return mcp_refuse(c, MCP_PARAMS, "cursor: there is only one page");
    mcp_result_begin(c);
    json_open(c->w, "tools", '[');
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        put_tool(c->w, tools[i]);
    json_close(c->w, ']');
    mcp_put_cache(c, 3600 * 1000);
    mcp_result_end(c);
    return 0;
}

/* ------------------------------------------------------------------ answers */

struct content {
    const char *type;
    struct json_text text;
};

static const struct json_field content_fields[] = {
    JSON_STR(struct content, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct content, text, "text", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

struct answer {
    struct json_array content;
    bool failed;
};

static const struct json_field answer_fields[] = {
    JSON_OBJECTS(struct answer, content, struct content, "content", JSON_REQUIRED, content_fields,
                 JSON_ANY),
    JSON_BOOL(struct answer, failed, "isError", JSON_REQUIRED),
    JSON_END,
};

static void put_answer(struct mcp_call *c, const char *text, size_t len, bool failed)
{
    struct content content = { "text", { text, len } };

    json_put_members(c->w, answer_fields, &(struct answer){ { &content, 1 }, failed });
}

int mcp_reply(struct mcp_call *c, const char *text, size_t len, const struct json_field *fields,
              const void *from)
{
    mcp_result_begin(c);
    put_answer(c, text, len, false);
    json_put_object(c->w, "structuredContent", fields, from);
    mcp_result_end(c);
    return 0;
}

int mcp_replyf(struct mcp_call *c, const struct json_field *fields, const void *from,
               const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return mcp_reply(c, text, strlen(text), fields, from);
}

void mcp_reply_failure(struct mcp_call *c, const char *text)
{
    mcp_result_begin(c);
    put_answer(c, text, strlen(text), true);
    mcp_result_end(c);
}

/* ------------------------------------------------------------------ policy */

static void reply_forbidden(struct mcp_call *c, const struct policy_result *v)
{
    c->req->note.cause = arena_printf(&c->req->arena, "policy: %s", v->rule);
    mcp_reply_failure(
        c, arena_printf(
               &c->req->arena,
               "The operator's policy refused this command, and nothing of it was run.\n"
               "rule: %s\nreason: %s\n"
               "What to do instead: reach the goal without what the rule forbids, for example by "
               "naming single files below /workspace, or ask the user. The same command in other "
               "words will be refused again.",
               v->rule, *v->reason ? v->reason : "not given"));
}

int mcp_permit(struct mcp_call *c, const char *command, struct core_permit *ret, struct cove_err *e)
{
    if (core_permit_one(c->req->core, DIALECT_MCP, c->req->tenant, mcp_sandbox_name(c->req),
                        command, ret, e) < 0)
        return -1;
    if (!ret->forbidden)
        return 0;
    reply_forbidden(c, &ret->verdict);
    core_permit_put(ret);
    return 1;
}

int mcp_with_permit(struct mcp_call *c, const void *args, mcp_permitted *then, struct cove_err *e)
{
    const struct mcp_command *a = args;
    const char *const *env;
    struct core_permit granted;
    int rc;

    if (!*a->command)
        return cove_fail(e, COVE_INVALID, "command: must not be empty");
    if (strlen(a->command) > c->req->core->config->command_max_bytes)
        return cove_fail(e, COVE_INVALID, "command: longer than %llu bytes; write a script instead",
                         (unsigned long long)c->req->core->config->command_max_bytes);
    if (check_cwd(a->cwd, e) < 0 || check_env(&c->req->arena, &a->env, &env, e) < 0)
        return -1;
    rc = mcp_permit(c, a->command, &granted, e);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    rc = then(c, args, env, &granted.filter, e);
    core_permit_put(&granted);
    return rc;
}

/* ------------------------------------------------------------------ tools/call */

static const struct mcp_tool *find_tool(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        if (strcmp(tools[i]->name, name) == 0)
            return tools[i];
    return NULL;
}

static bool has_field(const struct json_field *fields, const char *name)
{
    for (; fields->kind != JSON_KIND_END; fields++)
        if (strcmp(fields->name, name) == 0)
            return true;
    return false;
}

static int fail_unknown(struct mcp_call *c, const struct mcp_tool *t, const char *name,
                        struct cove_err *e)
{
    const char *known = "";

    for (const struct json_field *f = t->args; f->kind != JSON_KIND_END; f++)
        known = arena_printf(&c->req->arena, "%s%s%s", known, *known ? ", " : "", f->name);
    return cove_fail(e, COVE_INVALID, "%.60s: is not an argument of %s, which takes: %s", name,
                     t->name, known);
}

static int read_arguments(struct mcp_call *c, const struct mcp_tool *t, void *out,
                          struct cove_err *e)
{
    struct json_object *given = c->arguments, *none = NULL;
    int rc;

    if (given) {
        json_object_object_foreach(given, name, value)
        {
            (void)value;
            if (!has_field(t->args, name))
                return fail_unknown(c, t, name, e);
        }
    } else {
        given = none = json_object_new_object();
    }
    rc = json_read(&c->req->arena, given, t->args, out, e);
    json_object_put(none);
    return rc;
}

/* A sentence about what a model can do about an error, where the error itself does not say it. */
static const char *advice(enum cove_code code)
{
    switch (code) {
    case COVE_BUSY:
        return "Try again in a second.";
    case COVE_QUOTA:
    case COVE_LIMIT:
        return "A limit was reached: free something (end a process, delete files), or wait.";
    case COVE_GONE:
        return "The sandbox ended meanwhile. Its files may be gone; look before you go on.";
    case COVE_NOT_FOUND:
        return "Look at what is there with list_files or find_files.";
    case COVE_TOO_LARGE:
        return "Ask for a part: a range of lines, or a smaller file.";
    default:
        return NULL;
    }
}

static void reply_error(struct mcp_call *c, const struct cove_err *e)
{
    const char *what = advice(e->code);

    if (e->code == COVE_INTERNAL)
        log_error("tool failed", e, LOG_S("request_id", c->req->request_id),
                  LOG_S("tool", c->name));
    c->req->note.cause = cove_code_name(e->code);
    mcp_reply_failure(c, what ? arena_printf(&c->req->arena, "%s. %s", e->msg, what) : e->msg);
}

/* Answers that a tool was refused. The HTTP status is 200, because the message itself was understood. */
static int refuse_tool(struct mcp_call *c)
{
    c->fault.status = 200;
    return mcp_refuse(c, MCP_PARAMS, "params.name: there is no tool '%.60s'", c->name);
}

int mcp_call_tool(struct mcp_call *c, struct cove_err *e)
{
    const struct mcp_tool *t = c->name ? find_tool(c->name) : NULL;
    void *args;

    if (!c->name)
        return mcp_refuse(c, MCP_PARAMS, "params.name: is missing");
    if (!t)
        return refuse_tool(c);
    c->req->note.operation = arena_printf(&c->req->arena, "mcp %s", t->name);
    args = arena_alloc(&c->req->arena, t->args_size ? t->args_size : 1);
    if (read_arguments(c, t, args, e) < 0 || t->run(c, args, e) < 0)
        if (!c->answered && !c->cancelled)
            reply_error(c, e);
    return 0;
}
