/* Who asks: nginx's auth_request, answered from a table of hashed keys. */
#ifndef COVE_FCGI_AUTH_H
#define COVE_FCGI_AUTH_H

#include <stddef.h>

#include "cove/msg.h"
#include "fcgi/live.h"
#include "fcgi/reply.h"

enum { KEY_HASH_BYTES = 32, KEY_NAME_MAX = 64, KEYS_FILE_MAX = 16 * 1024 * 1024 };

struct key {
    unsigned char
        hash[KEY_HASH_BYTES]; /* SHA-256 of the key: the key itself is nowhere on this machine */
    char tenant[COVE_TENANT_MAX];
    char name[KEY_NAME_MAX];
};

struct keys {
    struct key *items;
    size_t count;
};

extern const struct live_kind keys_kind; /* of <run_dir>/keys; the value is a struct keys */

/* Lines of "<sha256 hex> <tenant> <name>", '#' begins a comment. "line 3: ..." when one is none. */
int keys_parse(const char *text, struct keys *ret, struct cove_err *e);
void keys_done(struct keys *k);

/* The key whose hash this is, or NULL. Takes the same time wherever it stands, and if it stands
 * nowhere. */
const struct key *keys_find(const struct keys *k, const unsigned char hash[KEY_HASH_BYTES]);
void keys_hash(const char *key, unsigned char ret[KEY_HASH_BYTES]);

/* The key of any of the headers the dialects know that is in the table. */
const struct key *auth_find(const struct keys *k, const struct request *req);

/* The auth_request itself: 204 with X-Cove-Tenant, or 401. */
void auth_serve(struct live *keys, struct request *req, struct reply *rep);

#endif
