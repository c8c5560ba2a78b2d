/* fcgi/http.c, router.c, cors.c, reply.c: from a request line to a row of a table, and back as a
 * head. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcgi/dialects/dialects.h"
#include "fcgi/router.h"
#include "tests/unit/fcgi_request.h"

/* ------------------------------------------------------------------ paths and queries */

static const struct {
    const char *uri, *segments; /* joined by '|'; NULL: refused */
    const char *because;
} paths[] = {
    { "/", "", "the root has no segment" },
    { "/execute", "execute", "one" },
    { "/a/b%20c", "a|b c", "decoded" },
    { "/a%2Fb", "a/b", "an escaped slash stays inside its segment" },
    { "/a/", "a|", "a slash at the end makes an empty one" },
    { "//a", "|a", "so do two in a row" },
    { "/a+b", "a+b", "plus is plus in a path" },
    { "/%c3%A9", "\xc3\xa9", "either case of hex digits" },
    { "/a%252F", "a%2F", "decoded once, not twice" },
    { "/a?x=/b", "a", "the query is no path" },
    { "/..%2f..", "../..", "dots are text here: no path of ours is made of them" },
    { "/%00", NULL, "NUL" },
    { "/%", NULL, "cut short" },
    { "/%4", NULL, "cut short" },
    { "/%zz", NULL, "not hex" },
    { "", NULL, "nothing" },
    { "x", NULL, "no slash" },
};

static void paths_are_decoded_segment_by_segment(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct fake_request f;
        struct cove_err e;
        char got[200] = "";
        int rc = fake_init(&f, "GET", paths[i].uri, NULL, &e);

        for (size_t s = 0; rc == 0 && s < f.req.segment_count; s++)
            snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", s ? "|" : "",
                     f.req.segments[s]);
        if ((rc == 0) != (paths[i].segments != NULL) ||
            (rc == 0 && strcmp(got, paths[i].segments) != 0))
            fail_msg("'%s' (%s): %d '%s'", paths[i].uri, paths[i].because, rc, got);
        request_done(&f.req);
    }
}

static void a_path_of_too_many_segments_is_refused(void **state)
{
    char uri[2 * SEGMENTS_MAX + 3] = "";
    struct fake_request f;
    struct cove_err e;

    (void)state;
    for (int i = 0; i <= SEGMENTS_MAX; i++)
        strcat(uri, "/a");
    assert_int_equal(fake_init(&f, "GET", uri, NULL, &e), -1);
    assert_int_equal(e.code, COVE_INVALID);
    request_done(&f.req);
}

static void queries_are_decoded(void **state)
{
    struct fake_request f;
    struct cove_err e;

    (void)state;
    assert_int_equal(fake_init(&f, "GET", "/?a=1+2&b=%26&c&=x&a=3", NULL, &e), 0);
    assert_string_equal(request_query(&f.req, "a"), "1 2");
    assert_string_equal(request_query(&f.req, "b"), "&");
    assert_string_equal(request_query(&f.req, "c"), "");
    assert_null(request_query(&f.req, "d"));
    request_done(&f.req);
    assert_int_equal(fake_init(&f, "GET", "/?a=%0", NULL, &e), -1);
    assert_string_equal(e.msg, "query: a bad % escape");
    request_done(&f.req);
}

static void only_a_clean_request_id_is_taken_over(void **state)
{
    struct fake_request f;
    struct cove_err e;

    (void)state;
    fake_init(&f, "GET", "/", "COVE_REQUEST_ID=0123abc", &e);
    assert_string_equal(f.req.request_id, "0123abc");
    request_done(&f.req);
    fake_init(&f, "GET", "/", "COVE_REQUEST_ID=a\r\nSet-Cookie: x", &e);
    assert_int_equal(strlen(f.req.request_id), 20);
    request_done(&f.req);
}

/* ------------------------------------------------------------------ headers */

static const struct {
    const char *params[4];
    const char *refused; /* the header that is named, or NULL */
    const char *because;
} repeated[] = {
    { { "HTTP_X_API_KEY=a", "HTTP_HOST=h" }, NULL, "each once" },
    { { "HTTP_X_API_KEY=a", "HTTP_HOST=h", "HTTP_X_API_KEY=b" },
      "X_API_KEY",
      "X-API-Key and X_API_KEY, or one of them twice" },
    { { "HTTP_X_API_KEY=a", "HTTP_X_API_KEY=a" }, "X_API_KEY", "the same value, too" },
    { { "HTTP_X_API=a", "HTTP_X_API_KEY=a" }, NULL, "one name begins with the other" },
    { { "HTTP_X=1", "HTTP_X2=1", "HTTP_X=2" }, "X", "another name sorts between them" },
    { { "HTTP_X_METADATA_A_B=1", "HTTP_X_METADATA_A_B=2" }, "X_METADATA_A_B", "any name" },
    { { "HTTP_ACCEPT=a", "HTTP_ACCEPT=b" }, NULL, "a list" },
    { { "HTTP_X_FORWARDED_FOR=a", "HTTP_X_FORWARDED_FOR=b" }, NULL, "proxies add lines" },
    { { "HTTP_X_FORWARDED_FOR=", "HTTP_X_FORWARDED_FOR=b" },
      "X_FORWARDED_FOR",
      "an empty line hides the other" },
    { { "COVE_PORT=1", "COVE_PORT=2" }, NULL, "only headers are a client's" },
};

static void a_header_that_comes_twice_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(repeated); i++) {
        char *params[6] = { (char *)"REQUEST_URI=/" };
        char wanted[60] = "";
        struct request req;
        struct cove_err e = { 0 };
        int rc;

        for (size_t n = 0; n < 4 && repeated[i].params[n]; n++)
            params[n + 1] = (char *)repeated[i].params[n];
        rc = request_init(&req, params, &e);
        if (repeated[i].refused)
            snprintf(wanted, sizeof(wanted), "header %s: comes twice", repeated[i].refused);
        if ((rc < 0) != (repeated[i].refused != NULL) || (rc < 0 && strcmp(e.msg, wanted) != 0))
            fail_msg("%s: %d '%s'", repeated[i].because, rc, rc < 0 ? e.msg : "");
        request_done(&req);
    }
}

/* ------------------------------------------------------------------ matching */

static int handle(struct request *req, struct reply *rep, struct cove_err *e)
{
    (void)req;
    (void)e;
    return buf_add_str(&rep->body, "{}");
}

static int handle_badly(struct request *req, struct reply *rep, struct cove_err *e)
{
    (void)req;
    buf_add_str(&rep->body, "{\"half\":");
    return cove_fail(e, COVE_CONFLICT, "no");
}

static const struct route pet_routes[] = {
    { POST, "/create", handle, 0 },        { GET, "/{id}/status", handle, 0 },
    { GET, "/open", handle, ROUTE_OPEN },  { DELETE, "/{id}", handle, 0 },
    { POST, "/long", handle, ROUTE_LONG }, { POST, "/bad", handle_badly, 0 },
};

static const struct dialect pets = {
    .name = "pets",
    .base = "/api/pets",
    .routes = pet_routes,
    .route_count = ARRAY_SIZE(pet_routes),
    .on_error = reply_plain_error,
};

static const struct dialect *const dialects[] = { &pets, &health_dialect, &execute_dialect, NULL };

static const struct {
    const char *method, *path;
    const char *dialect; /* NULL: nobody's */
    const char *pattern; /* NULL: wrong method */
    const char *allow, *because;
} routes[] = {
    { "POST", "/api/pets/create", "pets", "/create", NULL, "a base and a word" },
    { "GET", "/api/pets/x/status", "pets", "/{id}/status", NULL, "a name in between" },
    { "HEAD", "/api/pets/x/status", "pets", "/{id}/status", NULL, "HEAD goes with GET" },
    { "DELETE", "/api/pets/create", "pets", "/{id}", NULL, "a later row with the right method" },
    { "GET", "/api/pets/create", "pets", NULL, "POST, DELETE, OPTIONS", "none has it" },
    { "DELETE", "/api/pets/", NULL, NULL, NULL, "an empty name is none" },
    { "GET", "/api/pets", NULL, NULL, NULL, "the base alone" },
    { "GET", "/api", NULL, NULL, NULL, "less than the base" },
    { "GET", "/health", "health", "/health", NULL, "open to all" },
    { "POST", "/execute", "execute", "/**/execute", NULL, "no prefix" },
    { "POST", "/workers/e2b-worker/execute", "execute", "/**/execute", NULL, "a long prefix" },
    { "POST", "/execute/execute", "execute", "/**/execute", NULL, "the last one counts" },
    { "POST", "/x/cleanup", "execute", "/**/cleanup", NULL, "cleanup likewise" },
    { "POST", "/", "execute", "/", NULL, "by action" },
    { "POST", "/worker", "execute", "/worker", NULL, "by action" },
    { "POST", "/x/worker", NULL, NULL, NULL, "which takes no prefix" },
    { "POST", "/xexecute", NULL, NULL, NULL, "a segment, not a suffix" },
    { "POST", "/execute/", NULL, NULL, NULL, "ends in nothing" },
    { "GET", "/execute", "execute", NULL, "POST, OPTIONS", "405" },
    { "BREW", "/execute", "execute", NULL, "POST, OPTIONS", "a method nobody knows" },
    { "POST", "/nowhere", NULL, NULL, NULL, "404" },
};

static void the_table_decides(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        struct fake_request f;
        struct route_match m;
        struct cove_err e;

        fake_init(&f, routes[i].method, routes[i].path, NULL, &e);
        router_match(dialects, &f.req, &m);
        if ((m.dialect != NULL) != (routes[i].dialect != NULL) ||
            (m.dialect && strcmp(m.dialect->name, routes[i].dialect) != 0))
            fail_msg("%s %s (%s): wrong dialect", routes[i].method, routes[i].path,
                     routes[i].because);
        if ((m.route != NULL) != (routes[i].pattern != NULL) ||
            (m.route && strcmp(m.route->pattern, routes[i].pattern) != 0))
            fail_msg("%s %s (%s): wrong row", routes[i].method, routes[i].path, routes[i].because);
        if (routes[i].allow)
            assert_string_equal(http_method_list(&f.req.arena, m.allowed), routes[i].allow);
        request_done(&f.req);
    }
}

static void names_in_a_pattern_are_captured(void **state)
{
    struct fake_request f;
    struct route_match m;
    struct cove_err e;

    (void)state;
    fake_init(&f, "GET", "/api/pets/a%2Fb/status", NULL, &e);
    router_match(dialects, &f.req, &m);
    assert_string_equal(request_capture(&f.req, "id"), "a/b");
    request_done(&f.req);
}

/* ------------------------------------------------------------------ serving */

static struct router test_router(int long_left)
{
    return (struct router){
        .dialects = dialects,
        .cors_origins = "https://a.example https://b.example",
        .body_max = 1000,
        .slots.free = long_left,
    };
}

static const struct {
    const char *method, *path, *extra;
    int long_left, status;
    const char *head, *body; /* parts of them, or NULL */
    const char *because;
} served[] = {
    { "POST", "/api/pets/create", NULL, 1, 200, "Content-Length: 2\r\n", "{}", "plain" },
    { "POST", "/nowhere", NULL, 1, 404, "application/json",
      "{\"code\":404,\"message\":\"no such path: /nowhere\",\"error\":\"no such path: /nowhere\"}",
      "JSON even here, with the fields of every dialect" },
    { "GET", "/execute", NULL, 1, 405, "Allow: POST, OPTIONS\r\n",
      "{\"success\":false,\"error\":\"method GET is not allowed here, use POST, OPTIONS\","
      "\"exitCode\":1}",
      "in the dialect's own shape" },
    { "OPTIONS", "/execute", "HTTP_ORIGIN=https://b.example", 1, 200,
      "Access-Control-Allow-Origin: https://b.example\r\n", NULL, "a preflight" },
    { "OPTIONS", "/execute", "HTTP_ORIGIN=https://b.example", 1, 200,
      "Access-Control-Allow-Methods: POST, OPTIONS\r\n", NULL, "says the methods" },
    { "POST", "/nowhere", "HTTP_ORIGIN=https://a.example", 1, 404,
      "Access-Control-Allow-Origin: https://a.example\r\n", NULL, "errors carry CORS too" },
    { "POST", "/api/pets/long", NULL, 1, 200, NULL, "{}", "a long one while there is room" },
    { "POST", "/api/pets/long", NULL, 0, 503, "Retry-After: 1\r\n", "the server is full",
      "and when there is none" },
    { "GET", "/api/pets/open", NULL, 0, 200, NULL, "{}", "a short one always finds a thread" },
    { "POST", "/api/pets/bad", NULL, 1, 409, NULL, "{\"error\":\"no\"}",
      "nothing is left of a half-written body" },
    { "POST", "/api/pets/create", "COVE_TENANT=", 1, 200, NULL, "{}",
      "the first parameter counts" },
};

static void requests_are_answered_as_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(served); i++) {
        struct router router = test_router(served[i].long_left);
        struct fake_request f;
        struct reply rep;
        struct buf head;
        struct cove_err e;

        fake_init(&f, served[i].method, served[i].path, served[i].extra, &e);
        reply_init(&rep, 10000);
        buf_init(&head, 10000);
        router_serve(&router, &f.req, &rep);
        reply_head(&rep, &f.req, &head);
        if (rep.status != served[i].status || router.slots.free != served[i].long_left ||
            (served[i].head && !strstr(head.data, served[i].head)) ||
            (served[i].body && !strstr(rep.body.data, served[i].body)))
            fail_msg("%s %s (%s): %s%s", served[i].method, served[i].path, served[i].because,
                     head.data, rep.body.data);
        buf_done(&head);
        reply_done(&rep);
        request_done(&f.req);
    }
}

static void without_a_tenant_only_open_routes_answer(void **state)
{
    struct router router = test_router(1);
    static const struct {
        const char *method, *path;
        int status;
    } cases[] = {
        { "POST", "/api/pets/create", 401 }, { "POST", "/execute", 401 },
        { "GET", "/api/pets/open", 200 },    { "GET", "/health", 200 },
        { "OPTIONS", "/execute", 200 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_request f;
        struct reply rep;
        struct cove_err e;

        fake_init(&f, cases[i].method, cases[i].path, NULL, &e);
        f.req.tenant = "";
        reply_init(&rep, 10000);
        router_serve(&router, &f.req, &rep);
        assert_int_equal(rep.status, cases[i].status);
        reply_done(&rep);
        request_done(&f.req);
    }
}

/* Before a request comes to its row it can be refused, too: because of its caller, its path or its headers. */
static void a_refusal_has_the_shape_of_the_dialect_whose_path_it_is(void **state)
{
    static const struct {
        const char *path, *body;
    } cases[] = {
        { "/execute", "{\"success\":false,\"error\":\"full\"" },
        { "/api/pets/create", "{\"error\":\"full\"}" },
        { "/nowhere", "{\"code\":503,\"message\":\"full\",\"error\":\"full\"}" },
    };
    struct router router = test_router(1);

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_request f;
        struct reply rep;
        struct cove_err e;

        fake_init(&f, "POST", cases[i].path, NULL, &e);
        reply_init(&rep, 10000);
        cove_fail(&e, COVE_BUSY, "full");
        router_refuse(&router, &f.req, &rep, &e);
        assert_int_equal(rep.status, 503);
        if (!strstr(rep.body.data, cases[i].body))
            fail_msg("%s: %s", cases[i].path, rep.body.data);
        reply_done(&rep);
        request_done(&f.req);
    }
}

/* ------------------------------------------------------------------ CORS */

static const struct {
    const char *origins, *origin, *want; /* want NULL: no header */
    const char *because;
} origins[] = {
    { "*", "https://any.example", "*", "any" },
    { "*", "", "*", "any, even when none is said" },
    { "https://a.example", "https://a.example", "https://a.example", "listed" },
    { "https://x.example https://a.example", "https://a.example", "https://a.example", "second" },
    { "https://a.example", "https://a.example.evil.example", NULL, "longer is another" },
    { "https://a.example", "https://a.exampl", NULL, "shorter too" },
    { "", "https://a.example", NULL, "none configured" },
    { "https://a.example", "", NULL, "none said" },
};

static void only_configured_origins_may_read_replies(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(origins); i++) {
        char origin[100];
        struct fake_request f;
        struct reply rep;
        struct cove_err e;
        const char *got = NULL;

        snprintf(origin, sizeof(origin), "HTTP_ORIGIN=%s", origins[i].origin);
        fake_init(&f, "POST", "/", origin, &e);
        reply_init(&rep, 100);
        cors_apply(&(struct router){ .cors_origins = origins[i].origins }, &f.req, &rep, 0);
        for (size_t h = 0; h < rep.header_count; h++)
            if (strcmp(rep.headers[h].name, "Access-Control-Allow-Origin") == 0)
                got = rep.headers[h].value;
        if ((got != NULL) != (origins[i].want != NULL) ||
            (got && strcmp(got, origins[i].want) != 0))
            fail_msg("%s: got %s", origins[i].because, got ? got : "nothing");
        reply_done(&rep);
        request_done(&f.req);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_decoded_segment_by_segment),
        cmocka_unit_test(a_path_of_too_many_segments_is_refused),
        cmocka_unit_test(queries_are_decoded),
        cmocka_unit_test(only_a_clean_request_id_is_taken_over),
        cmocka_unit_test(a_header_that_comes_twice_is_refused),
        cmocka_unit_test(the_table_decides),
        cmocka_unit_test(names_in_a_pattern_are_captured),
        cmocka_unit_test(requests_are_answered_as_the_table_says),
        cmocka_unit_test(without_a_tenant_only_open_routes_answer),
        cmocka_unit_test(a_refusal_has_the_shape_of_the_dialect_whose_path_it_is),
        cmocka_unit_test(only_configured_origins_may_read_replies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
