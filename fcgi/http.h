/*
 * A request as handlers see it: method, decoded path, query, body, and who asks. What it points to
 * lives in its arena (or in its JSON tree) and is gone after the reply.
 */
#ifndef COVE_FCGI_HTTP_H
#define COVE_FCGI_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/err.h"
#include "cove/mem.h"
#include "cove/text.h"

struct core;
struct FCGX_Stream;
struct json_field;
struct json_object;

enum method { GET = 1, HEAD = 2, POST = 4, PUT = 8, PATCH = 16, DELETE = 32, OPTIONS = 64 };

enum { CAPTURES_MAX = 4, SEGMENTS_MAX = 64, QUERY_MAX = 64 };

struct request_note { /* what the log line says about this request; NULL = nothing */
    const char *operation, *project, *sandbox, *cause;
};

struct request {
    struct arena arena;
    struct core *core;      /* the serving thread's; NULL in tests that need no sandbox */
    struct FCGX_Stream *in; /* the body, until request_read_body() */
    /* where a streamed reply goes; NULL in tests, which find it in rep->body */
    struct FCGX_Stream *out;
    char **params; /* what nginx told us, "NAME=value", NULL-terminated */
    int client_fd; /* hangs up when the client leaves; -1 in tests */
    int fcgi_id;   /* the request's number on that connection */
    bool promised; /* a long slot (slots.h) is reserved for this request */

    unsigned method; /* enum method, 0 if it is none of them */
    const char *method_name;
    const char *path;      /* as sent, without the query */
    const char **segments; /* "/a/b%20c" is "a", "b c"; "/" has none, "/a/" ends in an empty one */
    size_t segment_count;
    struct pair *query;
    size_t query_count;
    struct pair captures[CAPTURES_MAX]; /* the {names} of the route's pattern */
    size_t capture_count;

    /* The host name was one of a sandbox's port: PORT-ID.DOMAIN or sandbox-ID-PORT.DOMAIN. Whether
     * such a sandbox lives is another question (the router asks it). NULL: the site's own name. */
    const char *host_box;
    unsigned host_port;

    const char *request_id;
    const char *tenant;     /* "" = not authenticated */
    unsigned retry_after_s; /* for the Retry-After of a 429; 0 = a default */
    const char *dialect;    /* who served it; NULL = nobody */
    struct buf body;
    struct json_object *json; /* the parsed body, once somebody asked for it */
    size_t json_bytes;        /* bytes that the tree takes from the budget */
    struct request_note note;
    const char *failure; /* why the request was refused, in plain words; NULL: it was not */
    uint64_t started_ms;
    /* unix time at which the caller's session ends; 0: there is none, or it is not known here */
    uint64_t until_s;
};

/* Fails with COVE_INVALID when the path or query is not decodable; the request is still fit for an
 * error reply. */
int request_init(struct request *req, char **params, struct cove_err *e);
void request_done(struct request *req);

/* Frees what a client can make large (body, JSON), and gives back the budget that it took. */
void request_release(struct request *req);

/* Reads the body. COVE_TOO_LARGE: it has more than `max` bytes. */
int request_read_body(struct request *req, size_t max, struct cove_err *e);

/* Reads the JSON body into a struct by its table (cove/json.h). The body is parsed only once. */
int request_json(struct request *req, const struct json_field *fields, void *out,
                 struct cove_err *e);

/* A FastCGI parameter or "" when there is none: request_param(req, "HTTP_ORIGIN"). */
const char *request_param(const struct request *req, const char *name);
const char *request_query(const struct request *req, const char *name); /* NULL = not given */
/* Reads a cookie by its name. False: there is none, it does not fit, or there are two. A program in a sandbox can set
 * a cookie for all host names of this site, so nobody could tell which of two is ours. */
bool request_cookie(const struct request *req, const char *name, char *ret, size_t size);
const char *request_capture(const struct request *req,
                            const char *name); /* never NULL for a {name} of the route */

/* Decodes %XX in `len` bytes; the result lies in the arena. With `plus`, '+' is a blank. NULL: there is a bad escape
 * or a NUL in the text. */
char *http_decode(struct arena *a, const char *text, size_t len, int plus);

/* The names of a set of methods, as in "GET, POST". */
const char *http_method_list(struct arena *a, unsigned methods);

#endif
