/* The router: which row serves a request, and what happens around its handler. */
#include "fcgi/router.h"

#include <string.h>
#include <strings.h>

#include "cove/dialect.h"
#include "cove/log.h"
#include "cove/which.h"
#include "fcgi/caller.h"
#include "fcgi/core.h"
#include "fcgi/shares.h"

/* Retry-After of a tenant that has all its sandboxes: one must end first, and nobody knows when that is. */
enum { LIMIT_RETRY_S = 5 };

/* ------------------------------------------------------------------ matching */

static bool same(const char *pattern, size_t len, const char *segment)
{
    return strncmp(pattern, segment, len) == 0 && segment[len] == '\0';
}

static void capture(struct request *req, const char *pattern, size_t len, const char *value)
{
    if (req->capture_count == CAPTURES_MAX)
        return;
    req->captures[req->capture_count++] = (struct pair){
        .name = arena_strndup(&req->arena, pattern + 1, len - 2),
        .value = value,
    };
}

/* Does `pattern` fit the segments from `i` on? */
static bool fits(const char *pattern, struct request *req, size_t i)
{
    size_t len;

    if (*pattern == '\0' || strcmp(pattern, "/") == 0)
        return i == req->segment_count;
    len = strcspn(++pattern, "/");
    if (len == 2 && strncmp(pattern, "**", 2) == 0) {
        size_t captured = req->capture_count;

        for (; i <= req->segment_count; i++, req->capture_count = captured)
            if (fits(pattern + len, req, i))
                return true;
        return false;
    }
    if (i == req->segment_count)
        return false;
    if (*pattern == '{') {
        if (*req->segments[i] == '\0')
            return false; /* an empty segment names nothing */
        capture(req, pattern, len, req->segments[i]);
    } else if (!same(pattern, len, req->segments[i])) {
        return false;
    }
    return fits(pattern + len, req, i + 1);
}

/* How many segments the base takes, or -1 when the path does not begin with it. */
static long skip_base(const char *base, const struct request *req)
{
    size_t i = 0;

    while (*base) {
        size_t len = strcspn(++base, "/");

        if (i == req->segment_count || !same(base, len, req->segments[i]))
            return -1;
        base += len;
        i++;
    }
    return (long)i;
}

static unsigned methods_of(const struct route *route)
{
    return route->methods | (route->methods & GET ? HEAD : 0);
}

static bool try_dialect(const struct dialect *d, struct request *req, struct route_match *m)
{
    long start = skip_base(d->base, req);

    if (start < 0)
        return false;
    for (size_t i = 0; i < d->route_count; i++) {
        const struct route *route = &d->routes[i];

        req->capture_count = 0;
        if (!fits(route->pattern, req, (size_t)start))
            continue;
        m->allowed |= methods_of(route) | OPTIONS;
        if (!m->dialect)
            m->dialect = d;
        if (methods_of(route) & req->method) {
            m->dialect = d;
            m->route = route;
            return true;
        }
    }
    return false;
}

static bool answers_host(const struct dialect *d, const struct request *req)
{
    if (d->is_meant && !d->is_meant(req))
        return false;
    return !req->host_box || d->host_port == HOST_PORT_MEANT ||
           (req->host_port && d->host_port == req->host_port);
}

void router_match(const struct dialect *const *dialects, struct request *req,
                  struct route_match *ret)
{
    *ret = (struct route_match){ 0 };
    for (; *dialects; dialects++)
        if (answers_host(*dialects, req) && try_dialect(*dialects, req, ret))
            return;
}

/* ------------------------------------------------------------------ serving */

struct no_dialect { /* with the fields of every dialect, for errors that are none's own */
    int64_t code;
    const char *message, *error;
};

static const struct json_field no_dialect_fields[] = {
    JSON_INT(struct no_dialect, code, "code", JSON_REQUIRED, 0, 599),
    JSON_STR(struct no_dialect, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct no_dialect, error, "error", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static void tell_all_dialects(struct reply *rep, int status, const char *text)
{
    rep->status = status;
    reply_json(rep, no_dialect_fields, &(struct no_dialect){ status, text, text });
}

static void fail(const struct dialect *d, struct request *req, struct reply *rep,
                 const struct cove_err *e)
{
    if (e->code == COVE_INTERNAL)
        log_error("request failed", e, LOG_S("request_id", req->request_id));
    if (!req->note.cause)
        req->note.cause = cove_code_name(e->code);
    req->failure = arena_strdup(&req->arena, e->msg);
    rep->failed = true;
    if (rep->streamed)
        return; /* no status can be told any more: the stream is cut (stream_cut_unended) */
    reply_clear(rep);
    if (e->code == COVE_BUSY)
        reply_header(rep, "Retry-After", "1");
    if (e->code == COVE_QUOTA || e->code == COVE_LIMIT)
        reply_header(rep, "Retry-After",
                     arena_printf(&req->arena, "%u",
                                  req->retry_after_s ? req->retry_after_s : LIMIT_RETRY_S));
    if (d)
        d->on_error(req, rep, e);
    else
        tell_all_dialects(rep, reply_error_status(NULL, 0, e->code), e->msg);
}

static int refuse_method(struct request *req, struct reply *rep, unsigned allowed,
                         struct cove_err *e)
{
    const char *allow = http_method_list(&req->arena, allowed);

    reply_header(rep, "Allow", allow);
    return cove_fail(e, COVE_METHOD, "method %.20s is not allowed here, use %s", req->method_name,
                     allow);
}

/* Calls the handler, unless the client has left: then nothing needs to be judged, run or written. The client may also
 * leave while its commands are judged. */
static int handle(const struct route *route, struct request *req, struct reply *rep,
                  struct cove_err *e)
{
    if (!core_client_has_left(req->client_fd)) {
        int rc = route->handle(req, rep, e);

        if (rc == 0 || rep->streamed || !core_client_has_left(req->client_fd))
            return rc;
    }
    req->note.cause = "client";
    rep->status = 499; /* no client reads this status; the log and the counters have it */
    return 0;
}

static int read_and_handle(struct router *r, const struct route *route, struct request *req,
                           struct reply *rep, struct cove_err *e)
{
    if (req->core) {
        req->body.budget = req->core->bytes;
        arena_within(&req->arena, req->core->bytes);
        reply_within(rep, req->core->bytes);
    }
    if (req->in && !(route->flags & ROUTE_RAW) && request_read_body(req, r->body_max, e) < 0)
        return -1;
    if (handle(route, req, rep, e) < 0)
        return -1;
    if (rep->body.starved)
        return cove_fail(e, COVE_BUSY, "no memory for the reply, try again in a second");
    if (rep->body.overflow)
        return cove_fail(e, COVE_INTERNAL, "the reply is too large");
    return 0;
}

/*
 * A page of another site can make a browser send a POST with the name and password that the browser
 * remembers, but not with this content type, unless CORS allows that site.
 */
static int check_content_type(const struct request *req, struct cove_err *e)
{
    const char *type = request_param(req, "CONTENT_TYPE");

    if (req->method != POST || !caller_is_ambient(req->core, req->tenant) ||
        strncasecmp(type, "application/json", strlen("application/json")) == 0)
        return 0;
    return cove_fail(e, COVE_INVALID,
                     "Content-Type: must be application/json when signed in with a password");
}

static int admit_caller(const struct dialect *d, const struct route *route, struct request *req,
                        struct cove_err *e)
{
    if (route->flags & ROUTE_OPEN)
        return 0;
    if (!*req->tenant)
        return cove_fail(
            e, COVE_UNAUTHORIZED,
            "no key: send one as X-API-Key, as X-Relay-Secret, or as Authorization: Bearer");
    if (check_content_type(req, e) < 0)
        return -1;
    return caller_admit(req->core, req->tenant, d->name, &req->retry_after_s, e);
}

static int fail_full(struct request *req, struct cove_err *e)
{
    core_count(req->core, COUNT_OVERLOADED, 1);
    return cove_fail(e, COVE_BUSY, "the server is full, try again in a second");
}

static enum slot_kind take_slot(struct slots *s, const struct route *route, struct request *req)
{
    if (route->flags & ROUTE_LONG)
        return slots_take(s, &req->promised) ? SLOT_KIND_LONG : SLOT_KIND_NONE;
    return slots_take_brief(s, &req->promised);
}

/*
 * Takes the tenant's share of threads and of memory, until core_request_end(). Brief slots do not count: when one
 * tenant holds all of them, others find long ones.
 */
static int take_share(struct request *req, enum slot_kind kind, struct cove_err *e)
{
    struct core *c = req->core;
    bool counts = kind == SLOT_KIND_LONG;

    if (!c || !c->tenant_shares)
        return 0;
    if (!shares_take(c->tenant_shares, req->tenant, counts, &c->bytes)) {
        core_count(c, COUNT_OVERLOADED, 1);
        return cove_fail(e, COVE_BUSY,
                         "this tenant has %u requests under way, try again in a second",
                         c->tenant_shares->most);
    }
    c->share_of = req->tenant;
    c->share_counts = counts;
    return 0;
}

/* Serves a request that may take long or wait for an init: never on the last threads. */
static int handle_in_slot(struct router *r, const struct route *route, struct request *req,
                          struct reply *rep, struct cove_err *e)
{
    enum slot_kind kind = take_slot(&r->slots, route, req);
    int rc;

    if (kind == SLOT_KIND_NONE)
        return fail_full(req, e);
    rc = take_share(req, kind, e) < 0 ? -1 : read_and_handle(r, route, req, rep, e);
    slots_release_kind(&r->slots, kind);
    return rc;
}

static int admit(struct router *r, const struct dialect *d, const struct route *route,
                 struct request *req, struct reply *rep, struct cove_err *e)
{
    req->dialect = d->name;
    if (req->core)
        req->core->dialect = dialect_number(d->name);
    if (admit_caller(d, route, req, e) < 0)
        return -1;
    if (!(route->flags & (ROUTE_LONG | ROUTE_BOX))) {
        slots_withdraw(&r->slots, &req->promised);
        return read_and_handle(r, route, req, rep, e);
    }
    return handle_in_slot(r, route, req, rep, e);
}

/*
 * Does the sandbox of the host name live, and is it the tenant's? For a sandbox that never existed, has ended or is
 * another tenant's there is one and the same reply, so that nobody can try out names. The reply has the fields that
 * clients of every dialect look for.
 */
static bool host_lives(const struct router *r, const struct request *req)
{
    const char *tenant = *req->tenant ? req->tenant : NULL;
    bool answers = false;
    struct which w;

    for (const struct dialect *const *d = r->dialects; *d; d++)
        answers = answers || answers_host(*d, req);
    return answers && req->core &&
           which_sandbox_id(req->core->state, tenant, req->host_box, &w) != WHICH_NONE;
}

static void refuse_host(struct request *req, struct reply *rep)
{
    req->note.cause = "host";
    tell_all_dialects(rep, 502, "no sandbox answers by this name");
}

/* Finds the dialect in whose form an error about an unknown path is told: the one with whose base the path begins.
 * The path is compared as it was sent, because a path that could not be decoded has no segments. */
static const struct dialect *dialect_by_base(const struct dialect *const *dialects,
                                             const struct request *req)
{
    for (; *dialects; dialects++) {
        size_t len = strlen((*dialects)->base);

        if (len && strncmp(req->path, (*dialects)->base, len) == 0 &&
            (req->path[len] == '/' || !req->path[len]) && answers_host(*dialects, req))
            return *dialects;
    }
    return NULL;
}

static int serve(struct router *r, const struct route_match *m, struct request *req,
                 struct reply *rep, struct cove_err *e)
{
    if (!m->dialect)
        return cove_fail(e, COVE_NOT_FOUND, "no such path: %.100s", req->path);
    if (m->route)
        return admit(r, m->dialect, m->route, req, rep, e);
    if (req->method != OPTIONS)
        return refuse_method(req, rep, m->allowed, e);
    req->note.operation = "options";
    reply_header(rep, "Allow", http_method_list(&req->arena, m->allowed));
    return 0;
}

void router_serve(struct router *r, struct request *req, struct reply *rep)
{
    struct route_match m;
    struct cove_err e;

    router_match(r->dialects, req, &m);
    /* Before the handler is called, because a stream's head is sent while the handler works. */
    cors_apply(r, req, rep, req->method == OPTIONS ? m.allowed : 0);
    if (req->host_box && !host_lives(r, req))
        refuse_host(req, rep);
    else if (serve(r, &m, req, rep, &e) < 0)
        fail(m.dialect ? m.dialect : dialect_by_base(r->dialects, req), req, rep, &e);
}

void router_refuse(struct router *r, struct request *req, struct reply *rep,
                   const struct cove_err *e)
{
    struct route_match m;

    router_match(r->dialects, req, &m);
    fail(m.dialect ? m.dialect : dialect_by_base(r->dialects, req), req, rep, e);
    cors_apply(r, req, rep, 0);
}
