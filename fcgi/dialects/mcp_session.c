/*
 * Sessions of the revisions before 2026-07-28. A session has no state of its own, so its id says all there
 * is to know, signed for its tenant: revision, end, a random part. Any worker can check it. What one
 * request says about another (cancelled, subscribed, session ended) are notes in shared memory.
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "cove/keys.h"
#include "cove/meters.h"
#include "cove/text.h"
#include "fcgi/dialects/mcp.h"

enum {
    SESSION_S = 24 * 3600,
    MAC_LEN = 32, /* hex digits */
    SESSION_MAX = 128,
    CANCEL_MS = 30000, /* a call looks for it several times a second */
    VERSION_LEN = 10,
};

static void sign(const unsigned char *secret, const char *tenant, const char *text, size_t len,
                 char ret[MAC_LEN + 1])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    char all[256];
    int n = snprintf(all, sizeof(all), "mcp session %.64s/%.*s", tenant, (int)len, text);

    HMAC(EVP_sha256(), secret, TOKEN_SECRET_BYTES, (unsigned char *)all, (size_t)n, mac, NULL);
    text_hex(mac, MAC_LEN / 2, ret);
}

struct notes *mcp_notes(const struct request *req)
{
    return req->core && req->core->meters ? meters_notes(req->core->meters) : NULL;
}

int mcp_session_new(struct mcp_call *c, const char *version, const char **ret, struct cove_err *e)
{
    const unsigned char *secret = c->req->core->token_secret;
    char mac[MAC_LEN + 1], id[COVE_ID_LEN + 1];
    const char *text;

    if (!secret)
        return cove_fail(e, COVE_UNSUPPORTED, "this server has no secret to sign sessions with");
    text_new_id(id);
    text = arena_printf(&c->req->arena, "%s.%llu.%s", version,
                        (unsigned long long)(clock_unix_ms() / 1000 + SESSION_S), id);
    sign(secret, c->req->tenant, text, strlen(text), mac);
    *ret = arena_printf(&c->req->arena, "%s.%s", text, mac);
    return 0;
}

/* VERSION.END.RANDOM.MAC, signed for this tenant. */
static bool is_signed(const struct request *req, const char *id)
{
    const unsigned char *secret = req->core ? req->core->token_secret : NULL;
    const char *last = strrchr(id, '.');
    char mac[MAC_LEN + 1];

    if (!secret || !last || strlen(id) >= SESSION_MAX || strlen(last + 1) != MAC_LEN)
        return false;
    sign(secret, req->tenant, id, (size_t)(last - id), mac);
    return CRYPTO_memcmp(mac, last + 1, MAC_LEN) == 0;
}

bool mcp_session_check(const struct request *req, const char *id, const char **ret_version)
{
    struct notes *notes = mcp_notes(req);

    if (!is_signed(req, id) || strlen(id) <= VERSION_LEN ||
        strtoull(id + VERSION_LEN + 1, NULL, 10) <= clock_unix_ms() / 1000)
        return false;
    if (notes && notes_has(notes, "ended", id, ""))
        return false;
    *ret_version = arena_strndup(&((struct request *)req)->arena, id, VERSION_LEN);
    return true;
}

/* Notes of different kinds are counted apart, so that ended sessions leave room for subscriptions. That
 * a note finds no room is no error: the session has nothing that somebody could misuse. */
static void leave_note(const struct request *req, const char *kind, const char *session,
                       const char *text, uint64_t for_ms)
{
    struct notes *notes = mcp_notes(req);
    char whose[96];

    snprintf(whose, sizeof(whose), "%s/%.64s", kind, req->tenant);
    if (notes)
        notes_put(notes, kind, whose, session, text, for_ms, NULL);
}

void mcp_session_end(const struct request *req, const char *id)
{
    leave_note(req, "ended", id, "", (uint64_t)SESSION_S * 1000);
}

/* ------------------------------------------------------------------ cancelled requests */

/* The hash of an id stands in the note: the id itself may be longer than a note. */
static void hash_id(const struct json_text *id, char ret[2 * SHA256_DIGEST_LENGTH + 1])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)id->bytes, id->len, hash);
    text_hex(hash, sizeof(hash), ret);
}

void mcp_cancel(struct mcp_call *c, const struct json_text *which)
{
    char hash[2 * SHA256_DIGEST_LENGTH + 1];

    if (!c->session || !which->bytes)
        return;
    hash_id(which, hash);
    leave_note(c->req, "cancelled", c->session, hash, CANCEL_MS);
}

bool mcp_is_cancelled(struct mcp_call *c)
{
    struct notes *notes = mcp_notes(c->req);
    uint64_t turn = notes ? notes_turn(notes) : 0;
    char hash[2 * SHA256_DIGEST_LENGTH + 1];

    if (!notes || !c->session || !c->id.bytes || turn == c->notes_turn)
        return c->cancelled;
    c->notes_turn = turn;
    hash_id(&c->id, hash);
    c->cancelled = c->cancelled || notes_has(notes, "cancelled", c->session, hash);
    return c->cancelled;
}
