/* CORS: which web pages may call us from a browser. Errors carry the headers too, or a page could
 * not read them. */
#include <string.h>

#include "fcgi/router.h"

#define ALLOWED_HEADERS                                                                            \
    "Authorization, Content-Type, X-API-Key, X-Relay-Secret, X-Project-Id, X-Requested-With"

/* The configured origin that equals `origin`: only our own text goes back into a header. */
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

void cors_apply(const char *origins, struct request *req, struct reply *rep,
                unsigned preflight_methods)
{
    const char *origin = request_param(req, "HTTP_ORIGIN");
    const char *allowed = find_origin(&req->arena, origins, origin);

    if (!allowed)
        return;
    reply_header(rep, "Access-Control-Allow-Origin", allowed);
    if (*allowed != '*')
        reply_header(rep, "Vary", "Origin"); /* caches must not hand it to another page */
    if (!preflight_methods) {
        reply_header(rep, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
        return;
    }
    reply_header(rep, "Access-Control-Allow-Methods",
                 http_method_list(&req->arena, preflight_methods));
    reply_header(rep, "Access-Control-Allow-Headers", ALLOWED_HEADERS);
    reply_header(rep, "Access-Control-Max-Age", "600");
}
