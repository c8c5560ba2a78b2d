/* Sandboxes: made, connected to, looked at, paused, deleted, listed, given another end. */
#include <string.h>

#include "cove/config.h"
#include "cove/dialect.h"
#include "cove/log.h"
#include "cove/text.h"
#include "fcgi/check.h"
#include "fcgi/dialects/agent.h"
#include "fcgi/port_links.h"

enum { USER_ID_MAX = 256, REASON_MAX = 200, CODE_LINK_S = 3600, LIST_MAX = 16384 };

#define BASE_TEMPLATE "base"
#define DEFAULT_NAME  "default" /* what this dialect calls BASE_TEMPLATE */
#define USER_ATTRIBUTE                                                                             \
    "user_id" /* the name among a sandbox's metadata, which other dialects show */

/* ------------------------------------------------------------------ what is told of one */

struct sandbox {
    bool success;
    const char *name, *id, *status, *message;
    const char *mcp_url, *vscode_url, *vscode_link;
    const char *user, *template;
    uint64_t created_unix_ms, ends_unix_ms;
};

static const struct json_field connected_fields[] = {
    JSON_BOOL(struct sandbox, success, "success", JSON_REQUIRED),
    JSON_STR(struct sandbox, name, "sandbox_id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, id, "provider_sandbox_id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, mcp_url, "mcp_url", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, vscode_url, "vscode_url", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, user, "user_id", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static const struct json_field status_fields[] = {
    JSON_BOOL(struct sandbox, success, "success", JSON_REQUIRED),
    JSON_STR(struct sandbox, name, "sandbox_id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, id, "provider_sandbox_id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static const struct json_field info_fields[] = {
    JSON_STR(struct sandbox, name, "sandbox_id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, id, "provider_sandbox_id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, user, "user_id", JSON_NULLABLE, JSON_ANY),
    JSON_STR(struct sandbox, template, "template_id", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct sandbox, created_unix_ms, "created_at", JSON_REQUIRED),
    JSON_STR(struct sandbox, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct sandbox, ends_unix_ms, "expires_at", JSON_OPTIONAL), /* extension */
    JSON_END,
};

static const struct json_field urls_fields[] = {
    JSON_BOOL(struct sandbox, success, "success", JSON_REQUIRED),
    JSON_STR(struct sandbox, name, "sandbox_id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, mcp_url, "mcp_url", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct sandbox, vscode_url, "vscode_url", JSON_REQUIRED, JSON_ANY),
    /* extension: opens vscode_url in a browser, which cannot send a key by itself */
    JSON_STR(struct sandbox, vscode_link, "vscode_link", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static const char *status_of(const struct box_info *box)
{
    return box->state == BOX_ENDED ? "stopped" : box_is_paused(box) ? "paused" : "running";
}

static const char *user_of(const struct core_attributes *attributes)
{
    for (size_t i = 0; i < attributes->metadata.count; i++)
        if (strcmp(attributes->metadata.items[i].name, USER_ATTRIBUTE) == 0)
            return attributes->metadata.items[i].value;
    return NULL;
}

static void describe(struct request *req, const struct box_info *box, struct sandbox *ret)
{
    const struct cove_config *c = req->core->config;
    struct core_attributes attributes;
    const char *id = arena_strdup(&req->arena, box->id);

    core_attributes_read(req->core, &req->arena, id, &attributes);
    *ret = (struct sandbox){
        .success = true,
        .name = agent_name(req, id),
        .id = id,
        .status = status_of(box),
        .mcp_url = port_origin(req, id, (unsigned)c->agent_mcp_port),
        .vscode_url = port_origin(req, id, (unsigned)c->agent_code_port),
        .user = user_of(&attributes),
        .template = attributes.template_asked ? attributes.template_asked
                                              : arena_strdup(&req->arena, box->template),
        .created_unix_ms = box->created_unix_ms,
        .ends_unix_ms = core_sandbox_ends_unix_ms(box),
    };
}

/* Finds a sandbox that lives, or the record of one that has stopped. */
static int find_any(struct request *req, const char *name, struct box_info *ret, struct cove_err *e)
{
    if (agent_find(req, name, ret, NULL) == 0)
        return 0;
    if (core_sandbox_find_ended(req->core, req->tenant, name, ret, e) < 0)
        return -1;
    req->note.sandbox = arena_strdup(&req->arena, ret->id);
    return 0;
}

static int find_and_describe(struct request *req, struct sandbox *ret, struct cove_err *e)
{
    struct box_info box;

    if (find_any(req, request_capture(req, "sandbox_id"), &box, e) < 0)
        return -1;
    describe(req, &box, ret);
    return 0;
}

/* ------------------------------------------------------------------ /create */

struct create_args {
    const char *user, *template;
};

static const struct json_field create_fields[] = {
    JSON_STR(struct create_args, user, "user_id", JSON_OPTIONAL, USER_ID_MAX),
    JSON_STR(struct create_args, template, "sandbox_template_id", JSON_OPTIONAL,
             COVE_TEMPLATE_MAX - 1),
    JSON_END,
};

static bool pauses_at_end(const struct cove_config *c)
{
    return strcmp(c->agent_end, "pause") == 0;
}

static int make(struct request *req, const struct create_args *args, struct box_info *ret,
                struct cove_err *e)
{
    struct pair user = { USER_ATTRIBUTE, args->user };
    bool is_default = strcmp(args->template, DEFAULT_NAME) == 0;
    struct core_attributes attributes = {
        .metadata = { &user, args->user ? 1 : 0 },
        .auto_pause = pauses_at_end(req->core->config),
        .template_asked = args->template,
    };
    struct core_new new = {
        .tenant = req->tenant,
        .template = is_default ? BASE_TEMPLATE : args->template,
        .dialect = DIALECT_AGENT,
        .lifetime_ms = req->core->config->agent_lifetime_ms,
        .keep_ended_s = (uint32_t)(req->core->config->agent_keep_stopped_ms / 1000),
        .attributes = &attributes,
    };

    if (core_sandbox_create(req->core, &new, ret, e) == 0)
        return 0;
    return e->code == COVE_NOT_FOUND
               ? cove_fail(e, COVE_INVALID, "sandbox_template_id: there is no template '%.60s'",
                           args->template)
               : -1;
}

int agent_create(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct create_args args = { .template = DEFAULT_NAME };
    struct sandbox sandbox;
    struct box_info box;

    req->note.operation = "create";
    if (request_json(req, create_fields, &args, e) < 0)
        return -1;
    if (!*args.template)
        args.template = DEFAULT_NAME;
    if (make(req, &args, &box, e) < 0)
        return -1;
    req->note.sandbox = arena_strdup(&req->arena, box.id);
    describe(req, &box, &sandbox);
    sandbox.message = "Sandbox created successfully";
    return agent_reply(rep, connected_fields, &sandbox);
}

/* ------------------------------------------------------------------ /connect */

struct connect_args {
    const char *sandbox;
};

static const struct json_field connect_fields[] = {
    JSON_STR(struct connect_args, sandbox, "sandbox_id", JSON_REQUIRED, AGENT_NAME_MAX),
    JSON_END,
};

/* A sandbox that was paused at the end of its lifetime gets a new lifetime; others keep the end they have. */
int agent_connect(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct connect_args args = { 0 };
    struct sandbox sandbox;
    struct box_info box;

    req->note.operation = "connect";
    if (request_json(req, connect_fields, &args, e) < 0 ||
        agent_find(req, args.sandbox, &box, e) < 0)
        return -1;
    if (box.state != BOX_LIVE && box.state != BOX_AGEING &&
        (core_sandbox_resume(req->core, &box, 0, e) < 0 || agent_find(req, box.id, &box, e) < 0))
        return -1;
    describe(req, &box, &sandbox);
    sandbox.message = "Successfully connected to sandbox";
    return agent_reply(rep, connected_fields, &sandbox);
}

/* ------------------------------------------------------------------ looking at one */

int agent_status(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct sandbox sandbox;

    req->note.operation = "status";
    if (find_and_describe(req, &sandbox, e) < 0)
        return -1;
    sandbox.message = "Status retrieved successfully";
    return agent_reply(rep, status_fields, &sandbox);
}

int agent_info(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct sandbox sandbox;

    req->note.operation = "info";
    if (find_and_describe(req, &sandbox, e) < 0)
        return -1;
    return agent_reply(rep, info_fields, &sandbox);
}

int agent_urls(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct sandbox sandbox;
    struct box_info box;

    req->note.operation = "urls";
    if (agent_find(req, request_capture(req, "sandbox_id"), &box, e) < 0)
        return -1;
    describe(req, &box, &sandbox);
    sandbox.vscode_link =
        port_link(req, sandbox.id, (unsigned)req->core->config->agent_code_port, CODE_LINK_S, NULL);
    return agent_reply(rep, urls_fields, &sandbox);
}

/* ------------------------------------------------------------------ pause, delete */

/* The reason is a short text for people: it goes into the reply and the log. */
static int read_reason(struct request *req, const char **ret, struct cove_err *e)
{
    const char *given = request_query(req, "reason");

    *ret = given && *given ? given : "manual";
    if (strlen(*ret) > REASON_MAX)
        return cove_fail(e, COVE_INVALID, "reason: longer than %d bytes", REASON_MAX);
    for (const char *at = *ret; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            return cove_fail(e, COVE_INVALID, "reason: must not contain control characters");
    return 0;
}

/* A sandbox that is paused already stays so: the reply is the same. */
int agent_pause(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *reason;
    struct box_info box;

    req->note.operation = "pause";
    if (read_reason(req, &reason, e) < 0 ||
        agent_find(req, request_capture(req, "sandbox_id"), &box, e) < 0)
        return -1;
    if ((box.state == BOX_LIVE || box.state == BOX_AGEING) &&
        core_sandbox_pause(req->core, &box, e) < 0)
        return -1;
    log_event(LOG_LEVEL_INFO, "sandbox paused", LOG_S("sandbox", box.id),
              LOG_S("tenant", req->tenant), LOG_S("reason", reason));
    return agent_reply_done(
        rep, arena_printf(&req->arena, "Sandbox paused successfully (reason: %s)", reason));
}

int agent_delete(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_info box;

    req->note.operation = "delete";
    if (find_any(req, request_capture(req, "sandbox_id"), &box, e) < 0 ||
        core_sandbox_kill(req->core, &box, e) < 0)
        return -1;
    return agent_reply_done(rep, "Sandbox deleted successfully");
}

/* ------------------------------------------------------------------ the list (extension) */

struct listing {
    struct request *req;
    const char *user, *status; /* NULL: any */
    struct sandbox *items;
    size_t count, room;
};

struct sandbox_list {
    bool success;
    struct json_array sandboxes;
};

static const struct json_field list_fields[] = {
    JSON_BOOL(struct sandbox_list, success, "success", JSON_REQUIRED),
    JSON_OBJECTS(struct sandbox_list, sandboxes, struct sandbox, "sandboxes", JSON_REQUIRED,
                 info_fields, LIST_MAX),
    JSON_END,
};

static bool is_wanted(const char *filter, const char *value)
{
    return !filter || (value && strcmp(filter, value) == 0);
}

static int take(void *arg, const struct box_info *box)
{
    struct listing *l = arg;
    struct sandbox sandbox;

    if (!is_wanted(l->status, status_of(box)))
        return 0;
    describe(l->req, box, &sandbox);
    if (!is_wanted(l->user, sandbox.user))
        return 0;
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct sandbox *more = arena_alloc(&l->req->arena, room * sizeof(*more));

        if (l->count > 0)
            memcpy(more, l->items, l->count * sizeof(*more));
        l->items = more;
        l->room = room;
    }
    l->items[l->count++] = sandbox;
    return 0;
}

int agent_list(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct listing l = {
        .req = req,
        .user = request_query(req, "user_id"),
        .status = request_query(req, "status"),
    };

    req->note.operation = "list";
    if (l.status && strcmp(l.status, "running") != 0 && strcmp(l.status, "paused") != 0 &&
        strcmp(l.status, "stopped") != 0)
        return cove_fail(e, COVE_INVALID, "status: must be running, paused or stopped");
    if (l.status && strcmp(l.status, "stopped") == 0)
        core_sandbox_list_ended(req->core, req->tenant, take, &l);
    else
        core_sandbox_list(req->core, req->tenant, take, &l);
    return agent_reply(rep, list_fields, &(struct sandbox_list){ true, { l.items, l.count } });
}

/* ------------------------------------------------------------------ /schedule-timeout */

struct timeout_args {
    const char *sandbox;
    int64_t seconds;
};

static const struct json_field timeout_fields[] = {
    JSON_STR(struct timeout_args, sandbox, "sandbox_id", JSON_REQUIRED, AGENT_NAME_MAX),
    JSON_INT(struct timeout_args, seconds, "timeout_seconds", JSON_REQUIRED, 1, TIMEOUT_MAX_S),
    JSON_END,
};

/* Replaces the end that the sandbox has, be that earlier or later. */
int agent_schedule_timeout(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct timeout_args args = { 0 };
    struct box_info box;

    req->note.operation = "schedule_timeout";
    if (request_json(req, timeout_fields, &args, e) < 0 ||
        agent_find(req, args.sandbox, &box, e) < 0)
        return -1;
    if (box.state == BOX_SAVED)
        return cove_fail(e, COVE_CONFLICT,
                         "the sandbox is paused to storage, where its time stands still: connect "
                         "to it first");
    if (core_sandbox_schedule(req->core, &box, (uint64_t)args.seconds * 1000,
                              pauses_at_end(req->core->config), e) < 0)
        return -1;
    return agent_reply_done(rep, "Timeout scheduled successfully");
}
