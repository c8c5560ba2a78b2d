/*
 * The e2b dialect: what its SDKs and its CLI call, as docs/api/e2b.md lists it. This file has the
 * routes of both faces and the shape of bad news; see e2b.h for where the rest is.
 */
#include "fcgi/dialects/e2b.h"

#include <string.h>

#include "fcgi/dialects/dialects.h"
#include "fcgi/dialects/e2b_sandboxes.h"

static e2b_handler not_built;

static const struct route control_routes[] = {
    { POST, "/v2/sandboxes", e2b_create_v2, 0 },
    { POST, "/sandboxes", e2b_create_v1, 0 },
    { GET, "/v2/sandboxes", e2b_list_v2, 0 },
    { GET, "/sandboxes", e2b_list_v1, 0 },
    { GET, "/sandboxes/metrics", e2b_metrics_of_many, 0 },
    { GET, "/sandboxes/{id}", e2b_get, 0 },
    { DELETE, "/sandboxes/{id}", e2b_kill, 0 },
    { POST, "/v2/sandboxes/{id}/connect", e2b_connect_v2, ROUTE_LONG },
    { POST, "/sandboxes/{id}/connect", e2b_connect_v1, ROUTE_LONG },
    { POST, "/sandboxes/{id}/timeout", e2b_timeout, 0 },
    { POST, "/sandboxes/{id}/refreshes", e2b_refresh, 0 },
    { POST, "/sandboxes/{id}/pause", e2b_pause, ROUTE_LONG },
    { POST, "/sandboxes/{id}/resume", e2b_resume, ROUTE_LONG },
    { PUT, "/sandboxes/{id}/network", e2b_network_put, 0 },
    { GET, "/sandboxes/{id}/metrics", e2b_metrics, 0 },
    { GET, "/sandboxes/{id}/logs", e2b_logs_v1, ROUTE_LONG },
    { GET, "/v2/sandboxes/{id}/logs", e2b_logs_v2, ROUTE_LONG },
    { POST, "/sandboxes/{id}/fork", e2b_fork, ROUTE_LONG },
    { POST, "/sandboxes/{id}/snapshots", e2b_snapshot_make, ROUTE_LONG },
    { GET, "/snapshots", e2b_snapshot_list, 0 },
    { GET, "/templates", e2b_template_list, 0 },
    { GET, "/v2/templates", e2b_template_list, 0 },
    { GET, "/templates/aliases/{alias}", e2b_template_alias, 0 },
    { POST, "/v3/templates", e2b_build_new, 0 },
    { GET, "/templates/{template}/files/{hash}", e2b_build_file_link, 0 },
    { PUT, "/template-files/{ticket}", e2b_build_file_put, ROUTE_OPEN | ROUTE_LONG | ROUTE_RAW },
    { POST, "/v2/templates/{template}/builds/{build}", e2b_build_start, 0 },
    { GET, "/templates/{template}/builds/{build}/status", e2b_build_status, 0 },
    { GET, "/templates/{template}/builds/{build}/logs", e2b_build_logs, 0 },
    { POST, "/templates/tags", e2b_tag_give, 0 },
    { DELETE, "/templates/tags", e2b_tag_take, 0 },
    { GET, "/templates/{template}/tags", e2b_tag_list, 0 },
    { GET, "/templates/{template}", e2b_template_get, 0 },
    { DELETE, "/templates/{template}", e2b_template_delete, 0 },
    { PATCH, "/v2/templates/{template}", e2b_template_patch, 0 },
    { PATCH, "/templates/{template}", e2b_template_patch, 0 },
    { GET, "/teams", e2b_teams, 0 },
    { GET, "/api-keys", e2b_api_keys, 0 },
    /* what is not built says so */
    { POST, "/templates", not_built, 0 },
    { POST, "/v2/templates", not_built, 0 },
    { POST, "/templates/{template}", not_built, 0 },
    { POST, "/templates/{template}/builds/{build}", not_built, 0 },
    { POST, "/api-keys", not_built, 0 },
    { PATCH | DELETE, "/api-keys/{key}", not_built, 0 },
    { POST, "/access-tokens", not_built, 0 },
    { DELETE, "/access-tokens/{token}", not_built, 0 },
    { GET, "/teams/{team}/metrics", not_built, 0 },
    { GET, "/teams/{team}/metrics/max", not_built, 0 },
    { GET, "/events/sandboxes", not_built, 0 },
    { GET, "/events/sandboxes/{id}", not_built, 0 },
    { GET | POST, "/events/webhooks", not_built, 0 },
    { GET | PATCH | DELETE, "/events/webhooks/{webhook}", not_built, 0 },
    { GET | POST | DELETE, "/volumes/**", not_built, 0 },
    { GET | POST | PUT | PATCH | DELETE, "/volumecontent/**", not_built, 0 },
    { GET | POST | DELETE, "/secrets/**", not_built, 0 },
};

static const struct route envd_routes[] = {
    { GET, "/health", envd_health, ROUTE_OPEN },
    { GET, "/metrics", envd_metrics, ROUTE_OPEN | ROUTE_LONG },
    { GET, "/envs", envd_envs, ROUTE_OPEN },
    { GET, "/files", envd_files_get, ROUTE_OPEN | ROUTE_LONG },
    { POST, "/files", envd_files_post, ROUTE_OPEN | ROUTE_LONG | ROUTE_RAW },
    { POST, "/files/compose", envd_compose, ROUTE_OPEN | ROUTE_LONG },
    { POST, "/process.Process/StreamInput", envd_input, ROUTE_OPEN | ROUTE_LONG | ROUTE_RAW },
    { POST, "/process.Process/{method}", envd_process, ROUTE_OPEN | ROUTE_LONG },
    { POST, "/filesystem.Filesystem/{method}", envd_filesystem, ROUTE_OPEN | ROUTE_LONG },
};

static int not_built(struct request *req, struct reply *rep, struct cove_err *e)
{
    (void)rep;
    return cove_fail(e, COVE_UNSUPPORTED, "%.60s is not available on this server", req->path);
}

/* ------------------------------------------------------------------ bad news */

static const struct error_reply error_replies[] = {
    { COVE_GONE, 404 },
    { COVE_LIMIT, 429 },
};

/* Trying again helps when the server was busy, and harms nobody when nothing was begun. */
static bool may_retry(int status)
{
    return status == 429 || status == 503;
}

void e2b_tell_retry(struct reply *rep, bool helps)
{
    reply_header(rep, "Should-Retry", helps ? "true" : "false");
}

const struct json_field e2b_error_fields[] = {
    JSON_STR(struct e2b_bad_news, sandbox, "sandboxId", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct e2b_bad_news, code, "code", JSON_REQUIRED, 0, 599),
    JSON_STR(struct e2b_bad_news, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

int e2b_error_code(const struct cove_err *e)
{
    return reply_error_status(error_replies, ARRAY_SIZE(error_replies), e->code);
}

static void e2b_error(struct request *req, struct reply *rep, const struct cove_err *e)
{
    (void)req;
    rep->status = e2b_error_code(e);
    e2b_tell_retry(rep, may_retry(rep->status));
    reply_json(rep, e2b_error_fields,
               &(struct e2b_bad_news){ .code = rep->status, .message = e->msg });
}

/* To clients of a remote call a plain 429 or 503 means that the sandbox is no more: a call that is one too many is told in the way of calls. */
static bool refuse_call(struct request *req, struct reply *rep, const struct cove_err *e)
{
    return rpc_is_one_too_many(e) && req->segment_count == 2 &&
           (strcmp(req->segments[0], "process.Process") == 0 ||
            strcmp(req->segments[0], "filesystem.Filesystem") == 0) &&
           rpc_refuse(req, rep, e);
}

/* Whoever speaks to a sandbox that is not there gets what the reference's proxy says: 502. */
static void envd_error(struct request *req, struct reply *rep, const struct cove_err *e)
{
    static const struct error_reply rows[] = {
        { COVE_GONE, 502 },
        { COVE_LIMIT, 507 },
    };
    struct e2b_bad_news news = { .message = e->msg };

    if (refuse_call(req, rep, e))
        return;
    rep->status = reply_error_status(rows, ARRAY_SIZE(rows), e->code);
    if (rep->status == 502)
        news.sandbox = req->note.sandbox ? req->note.sandbox : "";
    news.code = rep->status;
    e2b_tell_retry(rep, may_retry(rep->status));
    reply_json(rep, e2b_error_fields, &news);
}

static bool is_control(const struct request *req)
{
    return !envd_is_meant(req);
}

const struct dialect e2b_dialect = {
    .name = "e2b",
    .base = "",
    .routes = control_routes,
    .route_count = ARRAY_SIZE(control_routes),
    .on_error = e2b_error,
    .is_meant = is_control,
};

const struct dialect envd_dialect = {
    .name = "e2b",
    .base = "",
    .routes = envd_routes,
    .route_count = ARRAY_SIZE(envd_routes),
    .headers =
        ", Connect-Protocol-Version, Connect-Timeout-Ms, Connect-Content-Encoding, "
        "E2b-Sandbox-Id, E2b-Sandbox-Port, X-Access-Token, Keepalive-Ping-Interval, Range, "
        "E2b-Traffic-Access-Token, User-Agent, browser, lang, lang_version, package_version, "
        "publisher, sdk_runtime, system, "
        "Idempotency-Key",
    .on_error = envd_error,
    .is_meant = envd_is_meant,
    .sandbox_param = "HTTP_E2B_SANDBOX_ID",
    .port_param = "HTTP_E2B_SANDBOX_PORT",
    .traffic_param = "HTTP_E2B_TRAFFIC_ACCESS_TOKEN",
    .own_access = true, /* a sandbox that is not secured takes commands without a token */
    .host_port = ENVD_PORT,
};
