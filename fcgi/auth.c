/* The question that nginx asks about each request: who is the caller? */
#include "fcgi/auth.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "cove/which.h"
#include "fcgi/attach.h"
#include "fcgi/basic.h"
#include "fcgi/caller.h"
#include "fcgi/console_session.h"
#include "fcgi/core.h"
#include "fcgi/port_access.h"
#include "fcgi/router.h"

/* ------------------------------------------------------------------ the table of keys */

static int parse(const char *text, void *ret, struct cove_err *e)
{
    return keys_parse(text, ret, e);
}

static int load(const char *path, void **ret, struct cove_err *e)
{
    return live_load_text(path, KEYS_FILE_MAX, sizeof(struct keys), parse, ret, e);
}

static void unload(void *value)
{
    keys_done(value);
    free(value);
}

const struct live_kind keys_kind = {
    .what = "keys",
    .load = load,
    .free = unload,
    .generation = state_keys_generation,
};

/* ------------------------------------------------------------------ the question */

struct auth_ask {
    const struct dialect *const *dialects;
    struct live_ref *keys;
    struct request *req;
};

/* A walk over all headers in which clients of any dialect put a key. It begins with { dialects, NULL }. */
struct places {
    const struct dialect *const *dialect;
    const struct credential *credential;
};

static const struct credential *next_place(struct places *at)
{
    while (*at->dialect) {
        const struct credential *c = at->credential ? at->credential : (*at->dialect)->credentials;

        if (c && c->param) {
            at->credential = c + 1;
            return c;
        }
        at->dialect++;
        at->credential = NULL;
    }
    return NULL;
}

const struct key *auth_find(const struct dialect *const *dialects, const struct keys *k,
                            const struct request *req)
{
    struct places at = { dialects, NULL };
    const struct credential *c;

    while ((c = next_place(&at))) {
        const char *value = request_param(req, c->param);
        size_t skip = strlen(c->prefix);
        unsigned char hash[KEY_HASH_BYTES];
        const struct key *key;

        if (!*value || strncasecmp(value, c->prefix, skip) != 0)
            continue;
        keys_hash(value + skip, hash);
        key = keys_find(k, hash);
        if (key && !key_expired(key, clock_unix_ms() / 1000))
            return key;
    }
    return NULL;
}

static const char *id_of(struct request *req, const struct key *key)
{
    char *id = arena_alloc(&req->arena, KEY_ID_LEN + 1);

    keys_id(key, id);
    return id;
}

static bool has_own_access(const struct dialect *const *dialects, const struct request *req)
{
    for (; *dialects; dialects++)
        if ((*dialects)->own_access && (*dialects)->is_meant(req))
            return true;
    return false;
}

bool auth_is_foreign(const struct dialect *const *dialects, const struct request *req,
                     const char *tenant)
{
    struct which w;

    return req->host_box && req->core && !has_own_access(dialects, req) &&
           which_sandbox_id(req->core->state, tenant, req->host_box, &w) == WHICH_NONE;
}

static void send_to_port(struct reply *rep)
{
    rep->status = 403; /* nginx sends the request on to the port itself */
    reply_header(rep, "X-Cove-Traffic", "1");
}

static void admit(const struct dialect *const *dialects, struct request *req, struct reply *rep,
                  const char *tenant, const char *key)
{
    if (auth_is_foreign(dialects, req, tenant)) {
        send_to_port(rep); /* the gate gives the same answer as for a sandbox that does not exist */
        return;
    }
    rep->status = 204;
    req->tenant = arena_strdup(&req->arena, tenant);
    reply_header(rep, "X-Cove-Tenant", req->tenant);
    reply_header(rep, "X-Cove-Key", key);
}

/* nginx may keep this answer for a second (nginx/cove.conf says for which requests). Nothing is lost by that: the
 * worker that gets the request itself looks the key up again by its public name (caller.c), so a key that was
 * revoked or has expired meanwhile is refused there. */
static void admit_key(const struct dialect *const *dialects, struct request *req, struct reply *rep,
                      const struct key *key)
{
    admit(dialects, req, rep, key->tenant, id_of(req, key));
    if (rep->status == 204)
        reply_header(rep, "X-Accel-Expires", "1");
}

/* The sandbox that the address names, if the address is of a dialect whose clients send a sandbox's token as a
 * bearer; otherwise NULL. */
static const char *addressed_sandbox(const struct dialect *const *dialects,
                                     const struct request *req)
{
    const char *name = NULL;

    for (; *dialects && !name; dialects++)
        if ((*dialects)->addressed)
            name = (*dialects)->addressed(req);
    return name;
}

/* The sandbox that the host name has in it (PORT-ID.DOMAIN) or, where all sandboxes share one host name, that a
 * header of the dialect names. "": neither names one. */
static const char *named_sandbox(const struct dialect *const *dialects, const struct request *req)
{
    const char *name = "";

    if (req->host_box)
        return req->host_box;
    for (; *dialects && !*name; dialects++)
        if ((*dialects)->sandbox_param)
            name = request_param(req, (*dialects)->sandbox_param);
    return name;
}

/* A token opens the one sandbox of this id. A sandbox that belongs to nobody yet has no token. */
static bool token_opens(const struct request *req, const char *token, const char *name,
                        struct which *ret)
{
    const struct core *core = req->core;

    return *token && core && core->token_secret && text_is_id(name) &&
           token_fits(core->token_secret, name, token) &&
           which_sandbox_id(core->state, NULL, name, ret) != WHICH_NONE;
}

static bool find_token(const struct dialect *const *dialects, const struct request *req,
                       struct which *ret)
{
    const char *token = request_param(req, "HTTP_X_ACCESS_TOKEN");
    const char *bearer = request_param(req, "HTTP_AUTHORIZATION");
    const char *addressed = addressed_sandbox(dialects, req);

    if (!*token && addressed && strncasecmp(bearer, "Bearer ", 7) == 0)
        token = bearer + 7;
    return token_opens(req, token, addressed ? addressed : named_sandbox(dialects, req), ret);
}

/* Is the host name that of a sandbox which does not live? The router gives everybody the same answer to such a
 * request. */
static bool names_no_sandbox(const struct request *req)
{
    struct which w;

    return req->host_box && req->core &&
           which_sandbox_id(req->core->state, NULL, req->host_box, &w) == WHICH_NONE;
}

/* One text for each kind of missing credentials; it does not tell what was wrong with a key or a password. */
static const char *refusal(const struct dialect *const *dialects, const struct request *req,
                           bool passwords)
{
    const char *authorization = request_param(req, "HTTP_AUTHORIZATION");
    struct places at = { dialects, NULL };
    const struct credential *c;

    if (passwords && strncasecmp(authorization, "Basic ", 6) == 0)
        return "wrong name or password";
    while ((c = next_place(&at)))
        if (*request_param(req, c->param))
            return "this key is not valid here: it is unknown, revoked or expired";
    if (console_is_meant(req) && strstr(request_param(req, "HTTP_COOKIE"), "cove-console="))
        return "this session is over, or a page of another host sent this request: sign in again";
    if (*request_param(req, "HTTP_X_ACCESS_TOKEN"))
        return "this token does not open this sandbox";
    return "no key: send one as X-API-Key, as X-Relay-Secret, or as Authorization: Bearer";
}

/* nginx passes on 401 and 403 only. That the caller should wait is told in a header beside the 401, and
 * nginx makes 429 of it. */
static void refuse(const struct dialect *const *dialects, struct request *req, struct reply *rep,
                   unsigned wait_s)
{
    bool passwords = req->core && req->core->config->pam_service[0];
    /* The console's page asks for the password itself: browsers would ask once more for "Basic". */
    bool offer = passwords && !console_is_meant(req);
    const char *why = refusal(dialects, req, passwords);
    struct cove_err e;

    cove_fail(&e, COVE_UNAUTHORIZED, "%s", why);
    reply_header(rep, "X-Cove-Why", why);
    core_count(req->core, COUNT_AUTH_FAILURES, 1);
    req->note.cause = cove_code_name(e.code);
    reply_header(rep, "WWW-Authenticate", offer ? "Bearer, Basic realm=\"cove\"" : "Bearer");
    if (wait_s)
        reply_header(rep, "X-Cove-Wait", arena_printf(&req->arena, "%u", wait_s));
    reply_plain_error(req, rep, &e);
}

/* ------------------------------------------------------------------ who opens a WebSocket */

/* The sandbox that a WebSocket's address names: in the host name, the query or the last part of the path. */
static const char *socket_sandbox(const struct request *req)
{
    const char *name = req->host_box ? req->host_box : request_query(req, "sandbox");

    if (!name && req->segment_count)
        name = req->segments[req->segment_count - 1];
    return name && which_id(name) ? which_id(name) : "";
}

static const struct key *key_by_protocol(const struct keys *keys, struct request *req)
{
    const char *text = attach_protocol(req, "cove.key.");
    unsigned char hash[KEY_HASH_BYTES];
    const struct key *key;

    if (!text)
        return NULL;
    keys_hash(text, hash);
    key = keys_find(keys, hash);
    return key && !key_expired(key, clock_unix_ms() / 1000) ? key : NULL;
}

static bool by_key(struct auth_ask *ask, struct auth_who *ret)
{
    const struct keys *keys = ask->keys ? ask->keys->value : NULL;
    const struct key *key = keys ? auth_find(ask->dialects, keys, ask->req) : NULL;

    if (!key && keys)
        key = key_by_protocol(keys, ask->req);
    if (!key)
        return false;
    *ret =
        (struct auth_who){ arena_strdup(&ask->req->arena, key->tenant), id_of(ask->req, key), 0 };
    return true;
}

static bool by_token(struct auth_ask *ask, struct auth_who *ret)
{
    const char *header = request_param(ask->req, "HTTP_X_ACCESS_TOKEN");
    const char *protocol = attach_protocol(ask->req, "cove.token.");
    const char *id = socket_sandbox(ask->req);
    struct which w;

    if (!token_opens(ask->req, header, id, &w) &&
        !token_opens(ask->req, protocol ? protocol : "", id, &w))
        return false;
    *ret = (struct auth_who){ arena_strdup(&ask->req->arena, w.box.tenant),
                              arena_printf(&ask->req->arena, CALLER_BOX "%s", w.box.id), 0 };
    return true;
}

static bool by_password(struct auth_ask *ask, struct auth_who *ret)
{
    char tenant[COVE_TENANT_MAX];
    unsigned wait_s = 0;

    if (!basic_sign_in(ask->req, tenant, &wait_s))
        return false;
    *ret = (struct auth_who){ arena_strdup(&ask->req->arena, tenant), "", 0 };
    return true;
}

static bool by_session(struct auth_ask *ask, struct auth_who *ret)
{
    struct console_session session;

    if (!console_sign_in(ask->req, ask->keys ? ask->keys->value : NULL, &session))
        return false;
    *ret = (struct auth_who){ arena_strdup(&ask->req->arena, session.tenant),
                              arena_strdup(&ask->req->arena, session.key), session.until_s };
    return true;
}

/* Tried in this order. Credentials that a browser adds by itself are accepted from pages of this site only. */
static const struct {
    bool (*find)(struct auth_ask *ask, struct auth_who *ret);
    bool ambient;
} socket_ways[] = {
    { by_key, false },
    { by_token, false },
    { by_session, true },
    { by_password, true },
};

int auth_socket(const struct dialect *const *dialects, struct live *keys, const char *cors_origins,
                struct request *req, struct auth_who *ret, struct cove_err *e)
{
    struct auth_ask ask = { dialects, live_get(keys), req };
    int rc = -1;

    for (size_t i = 0; i < ARRAY_SIZE(socket_ways) && rc < 0; i++) {
        if (!socket_ways[i].find(&ask, ret))
            continue;
        if (socket_ways[i].ambient && !attach_origin_fits(req, cors_origins)) {
            cove_fail(e, COVE_FORBIDDEN, "Origin: a page of %.100s may not use this site's sign-in",
                      request_param(req, "HTTP_ORIGIN"));
            break;
        }
        rc = 0;
    }
    live_put(ask.keys);
    if (rc < 0 && !e->code) {
        core_count(req->core, COUNT_AUTH_FAILURES, 1);
        cove_fail(e, COVE_UNAUTHORIZED,
                  "no valid key: send one as X-API-Key, X-Relay-Secret or Authorization: Bearer, a "
                  "page's script as the "
                  "subprotocol cove.key.KEY or cove.token.TOKEN");
    }
    return rc;
}

/* ------------------------------------------------------------------ nginx's question */

void auth_serve(const struct dialect *const *dialects, struct live *keys, struct request *req,
                struct reply *rep)
{
    struct live_ref *ref = live_get(keys);
    const struct key *key = ref ? auth_find(dialects, ref->value, req) : NULL;
    struct console_session session;
    char tenant[COVE_TENANT_MAX];
    unsigned wait_s = 0;
    struct which w;

    req->note.operation = "auth";
    if (req->host_box && !port_is_ours(dialects, req))
        send_to_port(rep);
    else if (key)
        admit_key(dialects, req, rep, key);
    else if (find_token(dialects, req, &w))
        admit(dialects, req, rep, w.box.tenant,
              arena_printf(&req->arena, CALLER_BOX "%s", w.box.id));
    else if (console_sign_in(req, ref ? ref->value : NULL, &session))
        admit(dialects, req, rep, session.tenant, arena_strdup(&req->arena, session.key));
    else if (req->method == OPTIONS || names_no_sandbox(req))
        rep->status = 204; /* a preflight carries no key: it passes without a tenant */
    else if (has_own_access(dialects, req))
        /* a request to a sandbox passes without a tenant, too: the dialect decides */
        rep->status = 204;
    else if (basic_sign_in(req, tenant, &wait_s))
        admit(dialects, req, rep, tenant, "");
    else
        refuse(dialects, req, rep, wait_s);
    live_put(ref);
}
