/*
 * The router: a list of dialects, each a table of routes and a shape for errors. Keys, the split
 * between long and short requests, body size, 404, 405, OPTIONS and CORS are settled here, before a
 * handler is called.
 */
#ifndef COVE_FCGI_ROUTER_H
#define COVE_FCGI_ROUTER_H

#include <stdbool.h>
#include <stddef.h>

#include "cove/err.h"
#include "fcgi/http.h"
#include "fcgi/reply.h"
#include "fcgi/slots.h"

enum route_flags {
    ROUTE_OPEN = 1 << 0, /* needs no key */
    ROUTE_LONG = 1 << 1, /* runs commands or streams: may not take the last threads */
    ROUTE_BOX = 1 << 3,  /* short, but talks to an init, which may answer late */
    ROUTE_RAW = 1 << 2,  /* reads its body itself, from req->in: it may be larger than memory */
};

struct route {
    unsigned methods; /* enum method, one or several */
    /* "/{id}/status"; a segment "**" is any number of segments, none included */
    const char *pattern;
    int (*handle)(struct request *req, struct reply *rep, struct cove_err *e);
    unsigned flags;
};

struct credential {     /* where clients of a dialect put their key */
    const char *param;  /* of the header: "HTTP_X_API_KEY" */
    const char *prefix; /* in front of the key, "" = nothing */
};

/* not a port number: the dialect's port is set in the configuration */
enum { HOST_PORT_MEANT = 65536 };

struct dialect {
    const char *name;
    const char *base; /* what all its patterns begin with, "" for none; literal segments only */
    const struct route *routes;
    size_t route_count;
    const struct credential *credentials; /* ends with a NULL param; NULL: as all have */
    /* headers of this dialect that pages of other sites may send, as in ", X-A, X-B"; NULL: none */
    const char *headers;
    /* The dialect answers on host names of sandboxes with this port; 0 = on none, HOST_PORT_MEANT = is_meant()
     * decides. */
    unsigned host_port;
    /* On those host names it answers for sandboxes that this dialect has made (enum cove_dialect); DIALECT_NONE: for
     * all. */
    uint32_t host_maker;
    void (*on_error)(struct request *req, struct reply *rep, const struct cove_err *e);
    bool (*is_meant)(const struct request *req); /* NULL = by every request */
    const char *sandbox_param; /* a header that names the sandbox; NULL: there is none */
    const char *port_param;    /* a header that names a port of that sandbox; NULL: there is none */
    const char *traffic_param; /* a header with a token for a sandbox's ports; NULL: none */
    /* The sandbox that an address of this dialect names, whose token clients send as a bearer; it returns
     * NULL for other requests. NULL: the dialect has no such address. */
    const char *(*addressed)(const struct request *req);
    /* a request without a key is let through, without a tenant: the dialect's handlers decide what is open */
    bool own_access;
};

struct router {
    const struct dialect *const *dialects; /* NULL-terminated; the first that fits is taken */
    const char *cors_origins;              /* space-separated, "*" = any, "" = none */
    size_t body_max;
    struct slots slots; /* for long requests */
};

struct route_match {
    const struct dialect *dialect; /* NULL: nobody knows this path */
    const struct route *route;     /* NULL: the path is known, the method is not */
    unsigned allowed;              /* methods the path takes */
};

void router_match(const struct dialect *const *dialects, struct request *req,
                  struct route_match *ret);

/* Serves one request into `rep`. It never fails: an error is a reply, too. */
void router_serve(struct router *r, struct request *req, struct reply *rep);
/* The same for a request that request_init() refused. */
void router_refuse(struct router *r, struct request *req, struct reply *rep,
                   const struct cove_err *e);

/* cors.c: the headers a browser asks for, if the origin is one of the configured. */
void cors_apply(const struct router *r, struct request *req, struct reply *rep,
                unsigned preflight_methods);
bool cors_allows(const char *origins, const char *origin);

#endif
