/*
 * Who may reach a port of a sandbox by its host name.
 *
 * nginx asks here before it passes a request on to the gate. The answer is one line for the gate:
 *
 *     owner ID PORT    the caller has shown a credential for this sandbox
 *     anyone ID PORT   no credential; ports of this sandbox are public unless the port says otherwise
 *     nobody ID PORT   no credential; ports of this sandbox are private unless the port says otherwise
 *     gone ID PORT     no such sandbox, or it sleeps and may not be woken; for all cases the same
 *
 * After the port stands the generation of the keys by which that was decided, and then how long the caller may stay
 * connected: key=NAME, until=SECONDS, or "-" without an end of its own. nginx keeps good news for a
 * second (X-Accel-Expires; nginx/cove.conf says for which requests). Nothing is lost by that: the gate looks
 * the sandbox and the generation up again, and has nginx ask anew when either has changed or the port does
 * not answer.
 *
 * nginx asks by a subrequest, or lets the request itself come here first and names the location that it goes on
 * to (COVE_VERDICT_GOES_TO).
 *
 * The gate knows what single ports say (GATE_ACCESS) and decides. Whether ports are public without a
 * word is decided by the dialect that made the sandbox (port_access_DIALECT in cove.conf).
 *
 * Credentials here are the sandbox's token (X-Access-Token, or a dialect's own header), a key of the
 * sandbox's tenant (X-Access-Token, or Authorization and X-API-Key, which otherwise are the app's own),
 * and the cookie that a signed link has set. None of them reaches the sandbox: nginx takes away the
 * first two headers and the cookie always, and the others when X-Cove-Strip says that they hold a key.
 */
#include "fcgi/port_access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cove/client.h"
#include "cove/config.h"
#include "cove/dialect.h"
#include "cove/keys.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/state.h"
#include "cove/text.h"
#include "cove/which.h"
#include "fcgi/core.h"
#include "fcgi/core_attributes.h"
#include "fcgi/core_sandboxes.h"
#include "fcgi/http.h"
#include "fcgi/port_links.h"
#include "fcgi/router.h"

enum { KEPT_S = 1 }; /* seconds for which nginx may keep a verdict */

int port_access_word(const char *word, enum gate_access_word *ret, struct cove_err *e)
{
    static const char *const words[] = { [GATE_ACCESS_DEFAULT] = "default",
                                         [GATE_ACCESS_PUBLIC] = "public",
                                         [GATE_ACCESS_PRIVATE] = "private" };

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(words[i], word) == 0) {
            *ret = (enum gate_access_word)i;
            return 0;
        }
    }
    return cove_fail(e, COVE_INVALID, "access: must be public, private or default");
}

/* ------------------------------------------------------------------ the name */

/* Where all sandboxes share one address, headers of a dialect say which port is meant. */
static bool read_headers(const struct dialect *d, const struct request *req, struct port_place *ret)
{
    const char *id = d->port_param ? request_param(req, d->sandbox_param) : "";
    uint64_t port;

    if (req->host_box || !text_is_id(id) ||
        text_parse_u64(request_param(req, d->port_param), &port, NULL) < 0 || port < 1 ||
        port > 65535)
        return false;
    ret->port = (unsigned)port;
    return text_copy(ret->id, sizeof(ret->id), id);
}

static bool find_place(const struct dialect *const *dialects, const struct request *req,
                       struct port_place *ret)
{
    if (port_place_read(req, ret))
        return true;
    for (; *dialects; dialects++)
        if (read_headers(*dialects, req, ret))
            return true;
    return false;
}

static bool has_host_port(const struct dialect *d, const struct request *req, unsigned port)
{
    return d->host_port == HOST_PORT_MEANT ? d->is_meant(req) : d->host_port == port;
}

bool port_is_ours(const struct dialect *const *dialects, const struct request *req)
{
    struct which found;
    struct port_place place;

    if (!req->core || !port_place_read(req, &place) ||
        which_sandbox_id(req->core->state, NULL, place.id, &found) != WHICH_HERE)
        return false;
    for (; *dialects; dialects++)
        if (has_host_port(*dialects, req, place.port) &&
            ((*dialects)->host_maker == DIALECT_NONE ||
             (*dialects)->host_maker == found.box.dialect))
            return true;
    return false;
}

/* ------------------------------------------------------------------ credentials */

struct credentials {
    bool owner;
    bool stranger; /* the request has a key of this server that does not open this sandbox */
    bool passing;  /* the credential ends soon, or at a time that is not known here */
    char strip[4]; /* a: Authorization holds a key of ours, k: X-API-Key does */
    char stays[KEY_ID_LEN + 16]; /* how long the caller may stay connected, in the gate's words */
};

static const struct key *find_key(const struct keys *keys, const char *value)
{
    unsigned char hash[KEY_HASH_BYTES];
    const struct key *key;

    if (!keys || !*value)
        return NULL;
    keys_hash(value, hash);
    key = keys_find(keys, hash);
    return key && !key_expired(key, clock_unix_ms() / 1000) ? key : NULL;
}

static bool key_opens(const struct key *key, const struct box_info *box)
{
    return key && strcmp(key->tenant, box->tenant) == 0 && key_may_project(key, box->project);
}

static void weigh_key(const struct key *key, const struct box_info *box, struct credentials *ret)
{
    if (key_opens(key, box)) {
        char id[KEY_ID_LEN + 1];

        keys_id(key, id);
        snprintf(ret->stays, sizeof(ret->stays), "key=%s", id);
        ret->owner = true;
    }
    ret->stranger |= key && !key_opens(key, box);
    ret->passing |= key && key_expired(key, clock_unix_ms() / 1000 + KEPT_S + 1);
}

/* Finds keys of this server in the request. A key that does not open this sandbox is taken out of the request, too:
 * it is its tenant's secret, and the app in the sandbox would see it. */
static void look_at_keys(const struct request *req, const struct keys *keys,
                         const struct box_info *box, struct credentials *ret)
{
    const char *bearer = request_param(req, "HTTP_AUTHORIZATION");
    const struct key *key;

    if (strncasecmp(bearer, "Bearer ", 7) == 0 && (key = find_key(keys, bearer + 7))) {
        strcat(ret->strip, "a");
        weigh_key(key, box, ret);
    }
    if ((key = find_key(keys, request_param(req, "HTTP_X_API_KEY")))) {
        strcat(ret->strip, "k");
        weigh_key(key, box, ret);
    }
    weigh_key(find_key(keys, request_param(req, "HTTP_X_ACCESS_TOKEN")), box, ret);
}

static bool has_traffic_token(const struct dialect *const *dialects, const struct request *req,
                              const char *id)
{
    const unsigned char *secret = req->core->token_secret;

    for (; *dialects; dialects++) {
        const char *param = (*dialects)->traffic_param;
        const char *token = param ? request_param(req, param) : "";

        if (token_fits(secret, id, token) || traffic_token_fits(secret, id, token))
            return true;
    }
    return false;
}

/* A token lasts as long as the sandbox. Beside a key the cookie of a link does not count. */
static void look_at_tokens(const struct dialect *const *dialects, const struct request *req,
                           const struct port_place *place, struct credentials *ret)
{
    const unsigned char *secret = req->core->token_secret;
    char cookie[PORT_TOKEN_MAX];

    if (!secret)
        return;
    if (token_fits(secret, place->id, request_param(req, "HTTP_X_ACCESS_TOKEN")) ||
        has_traffic_token(dialects, req, place->id)) {
        ret->owner = true;
        strcpy(ret->stays, "-");
    } else if (!ret->owner && request_cookie(req, PORT_COOKIE, cookie, sizeof(cookie)) &&
               port_token_fits(secret, place->id, place->port, cookie, clock_unix_ms() / 1000)) {
        ret->owner = true;
        snprintf(ret->stays, sizeof(ret->stays), "until=%llu", strtoull(cookie, NULL, 10));
    }
}

/* ------------------------------------------------------------------ the verdict */

/* Are the sandbox's ports public? The default of its dialect decides, unless the sandbox was made with private ports. */
static bool is_public(struct request *req, const struct box_info *box)
{
    uint32_t dialect = box->dialect < DIALECT_COUNT ? box->dialect : DIALECT_NONE;
    struct core_attributes attributes;

    if (strcmp(req->core->config->port_access[dialect], "public") != 0)
        return false;
    core_attributes_read(req->core, &req->arena, box->id, &attributes);
    return !attributes.private_ports;
}

/* Wakes a paused sandbox for a caller who may use it. To others it looks as if it did not exist. */
static bool wake(struct request *req, struct which *found)
{
    struct core_attributes attributes;

    if (strcmp(req->core->config->port_wake, "no") == 0)
        return false;
    if (!dialect_has(found->box.dialect, DIALECT_CLIENT_DECIDES))
        return core_set_going(req->core, found, 0, NULL) == 0;
    core_attributes_read(req->core, &req->arena, found->box.id, &attributes);
    return attributes.auto_resume && core_sandbox_wake(req->core, found, NULL) == 0;
}

/* Whoever may reach the port uses it: a service that starts on first use does so now. That it could not
 * is in the log; the gate then finds nobody listening. */
static void start_service(struct request *req, const struct port_place *place, struct which *found)
{
    struct core_session session;
    struct cove_err e = { 0 };

    if (!core_has_service(req->core, found->box.template, place->port))
        return;
    req->core->dialect = found->box.dialect;
    if (core_session_open_found(req->core, req->tenant, found, &session, &e) < 0)
        return;
    if (core_service_start(&session, place->port, &e) < 0)
        log_error("service not started", &e, LOG_S("sandbox", place->id),
                  LOG_N("port", place->port));
    core_session_close(&session);
}

static const char *judge(const struct dialect *const *dialects, struct request *req,
                         const struct port_place *place, const struct keys *keys,
                         struct credentials *credentials, struct which *found, const char **reason)
{
    static const struct box_info nobody;
    bool there = which_sandbox_id(req->core->state, NULL, place->id, found) == WHICH_HERE;

    look_at_keys(req, keys, there ? &found->box : &nobody, credentials);
    if (!there)
        return "gone";
    look_at_tokens(dialects, req, place, credentials);
    req->tenant = arena_strdup(&req->arena, found->box.tenant);
    req->note.sandbox = arena_strdup(&req->arena, found->box.id);
    if (found->box.state == BOX_FROZEN) {
        bool allowed = credentials->owner || is_public(req, &found->box);

        if (!allowed || !wake(req, found)) {
            *reason = credentials->owner ? "the sandbox is paused" : "";
            return "gone";
        }
    }
    if (credentials->owner)
        return "owner";
    if (is_public(req, &found->box))
        return "anyone";
    /* to a stranger the sandbox looks as if it did not exist */
    return credentials->stranger ? "gone" : "nobody";
}

void port_access_serve(const struct dialect *const *dialects, struct live *keys,
                       struct request *req, struct reply *rep)
{
    /* Read before the keys are: the keys are then of this generation or of a later one. */
    unsigned generation = atomic_load(&keys->generation_seen);
    struct live_ref *ref = live_get(keys);
    struct credentials credentials = { .stays = "-" };
    const char *next = request_param(req, "COVE_VERDICT_GOES_TO"), *verdict, *reason = "";
    struct which found;
    struct port_place place;
    bool good;

    req->note.operation = "port";
    rep->status = 204;
    if (*next)
        reply_header(rep, "X-Accel-Redirect", next);
    if (find_place(dialects, req, &place)) {
        verdict =
            judge(dialects, req, &place, ref ? ref->value : NULL, &credentials, &found, &reason);
        good = strcmp(verdict, "owner") == 0 || strcmp(verdict, "anyone") == 0;
        if (good)
            start_service(req, &place, &found);
        if (good && !credentials.passing)
            reply_header(rep, "X-Accel-Expires", "1");
        reply_header(rep, "X-Cove-Target",
                     arena_printf(&req->arena, "%s %s %u %u %s", verdict, place.id, place.port,
                                  generation, credentials.stays));
        reply_header(rep, "X-Cove-Strip", arena_strdup(&req->arena, credentials.strip));
        reply_header(rep, "X-Cove-Reason", reason);
    }
    live_put(ref);
}
