/* Addresses of ports of sandboxes, PORT-ID.DOMAIN, and links that open one for a while. */
#ifndef COVE_FCGI_PORT_LINKS_H
#define COVE_FCGI_PORT_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/text.h"
#include "fcgi/reply.h"

#define PORT_COOKIE "cove-port"

enum { PORT_TOKEN_MAX = 96 };

/* https://PORT-ID.DOMAIN, where DOMAIN is the name by which the client came here, without the label of a
 * sandbox's port if it has one. Who came by an address gets the site's own name. */
const char *port_origin(struct request *req, const char *id, unsigned port);
/* Makes a signed link to that port, good for so many seconds; NULL: this server has no secret to sign with. */
const char *port_link(struct request *req, const char *id, unsigned port, uint64_t seconds,
                      struct cove_err *e);

struct port_place { /* the sandbox and the port that a host name has in it */
    char id[COVE_ID_LEN + 1];
    unsigned port;
};
bool port_place_read(const struct request *req, struct port_place *ret);

/* Does this token, of a link or a cookie, open this port of this sandbox now? */
bool port_token_fits(const unsigned char *secret, const char *id, unsigned port, const char *token,
                     uint64_t now_s);

/* GET /.cove/open?token=...&to=/path on a port's host name (COVE_ROLE=open): a signed link. Sets the
 * cookie that opens this port, and sends the browser on to `to`. */
void port_link_serve(struct request *req, struct reply *rep);

#endif
