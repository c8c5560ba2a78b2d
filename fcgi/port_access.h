/* Who may reach a port of a sandbox by its host name, PORT-ID.DOMAIN or sandbox-ID-PORT.DOMAIN. */
#ifndef COVE_FCGI_PORT_ACCESS_H
#define COVE_FCGI_PORT_ACCESS_H

#include <stdbool.h>

#include "cove/msg.h"
#include "cove/msg_gate.h"
#include "fcgi/reply.h"
#include "process/live.h"

/* nginx's question before it passes a request on to the gate (COVE_ROLE=port): always 204, with the
 * verdict in X-Cove-Target. */
struct dialect;
void port_access_serve(const struct dialect *const *dialects, struct live *keys,
                       struct request *req, struct reply *rep);

/* GET /.cove/open?token=...&to=/path on a port's host name (COVE_ROLE=open): a signed link. Sets the
 * cookie that opens this port, and sends the browser on to `to`. */
void port_access_open(struct request *req, struct reply *rep);

/* Does a dialect of ours answer on this host name, instead of the sandbox's own program? */
bool port_is_ours(const struct dialect *const *dialects, const struct request *req);

/* https://PORT-ID.DOMAIN, where DOMAIN is the name by which the client came here, without the label of a
 * sandbox's port if it has one. Who came by an address gets the site's own name. */
const char *port_origin(struct request *req, const char *id, unsigned port);
/* A signed link to that port, for so many seconds; NULL: this server has no secret to sign with. */
const char *port_link(struct request *req, const char *id, unsigned port, uint64_t seconds,
                      struct cove_err *e);
/* "public", "private" or "default", as requests name it. */
int port_access_word(const char *word, enum gate_access_word *ret, struct cove_err *e);

#endif
