/* The list of dialects, and the one path that all of them share. */
#include "fcgi/dialects/dialects.h"
#include "fcgi/metrics.h"

struct health {
    const char *status;
};

static const struct json_field health_fields[] = {
    JSON_STR(struct health, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

int dialect_health(struct request *req, struct reply *rep, struct cove_err *e)
{
    (void)e;
    req->note.operation = "health";
    reply_json(rep, health_fields, &(struct health){ "ok" });
    return 0;
}

static const struct route health_routes[] = {
    { GET, "/health", dialect_health, ROUTE_OPEN },
};

/* Headers in which clients of any dialect may put a key. */
static const struct credential common_credentials[] = {
    { "HTTP_AUTHORIZATION", "Bearer " },
    { NULL, NULL },
};

const struct dialect health_dialect = {
    .name = "health",
    .credentials = common_credentials,
    .base = "",
    .routes = health_routes,
    .route_count = ARRAY_SIZE(health_routes),
    .on_error = reply_plain_error,
};

/* clang-format off */
const struct dialect *const all_dialects[] = {
    &envd_dialect,
    &mcp_port_dialect,
    &relay_bridge_dialect,
    &health_dialect,
    &metrics_dialect,
    &console_dialect,
    &mcp_dialect,
    &executor_dialect,
    &e2b_dialect,
    &agent_dialect,
    &relay_dialect,
    &execute_dialect,
    NULL,
};
/* clang-format on */
