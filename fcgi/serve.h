/* One request from the first byte to the log line. */
#ifndef COVE_FCGI_SERVE_H
#define COVE_FCGI_SERVE_H

#include "fcgi/caller.h"
#include "fcgi/core.h"
#include "fcgi/router.h"

struct FCGX_Request;

/* Serves the request that FCGX_Accept_r() brought. promised: slots_ask() has reserved a long slot; it is the
 * request's from here on. */
void serve_request(struct core *core, struct router *router, struct callers *callers,
                   struct FCGX_Request *fcgi, bool promised);

#endif
