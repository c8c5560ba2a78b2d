/* Which dialects there are, and the one path they all share. */
#include "fcgi/dialects/dialects.h"
#include "fcgi/metrics.h"

int dialect_health(struct request *req, struct reply *rep, struct cove_err *e)
{
    (void)e;
    req->note.operation = "health";
    json_open(&rep->json, NULL, '{');
    json_put_str(&rep->json, "status", "ok");
    json_close(&rep->json, '}');
    return 0;
}

static const struct route health_routes[] = {
    { GET, "/health", dialect_health, ROUTE_OPEN },
};

/* What clients of any dialect may use. */
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
