/* Which dialects there are, and the one path they all share. */
#include "fcgi/dialects/dialects.h"
#include "fcgi/metrics.h"

static int health(struct request *req, struct reply *rep, struct cove_err *e)
{
    (void)e;
    req->note.operation = "health";
    buf_add_str(&rep->body, "{\"status\":\"ok\"}");
    return 0;
}

static const struct route health_routes[] = {
    { GET, "/health", health, ROUTE_OPEN },
};

const struct dialect health_dialect = {
    .name = "health",
    .base = "",
    .routes = health_routes,
    .route_count = ARRAY_SIZE(health_routes),
    .on_error = reply_plain_error,
};

const struct dialect *const all_dialects[] = {
    &health_dialect, &metrics_dialect, &executor_dialect, &execute_dialect, NULL,
};
