/* Addresses of ports, and signed links: a token in a link opens one port of one sandbox until a time, and becomes
 * a cookie of the browser that follows it. */
#include "fcgi/port_links.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/keys.h"
#include "fcgi/core.h"

/* ------------------------------------------------------------------ tokens of one port */

static void sign(const unsigned char *secret, const char *id, unsigned port, uint64_t until_s,
                 char ret[TOKEN_LEN + 1])
{
    unsigned char mac[32];
    char text[96];
    int len =
        snprintf(text, sizeof(text), "port %.32s %u %llu", id, port, (unsigned long long)until_s);

    HMAC(EVP_sha256(), secret, TOKEN_SECRET_BYTES, (unsigned char *)text, (size_t)len, mac, NULL);
    text_hex(mac, TOKEN_LEN / 2, ret);
}

static void port_token_make(const unsigned char *secret, const char *id, unsigned port,
                            uint64_t until_s, char ret[PORT_TOKEN_MAX])
{
    char mac[TOKEN_LEN + 1];

    sign(secret, id, port, until_s, mac);
    snprintf(ret, PORT_TOKEN_MAX, "%llu.%s", (unsigned long long)until_s, mac);
}

bool port_token_fits(const unsigned char *secret, const char *id, unsigned port, const char *token,
                     uint64_t now_s)
{
    char mac[TOKEN_LEN + 1], *end = NULL;
    uint64_t until_s = strtoull(token, &end, 10);

    if (until_s <= now_s || *end != '.' || strlen(end + 1) != TOKEN_LEN)
        return false;
    sign(secret, id, port, until_s, mac);
    return CRYPTO_memcmp(mac, end + 1, TOKEN_LEN) == 0;
}

/* ------------------------------------------------------------------ addresses */

bool port_place_read(const struct request *req, struct port_place *ret)
{
    ret->port = req->host_port;
    return req->host_box && text_is_id(req->host_box) && ret->port >= 1 && ret->port <= 65535 &&
           text_copy(ret->id, sizeof(ret->id), req->host_box);
}

/* A server that is reached by a bare IP address has no host names for its sandboxes. */
static bool is_address(const char *host)
{
    size_t len = strcspn(host, ":");

    return *host == '[' || strspn(host, "0123456789.") == len;
}

const char *port_origin(struct request *req, const char *id, unsigned port)
{
    const char *host = request_param(req, "COVE_AUTHORITY"), *domain, *colon;

    if (req->host_box)
        host += strcspn(host, ".") + (strchr(host, '.') != NULL);
    domain = request_param(req, "COVE_DOMAIN");
    if (!is_address(host) || !*domain)
        return arena_printf(&req->arena, "%s://%u-%s.%s", request_param(req, "REQUEST_SCHEME"),
                            port, id, host);
    colon = strchr(*host == '[' ? host + strcspn(host, "]") : host, ':');
    return arena_printf(&req->arena, "%s://%u-%s.%s%s", request_param(req, "REQUEST_SCHEME"), port,
                        id, domain, colon ? colon : "");
}

const char *port_link(struct request *req, const char *id, unsigned port, uint64_t seconds,
                      struct cove_err *e)
{
    char token[PORT_TOKEN_MAX];

    if (!req->core->token_secret) {
        cove_fail(e, COVE_UNSUPPORTED, "this server has no secret to sign links with");
        return NULL;
    }
    port_token_make(req->core->token_secret, id, port, clock_unix_ms() / 1000 + seconds, token);
    return arena_printf(&req->arena, "%s/.cove/open?token=%s&to=/", port_origin(req, id, port),
                        token);
}

/* ------------------------------------------------------------------ signed links */

/* Only a path of this very host: "//elsewhere" and "/\elsewhere" would be another one. */
static bool is_local_path(const char *to)
{
    return to[0] == '/' && to[1] != '/' && !strpbrk(to, "\\\r\n");
}

void port_link_serve(struct request *req, struct reply *rep)
{
    const char *token = request_query(req, "token"), *to = request_query(req, "to");
    bool https = strcmp(request_param(req, "REQUEST_SCHEME"), "https") == 0;
    uint64_t now = clock_unix_ms() / 1000;
    struct port_place place;
    struct cove_err e;

    req->note.operation = "port_open";
    if (!token || !req->core->token_secret || !port_place_read(req, &place) ||
        !port_token_fits(req->core->token_secret, place.id, place.port, token, now)) {
        cove_fail(&e, COVE_UNAUTHORIZED, "this link is not valid, or no longer");
        reply_plain_error(req, rep, &e);
        return;
    }
    rep->status = 302;
    reply_header(rep, "Location", to && is_local_path(to) ? to : "/");
    reply_header(rep, "Cache-Control", "no-store");
    reply_header(rep, "Set-Cookie",
                 arena_printf(&req->arena,
                              PORT_COOKIE "=%s; Path=/; Max-Age=%llu; HttpOnly; SameSite=Lax%s",
                              token, (unsigned long long)(strtoull(token, NULL, 10) - now),
                              https ? "; Secure" : ""));
}
