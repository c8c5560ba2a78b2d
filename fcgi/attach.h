/*
 * The worker's half of a WebSocket on a process (COVE_ROLE=attach): the request is authenticated, routed and limited
 * like any other, and its handler starts or finds a process. The reply sends nginx on to the location that
 * COVE_VERDICT_GOES_TO names, with one line for the gate (helpers/gate/sockets.c).
 *
 * A dialect's handler for such a route:
 *
 *     if (attach_check(req, e) < 0)                         is it a WebSocket's handshake?
 *         return -1;
 *     ... open a session, find or start the process ...
 *     return attach_to(req, rep, &(struct attach_target){ .kind = "lines", .id = id, .proc = proc });
 *
 * or attach_close() to accept the WebSocket and close it at once with a code that says why. A handler that
 * fails becomes an HTTP reply with its status; a browser, whose scripts cannot see that, gets the close code
 * 4000 + status instead.
 */
#ifndef COVE_FCGI_ATTACH_H
#define COVE_FCGI_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/err.h"
#include "fcgi/reply.h"

struct attach_target {
    const char *kind; /* "terminal" or "lines" */
    const char *id;   /* the sandbox's */
    uint32_t proc;
    bool numbered, read_only, plain_text;
    bool has_from;
    uint64_t from; /* a byte of a terminal's output, or the number of a line */
    unsigned rows, cols;
};

int attach_check(const struct request *req, struct cove_err *e);
/* Both return 0, so that a call can be a handler's last statement. */
int attach_to(struct request *req, struct reply *rep, const struct attach_target *target);
int attach_close(struct request *req, struct reply *rep, unsigned code, const char *reason);

/* Makes the reply of a refused request: a line that tells the gate so. */
void attach_refused(struct request *req, struct reply *rep, const char *why);

/* Finds the element of Sec-WebSocket-Protocol that begins with `prefix` and returns what follows the prefix; NULL:
 * there is no such element. This is where scripts of a page can put a key (cove.key.KEY) or a sandbox's token
 * (cove.token.TOKEN). */
const char *attach_protocol(struct request *req, const char *prefix);

/* Does the page that opens the WebSocket belong to this site, or to one that CORS allows? A page of another
 * site must not use what the browser adds by itself: a remembered password, a cookie. */
bool attach_origin_fits(const struct request *req, const char *cors_origins);

#endif
