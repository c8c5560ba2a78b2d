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

/* Does a dialect of ours answer on this host name, instead of the sandbox's own program? */
bool port_is_ours(const struct dialect *const *dialects, const struct request *req);

/* "public", "private" or "default", as requests name it. */
int port_access_word(const char *word, enum gate_access_word *ret, struct cove_err *e);

#endif
