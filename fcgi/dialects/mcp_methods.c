/* Methods of the protocol that need no sandbox, and the table of all of them. */
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

struct server {
    const char *name, *title, *version;
};

static const struct json_field server_fields[] = {
    JSON_STR(struct server, name, "name", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct server, title, "title", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct server, version, "version", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

struct capability { /* an object without members: the capability is there and has no options */
    bool subscribe;
};

static const struct json_field capability_fields[] = {
    JSON_BOOL(struct capability, subscribe, "subscribe", JSON_OPTIONAL),
    JSON_END,
};

struct capabilities {
    const struct capability *tools, *prompts, *resources;
};

static const struct json_field capabilities_fields[] = {
    JSON_OBJECT(struct capabilities, tools, "tools", JSON_OPTIONAL, capability_fields),
    JSON_OBJECT(struct capabilities, prompts, "prompts", JSON_OPTIONAL, capability_fields),
    JSON_OBJECT(struct capabilities, resources, "resources", JSON_OPTIONAL, capability_fields),
    JSON_END,
};

struct introduction { /* of both kinds of revisions */
    const char *version, *instructions;
    struct json_strings versions;
    const struct capabilities *capabilities;
    const struct server *server;
};

static const struct json_field introduction_fields[] = {
    JSON_STR(struct introduction, version, "protocolVersion", JSON_OPTIONAL, JSON_ANY),
    JSON_STR_ARRAY(struct introduction, versions, "supportedVersions", JSON_OPTIONAL, JSON_ANY,
                   JSON_ANY),
    JSON_OBJECT(struct introduction, capabilities, "capabilities", JSON_REQUIRED,
                capabilities_fields),
    JSON_OBJECT(struct introduction, server, "serverInfo", JSON_OPTIONAL, server_fields),
    JSON_STR(struct introduction, instructions, "instructions", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static const struct capability plain = { 0 }, with_subscriptions = { .subscribe = true };
static const struct capabilities offered = { &plain, &plain, &with_subscriptions };

static int discover(struct mcp_call *c, struct cove_err *e)
{
    (void)e;
    mcp_result_begin(c);
    json_put_members(c->w, introduction_fields,
                     &(struct introduction){ .versions = mcp_versions(),
                                             .capabilities = &offered,
                                             .instructions = instructions });
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
    static const struct server server = { "cove", "cove sandbox", COVE_VERSION };
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
    json_put_members(c->w, introduction_fields,
                     &(struct introduction){ .version = c->version,
                                             .capabilities = &offered,
                                             .server = &server,
                                             .instructions = instructions });
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
    struct json_text which = { 0 };

    (void)e;
    if (mcp_read_id(&c->req->arena, c->params, "requestId", &which))
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

/* Finds the method. A request must have an id and a notification must have none; otherwise the method counts as
 * unknown. */
mcp_method *mcp_find_method(const struct mcp_call *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        bool notifies = strncmp(methods[i].name, "notifications/", 14) == 0;

        if (strcmp(methods[i].name, c->method) == 0 &&
            (methods[i].eras & (c->modern ? NEW : OLD)) && notifies == !c->id.bytes)
            return methods[i].run;
    }
    return NULL;
}
