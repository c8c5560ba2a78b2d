/* The answer to nginx's auth_request: who sends this request? Keys are looked up in a table of hashes. */
#ifndef COVE_FCGI_AUTH_H
#define COVE_FCGI_AUTH_H

#include <stddef.h>

#include "cove/keys.h"
#include "fcgi/reply.h"
#include "process/live.h"

struct dialect;

extern const struct live_kind keys_kind; /* of <run_dir>/keys; the value is a struct keys */

/* Looks up the keys that the request carries, in any header in which a dialect's clients put keys, and returns the
 * first one that is in the table; NULL: none is. */
const struct key *auth_find(const struct dialect *const *dialects, const struct keys *k,
                            const struct request *req);

struct auth_who {
    const char *tenant, *key; /* key: its public name, or another mark for caller_begin() */
    uint64_t until_s;         /* when the console's session ends; 0: there is none */
};

/* Is the host name that of a sandbox of another tenant? To this tenant it must look as if no such sandbox existed, so
 * the gate answers as it does then. */
bool auth_is_foreign(const struct dialect *const *dialects, const struct request *req,
                     const char *tenant);

/* Finds out who opens a WebSocket. nginx asks only once before it passes the connection on, so there is no
 * auth_request for it. */
int auth_socket(const struct dialect *const *dialects, struct live *keys, const char *cors_origins,
                struct request *req, struct auth_who *ret, struct cove_err *e);

/* Answers the auth_request: 204 with X-Cove-Tenant and X-Cove-Key (its public name), or 401. */
void auth_serve(const struct dialect *const *dialects, struct live *keys, struct request *req,
                struct reply *rep);

#endif
