/* Who asks: nginx's auth_request, answered from a table of hashed keys. */
#ifndef COVE_FCGI_AUTH_H
#define COVE_FCGI_AUTH_H

#include <stddef.h>

#include "cove/keys.h"
#include "fcgi/reply.h"
#include "process/live.h"

struct dialect;

extern const struct live_kind keys_kind; /* of <run_dir>/keys; the value is a struct keys */

/* The key of any of the headers the dialects know that is in the table. */
const struct key *auth_find(const struct dialect *const *dialects, const struct keys *k,
                            const struct request *req);

struct auth_who {
    const char *tenant, *key; /* key: its public name, or another mark for caller_begin() */
};

/* The host name is of a sandbox that is not this tenant's: for the tenant it must look like no sandbox at all,
 * which is what the gate answers. A dialect with own_access answers for itself. */
bool auth_is_foreign(const struct dialect *const *dialects, const struct request *req,
                     const char *tenant);

/* Who opens a WebSocket. nginx asks only once about it, so this is not a request of its own. */
int auth_socket(const struct dialect *const *dialects, struct live *keys, const char *cors_origins,
                struct request *req, struct auth_who *ret, struct cove_err *e);

/* The auth_request itself: 204 with X-Cove-Tenant and X-Cove-Key (its public name), or 401. */
void auth_serve(const struct dialect *const *dialects, struct live *keys, struct request *req,
                struct reply *rep);

#endif
