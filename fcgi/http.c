/* Requests: from FastCGI parameters to a decoded path, a query and a body. */
#include "fcgi/http.h"

#include <ctype.h>
#include <fcgiapp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cove/json.h"
#include "cove/which.h"

static const struct {
    const char *name;
    enum method method;
} methods[] = {
    /* in the order of an Allow header */
    { "GET", GET },     { "HEAD", HEAD },     { "POST", POST },       { "PUT", PUT },
    { "PATCH", PATCH }, { "DELETE", DELETE }, { "OPTIONS", OPTIONS },
};

static unsigned http_method(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        if (strcmp(methods[i].name, name) == 0)
            return methods[i].method;
    return 0;
}

const char *http_method_list(struct arena *a, unsigned set)
{
    const char *list = "";

    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        if (set & methods[i].method)
            list = arena_printf(a, "%s%s%s", list, *list ? ", " : "", methods[i].name);
    return list;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *http_decode(struct arena *a, const char *text, size_t len, int plus)
{
    char *out = arena_alloc(a, len + 1);
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        int high, low;

        if (text[i] != '%') {
            out[n++] = plus && text[i] == '+' ? ' ' : text[i];
            continue;
        }
        if (len - i < 3 || (high = hex_digit(text[i + 1])) < 0 ||
            (low = hex_digit(text[i + 2])) < 0 || high + low == 0)
            return NULL;
        out[n++] = (char)(high << 4 | low);
        i += 2;
    }
    out[n] = '\0';
    return out;
}

/* Each segment is decoded by itself, so an escaped slash never makes a new one. */
static int split_path(struct request *req, const char *path, size_t len, struct cove_err *e)
{
    const char *end = path + len;

    if (len == 0 || *path != '/')
        return cove_fail(e, COVE_INVALID, "path: must begin with '/'");
    req->segments = arena_alloc(&req->arena, SEGMENTS_MAX * sizeof(*req->segments));
    if (len == 1)
        return 0;
    while (path < end) {
        const char *start = path + 1;
        const char *stop = memchr(start, '/', (size_t)(end - start));
        char *segment;

        stop = stop ? stop : end;
        if (req->segment_count == SEGMENTS_MAX)
            return cove_fail(e, COVE_INVALID, "path: more than %d segments", SEGMENTS_MAX);
        segment = http_decode(&req->arena, start, (size_t)(stop - start), 0);
        if (!segment)
            return cove_fail(e, COVE_INVALID, "path: a bad %% escape");
        req->segments[req->segment_count++] = segment;
        path = stop;
    }
    return 0;
}

static int split_query(struct request *req, const char *query, struct cove_err *e)
{
    if (*query)
        req->query = arena_alloc(&req->arena, QUERY_MAX * sizeof(*req->query));
    while (*query) {
        size_t len = strcspn(query, "&");
        const char *equals = memchr(query, '=', len);
        size_t name_len = equals ? (size_t)(equals - query) : len;
        struct pair p = {
            .name = http_decode(&req->arena, query, name_len, 1),
            .value = equals ? http_decode(&req->arena, equals + 1, len - name_len - 1, 1) : "",
        };

        if (!p.name || !p.value)
            return cove_fail(e, COVE_INVALID, "query: a bad %% escape");
        if (req->query_count == QUERY_MAX)
            return cove_fail(e, COVE_INVALID, "query: more than %d parameters", QUERY_MAX);
        req->query[req->query_count++] = p;
        query += len + (query[len] == '&');
    }
    return 0;
}

/* nginx makes the id; what does not look like one could break a header or a log line. */
static const char *clean_request_id(struct request *req)
{
    const char *id = request_param(req, "COVE_REQUEST_ID");
    size_t len = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    char *fresh;

    if (len > 0 && len <= 64 && id[len] == '\0')
        return arena_strdup(&req->arena, id);
    fresh = arena_alloc(&req->arena, COVE_ID_LEN + 1);
    text_new_id(fresh);
    return fresh;
}

/* Reads `len` characters as a number; -1: they are not one to five digits. */
static int port_of(const char *text, size_t len)
{
    int port = 0;

    if (len == 0 || len > 5 || strspn(text, "0123456789") < len)
        return -1;
    for (size_t i = 0; i < len; i++)
        port = port * 10 + (text[i] - '0');
    return port;
}

/* Splits PORT-ID or WORD-ID-PORT. Whether the part in the id's place is an id is not checked here. */
static void split_host(struct request *req, const char *label)
{
    const char *first = strchr(label, '-'), *last = strrchr(label, '-');
    const char *id;
    int port;

    if (!first || !first[1])
        return;
    port = port_of(label, (size_t)(first - label));
    if (port >= 0) {
        req->host_port = (unsigned)port;
        req->host_box = first + 1;
        return;
    }
    id = arena_strndup(&req->arena, label, (size_t)(last - label));
    port = port_of(last + 1, strlen(last + 1));
    if (port >= 0 && which_id(id)) {
        req->host_port = (unsigned)port;
        req->host_box = which_id(id);
    }
}

/* The site's own name is no sandbox's, even if it looks like one. */
static void read_host(struct request *req)
{
    const char *host = request_param(req, "HTTP_HOST"), *domain = request_param(req, "COVE_DOMAIN");
    size_t len = strcspn(host, ":");
    char *label;

    if (strlen(domain) == len && strncasecmp(host, domain, len) == 0)
        return;
    label = arena_strndup(&req->arena, host, strcspn(host, ".:"));
    for (char *c = label; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    split_host(req, label);
}

/* ------------------------------------------------------------------ headers that come twice */

/* Headers whose value is a list, which HTTP allows in several lines: proxies add lines of their own to some of them. */
static const char *const list_headers[] = {
    "HTTP_ACCEPT",           "HTTP_ACCEPT_CHARSET",
    "HTTP_ACCEPT_ENCODING",  "HTTP_ACCEPT_LANGUAGE",
    "HTTP_BAGGAGE",          "HTTP_CACHE_CONTROL",
    "HTTP_CONNECTION",       "HTTP_FORWARDED",
    "HTTP_IF_MATCH",         "HTTP_IF_NONE_MATCH",
    "HTTP_PREFER",           "HTTP_TE",
    "HTTP_TRACESTATE",       "HTTP_VIA",
    "HTTP_X_FORWARDED_FOR",  "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT", "HTTP_X_FORWARDED_PROTO",
};

static bool same_name(const char *a, const char *b)
{
    size_t len = strcspn(a, "=");

    return strcspn(b, "=") == len && strncmp(a, b, len) == 0;
}

static bool is_list(const char *param)
{
    for (size_t i = 0; i < ARRAY_SIZE(list_headers); i++)
        if (same_name(list_headers[i], param))
            return true;
    return false;
}

/* A parameter with an empty value is "NAME=". */
static bool is_empty(const char *param)
{
    return param[strlen(param) - 1] == '=';
}

/* qsort()'s comparison of parameters by their names. '=' ends a name, and no name of a header contains it. */
static int compare_params(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    size_t x_len = strcspn(x, "=") + 1, y_len = strcspn(y, "=") + 1;

    return strncmp(x, y, x_len < y_len ? x_len : y_len);
}

/*
 * Refuses a header that comes twice. Whoever reads a header takes the first line of it, or the last: a request that one reader admits by
 * the first line and another serves by the last has smuggled something in. FastCGI writes '-' as '_', so X-API-Key and
 * X_API_KEY would be two lines of one header. Lists may be repeated, except with an empty line, which would hide the others.
 */
static int refuse_repeated(struct request *req, struct cove_err *e)
{
    size_t count = 0, n = 0;
    char **headers;

    for (char **p = req->params; *p; p++)
        count += strncmp(*p, "HTTP_", 5) == 0;
    headers = arena_alloc(&req->arena, (count + 1) * sizeof(*headers));
    for (char **p = req->params; *p; p++)
        if (strncmp(*p, "HTTP_", 5) == 0)
            headers[n++] = *p;
    qsort(headers, n, sizeof(*headers), compare_params);
    for (size_t i = 1; i < n; i++)
        if (same_name(headers[i - 1], headers[i]) &&
            (!is_list(headers[i]) || is_empty(headers[i - 1]) || is_empty(headers[i])))
            return cove_fail(e, COVE_INVALID, "header %.*s: comes twice",
                             (int)strcspn(headers[i] + 5, "="), headers[i] + 5);
    return 0;
}

int request_init(struct request *req, char **params, struct cove_err *e)
{
    const char *uri;
    size_t len;

    *req = (struct request){ .params = params, .client_fd = -1, .started_ms = clock_boot_ms() };
    buf_init(&req->body, 0);
    /* Copies: the log line is written after FastCGI's parameters are gone. */
    req->method_name = arena_strdup(&req->arena, request_param(req, "REQUEST_METHOD"));
    req->method = http_method(req->method_name);
    req->tenant = arena_strdup(&req->arena, request_param(req, "COVE_TENANT"));
    req->request_id = clean_request_id(req);
    read_host(req);
    uri = request_param(req, "REQUEST_URI");
    if (!*uri)
        uri = request_param(req, "DOCUMENT_URI");
    len = strcspn(uri, "?");
    req->path = arena_strndup(&req->arena, uri, len);
    if (split_path(req, uri, len, e) < 0 || split_query(req, uri + len + (uri[len] == '?'), e) < 0)
        return -1;
    return refuse_repeated(req, e);
}

void request_release(struct request *req)
{
    json_free(req->json);
    req->json = NULL;
    budget_give(req->body.budget, req->json_bytes);
    req->json_bytes = 0;
    buf_done(&req->body);
    arena_within(&req->arena, NULL); /* the arena, which holds the tenant's name, is freed next */
}

void request_done(struct request *req)
{
    request_release(req);
    arena_done(&req->arena);
}

static int body_too_large(size_t max, struct cove_err *e)
{
    char size[32];

    text_format_bytes(max, size);
    return cove_fail(e, COVE_TOO_LARGE, "body: larger than %s", size);
}

int request_read_body(struct request *req, size_t max, struct cove_err *e)
{
    const char *declared = request_param(req, "CONTENT_LENGTH");
    uint64_t want = 0;

    if (*declared && text_parse_u64(declared, &want, e) < 0)
        return cove_context(e, "Content-Length");
    if (want > max)
        return body_too_large(max, e);
    req->body.max = max;
    for (;;) {
        /* One byte more than was declared, so that the end is seen without another round of
         * growing. */
        size_t room = want > req->body.len ? want - req->body.len + 1 : 16 * 1024;
        char *at;
        int n;

        room = room > max - req->body.len ? max - req->body.len : room;
        if (room == 0)
            return FCGX_GetChar(req->in) < 0 ? 0 : body_too_large(max, e);
        at = buf_reserve(&req->body, room);
        if (!at)
            return cove_fail(e, COVE_BUSY,
                             "body: the server has no memory for it, try again in a second");
        n = FCGX_GetStr(at, (int)(room < 1 << 30 ? room : 1 << 30), req->in);
        req->body.len += n > 0 ? (size_t)n : 0;
        req->body.data[req->body.len] = '\0';
        if (n < (int)room)
            break;
    }
    if (FCGX_GetError(req->in) || req->body.len < want)
        return cove_fail(e, COVE_INVALID, "body: ended before its Content-Length");
    return 0;
}

static int parse_json(struct request *req, struct cove_err *e)
{
    size_t weight = req->body.data ? json_weight(req->body.data, req->body.len) : 0;

    if (!req->json_bytes && !budget_take(req->body.budget, weight))
        return cove_fail(e, COVE_BUSY,
                         "body: the server has no memory for it, try again in a second");
    req->json_bytes = weight;
    return json_parse(req->body.data, req->body.len, &req->json, e);
}

int request_json(struct request *req, const struct json_field *fields, void *out,
                 struct cove_err *e)
{
    if (!req->json && parse_json(req, e) < 0)
        return -1;
    if (json_read(&req->arena, req->json, fields, out, e) < 0)
        return -1;
    return req->arena.starved
               ? cove_fail(e, COVE_BUSY,
                           "body: the server has no memory for it, try again in a second")
               : 0;
}

const char *request_param(const struct request *req, const char *name)
{
    size_t len = strlen(name);

    for (char **p = req->params; *p; p++)
        if (strncmp(*p, name, len) == 0 && (*p)[len] == '=')
            return *p + len + 1;
    return "";
}

static const char *find_pair(const struct pair *pairs, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(pairs[i].name, name) == 0)
            return pairs[i].value;
    return NULL;
}

const char *request_query(const struct request *req, const char *name)
{
    return find_pair(req->query, req->query_count, name);
}

bool request_cookie(const struct request *req, const char *name, char *ret, size_t size)
{
    const char *at = request_param(req, "HTTP_COOKIE");
    size_t name_len = strlen(name), len;
    bool found = false;

    for (; *at; at += strcspn(at, ";"), at += strspn(at, "; ")) {
        if (strncmp(at, name, name_len) != 0 || at[name_len] != '=')
            continue;
        at += name_len + 1;
        len = strcspn(at, ";");
        if (found || len >= size)
            return false;
        memcpy(ret, at, len);
        ret[len] = '\0';
        found = true;
    }
    return found;
}

const char *request_capture(const struct request *req, const char *name)
{
    const char *value = find_pair(req->captures, req->capture_count, name);

    return value ? value : "";
}
