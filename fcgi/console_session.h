/*
 * Sessions of the web console: a signed cookie says who has signed in, with which key, until when. No
 * table of sessions is kept. A session made with a key ends when that key is revoked or expires.
 *
 * A browser sends a cookie along by itself, so a cookie alone opens nothing but the console's own
 * addresses, and there only:
 *   - reading (GET, HEAD) from a page of this very host, or by typing the address. What a page embeds
 *     (an image, a script) has no Origin: there Sec-Fetch-Site tells, which browsers send to https and to
 *     localhost;
 *   - changing, when Origin names this very host and the header X-Console-Token repeats a token
 *     that only pages of this host can read (GET session tells it).
 * Previews of sandboxes are same-site with the console but have other host names, so Origin tells them
 * apart.
 */
#ifndef COVE_FCGI_CONSOLE_SESSION_H
#define COVE_FCGI_CONSOLE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/keys.h"
#include "fcgi/http.h"

#define CONSOLE_BASE "/console/api"

enum { CONSOLE_COOKIE_MAX = 256, CONSOLE_SESSION_S = 12 * 3600 };

struct console_session {
    char tenant[COVE_TENANT_MAX];
    char key[COVE_KEY_ID_MAX]; /* public name of the key; "" = signed in by password */
    uint64_t until_s;
};

/* The value of the cookie, and the token that goes with it. */
void console_session_make(const unsigned char *secret, const struct console_session *s,
                          char ret[CONSOLE_COOKIE_MAX]);
void console_session_token(const unsigned char *secret, const char *cookie,
                           char ret[TOKEN_LEN + 1]);
/* False: this server did not make the cookie, somebody has changed it, or its time is over. */
bool console_session_read(const unsigned char *secret, const char *cookie, uint64_t now_s,
                          struct console_session *ret);

/* Is the request's address one of the console's, which a session can open? */
bool console_is_meant(const struct request *req);
/* The cookie's name. Browsers send a cookie whose name begins with __Host- only to this host and only over https. */
const char *console_cookie_name(const struct request *req);
/* Reads the session's cookie. False: the request has none, or two of that name. */
bool console_cookie(const struct request *req, char ret[CONSOLE_COOKIE_MAX]);

/* Reads the session of a request. False unless the address is the console's and the rules above hold. The session's
 * key is looked up again in `keys`, the newest table. */
bool console_sign_in(struct request *req, const struct keys *keys, struct console_session *ret);
/* False: the request came with a session whose time is over by now. Streams ask again and again. */
bool console_session_goes_on(const struct request *req);
/* Did a page of this very host send the request? Browsers tell by Origin and Sec-Fetch-Site. */
bool console_same_origin(const struct request *req);

#endif
