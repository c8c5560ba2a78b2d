/* The dialects, in the order in which they are asked whether a path is theirs. */
#ifndef COVE_FCGI_DIALECTS_H
#define COVE_FCGI_DIALECTS_H

#include "fcgi/router.h"

/* {"status":"ok"}: for dialects that have /health on their sandboxes' own host names too. */
int dialect_health(struct request *req, struct reply *rep, struct cove_err *e);

extern const struct dialect health_dialect;
/* before all dialects that have a path in common with it */
extern const struct dialect envd_dialect;
/* before /health, which on the bridge's port is the bridge's own */
extern const struct dialect relay_bridge_dialect;
extern const struct dialect relay_dialect;
extern const struct dialect console_dialect;
extern const struct dialect executor_dialect;
extern const struct dialect mcp_dialect, mcp_port_dialect;
extern const struct dialect e2b_dialect;
extern const struct dialect agent_dialect;
extern const struct dialect execute_dialect; /* last: it takes any path that ends in /execute */

extern const struct dialect *const all_dialects[]; /* NULL-terminated */

#endif
