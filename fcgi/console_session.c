/* Sessions of the web console: how a cookie is signed and what it opens. */
#include "fcgi/console_session.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/text.h"
#include "fcgi/core.h"

#define TERMINAL_PATH "/terminal" /* a WebSocket of the gate's, which the console's page opens */

/* ------------------------------------------------------------------ the cookie */

/* The purpose stands in front, so that no other MAC under this secret can be taken for this one. */
static void sign(const unsigned char *secret, const char *purpose, const char *text,
                 char ret[TOKEN_LEN + 1])
{
    unsigned char mac[TOKEN_LEN / 2];
    char whole[CONSOLE_COOKIE_MAX + 32];
    int len = snprintf(whole, sizeof(whole), "console %s %s", purpose, text);

    HMAC(EVP_sha256(), secret, TOKEN_SECRET_BYTES, (unsigned char *)whole, (size_t)len, mac, NULL);
    text_hex(mac, sizeof(mac), ret);
}

/* "UNTIL.KEY.TENANT.MAC"; a key is "-" when there is none. A tenant's name may contain dots, so it
 * stands where everything up to the last dot belongs to it. */
void console_session_make(const unsigned char *secret, const struct console_session *s,
                          char ret[CONSOLE_COOKIE_MAX])
{
    char text[CONSOLE_COOKIE_MAX - TOKEN_LEN - 1], mac[TOKEN_LEN + 1];

    snprintf(text, sizeof(text), "%llu.%s.%s", (unsigned long long)s->until_s,
             *s->key ? s->key : "-", s->tenant);
    sign(secret, "session", text, mac);
    snprintf(ret, CONSOLE_COOKIE_MAX, "%s.%s", text, mac);
}

void console_session_token(const unsigned char *secret, const char *cookie, char ret[TOKEN_LEN + 1])
{
    sign(secret, "token", cookie, ret);
}

static bool mac_fits(const unsigned char *secret, const char *purpose, const char *text,
                     const char *given)
{
    char mac[TOKEN_LEN + 1];

    sign(secret, purpose, text, mac);
    return strlen(given) == TOKEN_LEN && CRYPTO_memcmp(mac, given, TOKEN_LEN) == 0;
}

/* "UNTIL.KEY.TENANT", whose MAC was found good. */
static bool read_fields(char *text, struct console_session *ret)
{
    const char *until = strsep(&text, "."), *key = strsep(&text, ".");

    if (!key || !text || !*text)
        return false;
    ret->until_s = strtoull(until, NULL, 10);
    return text_copy(ret->key, sizeof(ret->key), strcmp(key, "-") == 0 ? "" : key) &&
           text_copy(ret->tenant, sizeof(ret->tenant), text);
}

bool console_session_read(const unsigned char *secret, const char *cookie, uint64_t now_s,
                          struct console_session *ret)
{
    char text[CONSOLE_COOKIE_MAX];
    char *mac = text_copy(text, sizeof(text), cookie) ? strrchr(text, '.') : NULL;
    struct console_session s = { 0 };

    if (!mac)
        return false;
    *mac++ = '\0';
    if (!mac_fits(secret, "session", text, mac) || !read_fields(text, &s) || s.until_s <= now_s)
        return false;
    *ret = s;
    return true;
}

/* ------------------------------------------------------------------ the request */

static bool is_https(const struct request *req)
{
    return strcmp(request_param(req, "REQUEST_SCHEME"), "https") == 0;
}

const char *console_cookie_name(const struct request *req)
{
    return is_https(req) ? "__Host-cove-console" : "cove-console";
}

bool console_cookie(const struct request *req, char ret[CONSOLE_COOKIE_MAX])
{
    return request_cookie(req, console_cookie_name(req), ret, CONSOLE_COOKIE_MAX);
}

bool console_same_origin(const struct request *req)
{
    const char *origin = request_param(req, "HTTP_ORIGIN");
    const char *scheme = request_param(req, "REQUEST_SCHEME");
    size_t len = strlen(scheme);

    return *scheme && strncmp(origin, scheme, len) == 0 && strncmp(origin + len, "://", 3) == 0 &&
           strcmp(origin + len + 3, request_param(req, "COVE_AUTHORITY")) == 0;
}

bool console_is_meant(const struct request *req)
{
    return !req->host_box && (strncmp(req->path, CONSOLE_BASE "/", strlen(CONSOLE_BASE "/")) == 0 ||
                              strcmp(req->path, TERMINAL_PATH) == 0);
}

/* A WebSocket begins with a GET but can change things, so it does not count as reading. */
static bool only_reads(const struct request *req)
{
    return (req->method == GET || req->method == HEAD) && !*request_param(req, "HTTP_UPGRADE");
}

/* "none" is an address that somebody typed. */
static bool is_embedded_elsewhere(const struct request *req)
{
    const char *site = request_param(req, "HTTP_SEC_FETCH_SITE");

    return *site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0;
}

/* Scripts cannot set headers of a WebSocket's first request, so for a WebSocket only Origin is looked at. */
static bool page_is_ours(const struct request *req, const unsigned char *secret, const char *cookie)
{
    if (only_reads(req))
        return *request_param(req, "HTTP_ORIGIN") ? console_same_origin(req)
                                                  : !is_embedded_elsewhere(req);
    if (!console_same_origin(req))
        return false;
    return *request_param(req, "HTTP_UPGRADE") ||
           mac_fits(secret, "token", cookie, request_param(req, "HTTP_X_CONSOLE_TOKEN"));
}

static bool key_lives(const struct keys *keys, const struct console_session *s, uint64_t now_s)
{
    const struct key *key;

    if (!*s->key)
        return true;
    key = keys ? keys_find_id(keys, s->key) : NULL;
    return key && !key_expired(key, now_s) && strcmp(key->tenant, s->tenant) == 0;
}

bool console_sign_in(struct request *req, const struct keys *keys, struct console_session *ret)
{
    const unsigned char *secret = req->core ? req->core->token_secret : NULL;
    uint64_t now_s = clock_unix_ms() / 1000;
    char cookie[CONSOLE_COOKIE_MAX];

    return secret && console_is_meant(req) && console_cookie(req, cookie) &&
           console_session_read(secret, cookie, now_s, ret) && page_is_ours(req, secret, cookie) &&
           key_lives(keys, ret, now_s);
}

bool console_session_goes_on(const struct request *req)
{
    bool by_header = *request_param(req, "HTTP_AUTHORIZATION") ||
                     *request_param(req, "HTTP_X_API_KEY") ||
                     *request_param(req, "HTTP_X_ACCESS_TOKEN");
    char cookie[CONSOLE_COOKIE_MAX];
    struct console_session s;

    return by_header || !console_cookie(req, cookie) ||
           console_session_read(req->core->token_secret, cookie, clock_unix_ms() / 1000, &s);
}
