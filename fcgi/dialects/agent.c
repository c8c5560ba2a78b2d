/*
 * The agent dialect: sandboxes for programs that act by themselves, as in its document
 * (docs/api/agent.yaml). What the document does not have is marked as an extension.
 */
#include "fcgi/dialects/agent.h"

#include "cove/which.h"
#include "fcgi/caller.h"
#include "fcgi/dialects/dialects.h"

static const struct route agent_routes[] = {
    /* lifecycle management */
    { POST, "/create", agent_create, 0 },
    { POST, "/connect", agent_connect, 0 },
    { GET, "/{sandbox_id}/status", agent_status, 0 },
    { GET, "/{sandbox_id}/info", agent_info, 0 },
    { GET, "/{sandbox_id}/urls", agent_urls, 0 },
    { POST, "/{sandbox_id}/pause", agent_pause, 0 },
    { DELETE, "/{sandbox_id}", agent_delete, 0 },
    { GET, "", agent_list, 0 }, /* extension */
    /* command execution */
    { POST, "/run-cmd", agent_run_cmd, ROUTE_LONG },
    /* extensions: what runs in the background */
    { GET, "/{sandbox_id}/processes", agent_processes, ROUTE_BOX },
    { GET, "/{sandbox_id}/processes/{process_id}/logs", agent_process_logs, ROUTE_BOX },
    { DELETE, "/{sandbox_id}/processes/{process_id}", agent_kill_process, ROUTE_BOX },
    /* file operations */
    { POST, "/write-file", agent_write_file, ROUTE_BOX },
    { POST, "/read-file", agent_read_file, ROUTE_BOX },
    { POST, "/upload-file", agent_upload_file, ROUTE_LONG | ROUTE_RAW },
    { POST, "/upload-file-from-url", agent_upload_from_url, ROUTE_LONG },
    { POST, "/download-to-presigned-url", agent_download_to_url, ROUTE_LONG },
    { POST, "/create-directory", agent_create_directory, ROUTE_BOX },
    /* port exposure */
    { POST, "/expose-port", agent_expose_port, ROUTE_BOX },
    { POST, "/unexpose-port", agent_unexpose_port, ROUTE_BOX }, /* extension */
    /* timeout management */
    { POST, "/schedule-timeout", agent_schedule_timeout, 0 },
};

/* ------------------------------------------------------------------ good news */

/* Every reply has a code; errors have a name and a message, a policy's refusal also its rule. */
static const struct json_field head_fields[] = {
    JSON_INT(struct agent_head, code, "code", JSON_REQUIRED, 0, 599),
    JSON_STR(struct agent_head, error, "error", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct agent_head, message, "message", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct agent_head, rule, "rule", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct agent_head, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

void agent_reply_with(struct reply *rep, int status, struct agent_head head,
                      const struct json_field *fields, const void *data)
{
    rep->status = status;
    head.code = status;
    json_open(&rep->json, NULL, '{');
    json_put_members(&rep->json, head_fields, &head);
    if (fields)
        json_put_object(&rep->json, "data", fields, data);
    json_close(&rep->json, '}');
}

int agent_reply(struct reply *rep, const struct json_field *fields, const void *from)
{
    agent_reply_with(rep, rep->status, (struct agent_head){ 0 }, fields, from);
    return 0;
}

struct done {
    bool success;
    const char *message;
};

static const struct json_field done_fields[] = {
    JSON_BOOL(struct done, success, "success", JSON_REQUIRED),
    JSON_STR(struct done, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

int agent_reply_done(struct reply *rep, const char *message)
{
    return agent_reply(rep, done_fields, &(struct done){ true, message });
}

/* ------------------------------------------------------------------ bad news */

/* The document's five names, and ours for what it does not have. */
static const struct {
    int status;
    const char *name;
} error_names[] = {
    { 400, "SandboxValidationError" },     { 401, "SandboxAuthenticationError" },
    { 403, "SandboxPermissionError" },     { 404, "SandboxNotFoundException" },
    { 405, "MethodNotAllowedError" },      { 408, "SandboxTimeoutException" },
    { 409, "SandboxConflictError" },       { 413, "SandboxPayloadTooLargeError" },
    { 422, "SandboxNotInitializedError" }, { 429, "SandboxLimitError" },
    { 502, "SandboxFetchError" },          { 503, "SandboxUnavailableError" },
};

static const char *error_name(int status)
{
    for (size_t i = 0; i < ARRAY_SIZE(error_names); i++)
        if (error_names[i].status == status)
            return error_names[i].name;
    return "General Error";
}

void agent_reply_error(struct reply *rep, int status, const char *name, const char *message)
{
    agent_reply_with(rep, status, (struct agent_head){ .error = name, .message = message }, NULL,
                     NULL);
}

static const struct error_reply error_replies[] = {
    { COVE_GONE, 404 },        /* it ended meanwhile */
    { COVE_UNSUPPORTED, 500 }, /* the document knows no such status */
};

static void on_error(struct request *req, struct reply *rep, const struct cove_err *e)
{
    int status = reply_error_status(error_replies, ARRAY_SIZE(error_replies), e->code);

    (void)req;
    agent_reply_error(rep, status, error_name(status), e->msg);
}

int agent_fail_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    if (e->code != COVE_NOT_FOUND)
        return -1;
    req->note.cause = cove_code_name(e->code);
    agent_reply_error(rep, 404, "FileNotFoundError", e->msg);
    return 0;
}

/* ------------------------------------------------------------------ which sandbox */

const char *agent_name(struct request *req, const char *id)
{
    return arena_printf(&req->arena, AGENT_NAME_PREFIX "%s", id);
}

static int find(struct request *req, const char *name, struct which *ret, struct cove_err *e)
{
    if (which_sandbox(req->core->state, req->tenant, name, ret) == WHICH_NONE ||
        caller_may_box(req->core, &ret->box, e) < 0)
        return core_sandbox_find_ended(req->core, req->tenant, name, &ret->box, e) < 0
                   ? -1
                   : cove_fail(e, COVE_NOT_FOUND, "sandbox '%.80s' has stopped", name);
    req->note.sandbox = arena_strdup(&req->arena, ret->box.id);
    return 0;
}

int agent_find(struct request *req, const char *name, struct box_info *ret, struct cove_err *e)
{
    struct which w;

    if (find(req, name, &w, e) < 0)
        return -1;
    *ret = w.box;
    return 0;
}

int agent_open(struct request *req, const char *name, struct core_session *ret, struct cove_err *e)
{
    struct which w;

    if (find(req, name, &w, e) < 0)
        return -1;
    return core_session_open_found(req->core, req->tenant, &w, ret, e);
}

const struct dialect agent_dialect = {
    .name = "agent",
    .base = "/api/v1/agent/sandboxes",
    .routes = agent_routes,
    .route_count = ARRAY_SIZE(agent_routes),
    .on_error = on_error,
};
