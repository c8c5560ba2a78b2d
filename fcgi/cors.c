/* CORS: which web pages may call us from a browser. Errors carry the headers too, or a page could
 * not read them. */
#include <string.h>

#include "fcgi/router.h"

static const char *allowed_headers(const struct router *r, struct arena *a)
{
    const char *list = "Authorization, Content-Type, X-Requested-With";

    for (const struct dialect *const *d = r->dialects; *d; d++)
        if ((*d)->headers)
            list = arena_printf(a, "%s%s", list, (*d)->headers);
    /* Names of headers that hold a client's own words (X-Metadata-...) are known to nobody here. Some
     * browsers take "*" only beside a list, and none takes it for Authorization. */
    return arena_printf(a, "%s, *", list);
}

/* Finds the configured origin that equals `origin`. The configured text goes into the header, never the client's. */
static const char *find_origin(struct arena *a, const char *origins, const char *origin)
{
    size_t want = strlen(origin);

    while (*origins) {
        size_t len = strcspn(origins, " ");

        if (len == 1 && *origins == '*')
            return "*";
        if (len > 0 && len == want && strncmp(origins, origin, len) == 0)
            return arena_strndup(a, origins, len);
        origins += len;
        origins += strspn(origins, " ");
    }
    return NULL;
}

bool cors_allows(const char *origins, const char *origin)
{
    struct arena a = { 0 };
    bool found = find_origin(&a, origins, origin) != NULL;

    arena_done(&a);
    return found;
}

void cors_apply(const struct router *r, struct request *req, struct reply *rep,
                unsigned preflight_methods)
{
    const char *origin = request_param(req, "HTTP_ORIGIN");
    const char *allowed = find_origin(&req->arena, r->cors_origins, origin);

    if (!allowed)
        return;
    reply_header(rep, "Access-Control-Allow-Origin", allowed);
    if (*allowed != '*')
        reply_header(rep, "Vary", "Origin"); /* a cache must not give this reply to another page */
    if (!preflight_methods) {
        reply_header(rep, "Access-Control-Expose-Headers",
                     "X-Request-Id, Retry-After, Should-Retry, X-Next-Token, X-Total-Running, "
                     "Mcp-Session-Id, Content-Disposition, Content-Encoding, Content-Range, "
                     "Accept-Ranges, ETag");
        return;
    }
    reply_header(rep, "Access-Control-Allow-Methods",
                 http_method_list(&req->arena, preflight_methods));
    reply_header(rep, "Access-Control-Allow-Headers", allowed_headers(r, &req->arena));
    reply_header(rep, "Access-Control-Max-Age", "600");
}
