/* Methods of the protocol that need no sandbox, and the table of all of them. */
#include <json-c/json.h>
#include <string.h>

#include "fcgi/dialects/mcp.h"

static const char instructions[] =
    "These tools work inside one Linux sandbox, which has its own files, processes and network. "
    "Use run_command for what ends by itself and start_process for servers and other things that "
    "go on. "
    "Files that should last belong in /workspace. Paths without a leading slash begin in the home "
    "directory. A command that the operator's policy refuses is not run; the answer names the "
    "rule.";

/* ------------------------------------------------------------------ who is this */

static void put_server_info(struct mcp_call *c)
{
    json_open(c->w, "serverInfo", '{');
    json_put_str(c->w, "name", "cove");
    json_put_str(c->w, "title", "cove sandbox");
    json_put_str(c->w, "version", COVE_VERSION);
    json_close(c->w, '}');
}

static void put_capabilities(struct mcp_call *c)
{
    json_open(c->w, "capabilities", '{');
    json_open(c->w, "tools", '{');
    json_close(c->w, '}');
    json_open(c->w, "prompts", '{');
    json_close(c->w, '}');
    json_open(c->w, "resources", '{');
    json_put_bool(c->w, "subscribe", true);
    json_close(c->w, '}');
    json_close(c->w, '}');
}

static int discover(struct mcp_call *c, struct cove_err *e)
{
    (void)e;
    mcp_result_begin(c);
    mcp_put_versions(c->w, "supportedVersions");
    put_capabilities(c);
    json_put_str(c->w, "instructions", instructions);
    mcp_put_cache(c, 3600 * 1000);
    mcp_result_end(c);
    return 0;
}

struct initialize {
    const char *version;
};

static const struct json_field initialize_fields[] = {
    JSON_STR(struct initialize, version, "protocolVersion", JSON_REQUIRED, 40),
    JSON_END,
};

/* The revision that the client asks for, if it is one with sessions; else the newest of those. */
static const char *agree(const char *wanted)
{
    const char *served = mcp_session_version(wanted);

    return served ? served : MCP_LATEST;
}

static int initialize(struct mcp_call *c, struct cove_err *e)
{
    struct initialize args = { 0 };
    const char *session;

    if (!c->params)
        return mcp_refuse(c, MCP_PARAMS, "params: is missing");
    if (json_read(&c->req->arena, c->params, initialize_fields, &args, e) < 0)
        return mcp_refuse(c, MCP_PARAMS, "params.%s", e->msg);
    c->version = agree(args.version);
    if (mcp_session_new(c, c->version, &session, e) < 0)
        return -1;
    if (!c->batched)
        reply_header(c->rep, "Mcp-Session-Id", session);
    mcp_result_begin(c);
    json_put_str(c->w, "protocolVersion", c->version);
    put_capabilities(c);
    put_server_info(c);
    json_put_str(c->w, "instructions", instructions);
    mcp_result_end(c);
    return 0;
}

static int ping(struct mcp_call *c, struct cove_err *e)
{
    (void)e;
    mcp_result_begin(c);
    mcp_result_end(c);
    return 0;
}

static int list_prompts(struct mcp_call *c, struct cove_err *e)
{
    (void)e;
    mcp_result_begin(c);
    json_open(c->w, "prompts", '[');
    json_close(c->w, ']');
    mcp_put_cache(c, 3600 * 1000);
    mcp_result_end(c);
    return 0;
}

/* ------------------------------------------------------------------ notifications */

static int take_note(struct mcp_call *c, struct cove_err *e)
{
    (void)c;
    (void)e;
    return 0;
}

static int cancelled(struct mcp_call *c, struct cove_err *e)
{
    struct mcp_id which = { 0 };
    struct json_object *v = NULL;

    (void)e;
    if (!c->params || !json_object_object_get_ex(c->params, "requestId", &v))
        return 0;
    which.given = true;
    which.is_text = json_object_is_type(v, json_type_string);
    which.text = which.is_text ? json_object_get_string(v) : NULL;
    which.number = which.is_text ? 0 : json_object_get_int64(v);
    mcp_cancel(c, &which);
    return 0;
}

/* ------------------------------------------------------------------ the table */

enum { OLD = 1, NEW = 2 }; /* with sessions, without */

static const struct {
    const char *name;
    unsigned eras;
    mcp_method *run;
} methods[] = {
    { "server/discover", NEW, discover },
    { "initialize", OLD, initialize },
    { "ping", OLD, ping },
    { "tools/list", OLD | NEW, mcp_list_tools },
    { "tools/call", OLD | NEW, mcp_call_tool },
    { "resources/list", OLD | NEW, mcp_list_resources },
    { "resources/templates/list", OLD | NEW, mcp_list_templates },
    { "resources/read", OLD | NEW, mcp_read },
    { "resources/subscribe", OLD, mcp_subscribe },
    { "resources/unsubscribe", OLD, mcp_unsubscribe },
    { "subscriptions/listen", NEW, mcp_listen },
    { "prompts/list", OLD | NEW, list_prompts },
    { "notifications/initialized", OLD, take_note },
    { "notifications/cancelled", OLD | NEW, cancelled },
    { "notifications/roots/list_changed", OLD, take_note },
};

/* A request must have an id and a notification must have none: what is neither is not known. */
mcp_method *mcp_find_method(const struct mcp_call *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        bool notifies = strncmp(methods[i].name, "notifications/", 14) == 0;

        if (strcmp(methods[i].name, c->method) == 0 &&
            (methods[i].eras & (c->modern ? NEW : OLD)) && notifies != c->id.given)
            return methods[i].run;
    }
    return NULL;
}
