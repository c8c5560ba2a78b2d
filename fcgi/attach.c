/* The worker's half of a WebSocket on a process: see attach.h. */
#include "fcgi/attach.h"

#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

#include "cove/base64.h"
#include "cove/mem.h"
#include "fcgi/caller.h"
#include "fcgi/router.h"

enum { KEY_CHARS = 24, SHA1_BYTES = 20, ACCEPT_CHARS = BASE64_LEN(SHA1_BYTES), REASON_MAX = 240 };

/* ------------------------------------------------------------------ the handshake (RFC 6455, 4.2) */

static bool is_key(const char *key)
{
    unsigned char nonce[KEY_CHARS];
    size_t len;

    return strlen(key) == KEY_CHARS && base64_decode(key, KEY_CHARS, nonce, &len) == 0 && len == 16;
}

static bool is_handshake(const struct request *req)
{
    return req->method == GET && strcasecmp(request_param(req, "HTTP_UPGRADE"), "websocket") == 0 &&
           strcmp(request_param(req, "HTTP_SEC_WEBSOCKET_VERSION"), "13") == 0 &&
           is_key(request_param(req, "HTTP_SEC_WEBSOCKET_KEY"));
}

int attach_check(const struct request *req, struct cove_err *e)
{
    if (strcmp(request_param(req, "COVE_ROLE"), "attach") != 0 ||
        strcasecmp(request_param(req, "HTTP_UPGRADE"), "websocket") != 0)
        return cove_fail(e, COVE_INVALID, "this address speaks WebSocket (over HTTP/1.1) only");
    if (strcmp(request_param(req, "HTTP_SEC_WEBSOCKET_VERSION"), "13") != 0)
        return cove_fail(e, COVE_INVALID, "Sec-WebSocket-Version: must be 13");
    if (!is_key(request_param(req, "HTTP_SEC_WEBSOCKET_KEY")))
        return cove_fail(e, COVE_INVALID, "Sec-WebSocket-Key: must be 16 bytes in base64");
    return 0;
}

static const char *accept_of(struct request *req)
{
    const char *text = arena_printf(&req->arena, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11",
                                    request_param(req, "HTTP_SEC_WEBSOCKET_KEY"));
    char *accept = arena_alloc(&req->arena, ACCEPT_CHARS + 1);
    unsigned char digest[SHA1_BYTES] = { 0 };

    EVP_Digest(text, strlen(text), digest, NULL, EVP_sha1(), NULL);
    base64_encode(digest, sizeof(digest), accept);
    return accept;
}

/* Takes the next element of the list at *at and copies it into the arena; NULL at the list's end. */
static const char *next_protocol(struct request *req, const char **at)
{
    const char *from = *at + strspn(*at, ", \t");
    size_t len = strcspn(from, ", \t");

    *at = from + len;
    return len ? arena_strndup(&req->arena, from, len) : NULL;
}

const char *attach_protocol(struct request *req, const char *prefix)
{
    const char *at = request_param(req, "HTTP_SEC_WEBSOCKET_PROTOCOL"), *one;

    while ((one = next_protocol(req, &at)))
        if (strncmp(one, prefix, strlen(prefix)) == 0)
            return one + strlen(prefix);
    return NULL;
}

/* Finds the subprotocol that the client offers and this server speaks; "-": there is none. A browser that has offered
 * some rejects an answer that chooses none. */
static const char *chosen_protocol(struct request *req)
{
    static const char *const ours[] = { "cove.terminal", "cove.lines" };
    const char *at = request_param(req, "HTTP_SEC_WEBSOCKET_PROTOCOL"), *one;

    while ((one = next_protocol(req, &at)))
        for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
            if (strcmp(one, ours[i]) == 0)
                return ours[i];
    return "-";
}

/* ------------------------------------------------------------------ the page it comes from */

bool attach_origin_fits(const struct request *req, const char *cors_origins)
{
    const char *origin = request_param(req, "HTTP_ORIGIN"), *host = strstr(origin, "://");

    if (!*origin)
        return true; /* no browser */
    if (host && strcasecmp(host + 3, request_param(req, "COVE_AUTHORITY")) == 0)
        return true;
    return cors_allows(cors_origins, origin);
}

/* ------------------------------------------------------------------ the line for the gate */

/* Makes one line of plain text of whatever a client has sent. */
static const char *plain(struct request *req, const char *text)
{
    char *copy = arena_strndup(&req->arena, text, strnlen(text, REASON_MAX));

    for (char *c = copy; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return copy;
}

static int answer(struct request *req, struct reply *rep, const char *line)
{
    rep->status = 204;
    reply_header(rep, "X-Accel-Redirect", request_param(req, "COVE_VERDICT_GOES_TO"));
    reply_header(rep, "X-Cove-Target", line);
    return 0;
}

int attach_to(struct request *req, struct reply *rep, const struct attach_target *t)
{
    const char *line = arena_printf(&req->arena, "socket %s %s %s %s %u", accept_of(req),
                                    chosen_protocol(req), t->kind, t->id, t->proc);
    char key[COVE_KEY_ID_MAX];

    if (t->has_from)
        line = arena_printf(&req->arena, "%s from=%llu", line, (unsigned long long)t->from);
    if (t->rows)
        line = arena_printf(&req->arena, "%s rows=%u cols=%u", line, t->rows, t->cols);
    caller_key_id(req->core, key);
    if (*key)
        line = arena_printf(&req->arena, "%s key=%s", line, key);
    if (req->until_s)
        line = arena_printf(&req->arena, "%s until=%llu", line, (unsigned long long)req->until_s);
    return answer(req, rep,
                  arena_printf(&req->arena, "%s%s%s%s", line, t->numbered ? " numbered" : "",
                               t->read_only ? " read_only" : "",
                               t->plain_text ? " plain_text" : ""));
}

int attach_close(struct request *req, struct reply *rep, unsigned code, const char *reason)
{
    return answer(req, rep,
                  arena_printf(&req->arena, "close %s %s %u %s", accept_of(req),
                               chosen_protocol(req), code, plain(req, reason)));
}

void attach_refused(struct request *req, struct reply *rep, const char *why)
{
    unsigned status = rep->status >= 400 && rep->status < 600 ? (unsigned)rep->status : 500;

    reply_clear(rep);
    rep->header_count = 0;
    if (status == 400 && !is_handshake(req))
        status = 426;
    if (*request_param(req, "HTTP_ORIGIN") && is_handshake(req))
        attach_close(req, rep, 4000 + status, why);
    else
        answer(req, rep, arena_printf(&req->arena, "refuse %u %s", status, plain(req, why)));
}
