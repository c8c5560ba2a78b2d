/* fcgi/dialects/execute*.c: what a body must hold, and what is answered before any sandbox is
 * touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/config.h"
#include "fcgi/core.h"
#include "fcgi/dialects/dialects.h"
#include "fcgi/dialects/execute.h"
#include "process/policy_live.h"
#include "tests/unit/fcgi_request.h"

#define TEST_POLICY "[execute]\ndeny rm-rf words /^rm -rf/ \"no\"\n"

static struct cove_config test_config(void)
{
    struct cove_config config;

    config_default(&config);
    config.commands_max = 3;
    config.command_max_bytes = 20;
    return config;
}

/* ------------------------------------------------------------------ the body */

#define COMMANDS "\"commands\":[\"true\"]"

static const struct {
    const char *body, *message, *because; /* message NULL: fine */
} bodies[] = {
    { "{\"projectId\":\"p1\"," COMMANDS "}", NULL, "the least there can be" },
    { "{\"projectId\":\"Projekt \xc3\xa4 1\"," COMMANDS "}", NULL, "any printable name" },
    { "{" COMMANDS "}", "projectId: is missing", "whose sandbox?" },
    { "{\"projectId\":1," COMMANDS "}", "projectId: must be a string", "a number" },
    { "{\"projectId\":\"\"," COMMANDS "}", "projectId: must not be empty", "empty" },
    { "{\"projectId\":\".\"," COMMANDS "}", "projectId: must not be '.' or '..'", "a path's word" },
    { "{\"projectId\":\"..\"," COMMANDS "}", "projectId: must not be '.' or '..'", "another" },
    { "{\"projectId\":\"a/b\"," COMMANDS "}", "projectId: must not contain '/'", "a path" },
    { "{\"projectId\":\"a\\\\b\"," COMMANDS "}", "projectId: must not contain '\\'", "a path too" },
    { "{\"projectId\":\"a\\nb\"," COMMANDS "}", "projectId: must not contain control characters",
      "a line feed" },
    { "{\"projectId\":\"\\u0085\"," COMMANDS "}", "projectId: must not contain control characters",
      "a control of the second page" },
    { "{\"projectId\":\"a\\u0000\"," COMMANDS "}", "projectId: must not contain a NUL character",
      "NUL" },
    { "{\"projectId\":\"p\"}", "commands: is missing", "what to run?" },
    { "{\"projectId\":\"p\",\"commands\":\"ls\"}", "commands: must be an array of strings",
      "text" },
    { "{\"projectId\":\"p\",\"commands\":[]}", "commands: must not be empty", "nothing" },
    { "{\"projectId\":\"p\",\"commands\":[\"a\",\"b\",\"c\",4]}", "commands[3]: must be a string",
      "the fourth" },
    { "{\"projectId\":\"p\",\"commands\":[\"a\",\"b\",\"c\",\"d\"]}",
      "commands: 4 entries are more than 3", "a configured limit" },
    { "{\"projectId\":\"p\",\"commands\":[\"a\",\"123456789012345678901\"]}",
      "commands[1]: 21 bytes are more than 20", "a configured limit" },
    { "{\"projectId\":\"p\"," COMMANDS ",\"stopOnError\":\"yes\"}",
      "stopOnError: must be true or false", "a word" },
    { "{\"projectId\":\"p\"," COMMANDS ",\"timeout\":0}", "timeout: 0 is below 1", "no time" },
    { "{\"projectId\":\"p\"," COMMANDS ",\"cwd\":\"src\"}", "cwd: must begin with '/'",
      "relative" },
    { "{\"projectId\":\"p\"," COMMANDS ",\"env\":{\"A_1\":\"x=y\"}}", NULL,
      "a value may hold '='" },
    { "{\"projectId\":\"p\"," COMMANDS ",\"env\":{\"1A\":\"\"}}",
      "env: '1A' is not a name of letters, digits and '_'", "begins with a digit" },
    { "{\"projectId\":\"p\"," COMMANDS ",\"env\":{\"A=B\":\"\"}}",
      "env: 'A=B' is not a name of letters, digits and '_'", "a '=' would hide another" },
    { "{\"projectId\":\"p\"," COMMANDS ",\"env\":{\"\":\"\"}}",
      "env: '' is not a name of letters, digits and '_'", "no name" },
    { "{\"projectId\":\"p\"," COMMANDS ",\"env\":{\"A\":1}}", "env.A: must be a string",
      "a number" },
};

static void the_body_is_checked_field_by_field(void **state)
{
    struct cove_config config = test_config();

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
        struct fake_request f;
        struct execute_args args = { 0 };
        struct cove_err e = { 0 };
        int rc;

        fake_init(&f, "POST", "/execute", NULL, &e);
        fake_body(&f, bodies[i].body, strlen(bodies[i].body));
        rc = execute_decode(&f.req, &config, &args, &e);
        if ((rc == 0) != (bodies[i].message == NULL) ||
            (rc < 0 && strcmp(e.msg, bodies[i].message) != 0))
            fail_msg("%s: %d '%s'", bodies[i].because, rc, e.msg);
        request_done(&f.req);
    }
}

static void a_project_name_has_at_most_128_bytes(void **state)
{
    (void)state;
    for (int extra = 0; extra <= 1; extra++) {
        struct cove_config config = test_config();
        struct fake_request f;
        struct execute_args args = { 0 };
        struct cove_err e = { 0 };

        fake_init(&f, "POST", "/execute", NULL, &e);
        f.req.body.max = 1000;
        buf_addf(&f.req.body, "{\"projectId\":\"%0*d\"," COMMANDS "}", 128 + extra, 0);
        assert_int_equal(execute_decode(&f.req, &config, &args, &e), extra ? -1 : 0);
        request_done(&f.req);
    }
}

static void env_becomes_strings_for_the_command(void **state)
{
    static const char body[] =
        "{\"projectId\":\"p\"," COMMANDS ",\"env\":{\"A\":\"1\",\"B\":\"x y\"}}";
    struct cove_config config = test_config();
    struct fake_request f;
    struct execute_args args = { 0 };
    struct cove_err e;

    (void)state;
    fake_init(&f, "POST", "/execute", NULL, &e);
    fake_body(&f, body, strlen(body));
    assert_int_equal(execute_decode(&f.req, &config, &args, &e), 0);
    assert_string_equal(args.env_strings[0], "A=1");
    assert_string_equal(args.env_strings[1], "B=x y");
    assert_null(args.env_strings[2]);
    request_done(&f.req);
}

/* ------------------------------------------------------------------ replies that need no sandbox */

static uint32_t same_generation(const struct state *state)
{
    (void)state;
    return 1;
}

struct server { /* a core whose policy knows one rule, and whose keeper is nowhere */
    struct cove_config config;
    struct live_kind kind;
    struct live policy;
    struct core core;
    struct router router;
    char dir[32];
};

static void server_init(struct server *s, const char *policy)
{
    char path[64];
    FILE *f;

    memset(s, 0, sizeof(*s));
    strcpy(s->dir, "/tmp/cove-exec-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(path, sizeof(path), "%s/policy", s->dir);
    if (policy) {
        f = fopen(path, "w");
        assert_non_null(f);
        fputs(policy, f);
        fclose(f);
    }
    s->config = test_config();
    s->kind = policy_kind;
    s->kind.generation = same_generation;
    live_init(&s->policy, &s->kind, NULL, s->dir, "policy");
    s->core = (struct core){ .config = &s->config, .policy = &s->policy };
    s->router = (struct router){ .dialects = all_dialects, .cors_origins = "*", .slots.free = 1 };
    unlink(path);
}

static void server_done(struct server *s)
{
    live_done(&s->policy);
    rmdir(s->dir);
}

static void serve(struct server *s, const char *path, const char *body, struct reply *rep)
{
    struct fake_request f;
    struct cove_err e;

    assert_int_equal(fake_init(&f, "POST", path, NULL, &e), 0);
    fake_body(&f, body, strlen(body));
    f.req.core = &s->core;
    reply_init(rep, 100000);
    router_serve(&s->router, &f.req, rep);
    request_done(&f.req);
}

static const struct {
    const char *path, *body;
    int status;
    const char *reply, *because;
} replies[] = {
    { "/execute", "{\"projectId\":\"p\",\"commands\":[\"true\",\"rm -rf /\"]}", 400,
      "{\"success\":false,\"error\":\"🚨 Forbidden command detected: \\\"rm -rf /\\\". This "
      "operation "
      "is not allowed for security reasons.\",\"exitCode\":1,\"rule\":\"rm-rf\"",
      "judged before the first one runs" },
    { "/execute", "", 400,
      "{\"success\":false,\"error\":\"body: empty, a JSON object is expected\",\"exitCode\":1}",
      "the dialect's shape of an error" },
    { "/", "{\"action\":\"explode\"}", 404,
      "{\"success\":false,\"error\":\"action: 'explode' is none of execute, cleanup, extend\","
      "\"exitCode\":1}",
      "unknown action" },
    { "/worker", "{\"projectId\":\"p\"}", 400,
      "{\"success\":false,\"error\":\"action: is missing\",\"exitCode\":1}", "no action" },
    { "/worker", "{\"action\":\"execute\",\"projectId\":\"p\"}", 400,
      "{\"success\":false,\"error\":\"commands: is missing\",\"exitCode\":1}", "by action" },
    { "/x/execute", "{\"action\":\"cleanup\",\"projectId\":\"p\"}", 400,
      "{\"success\":false,\"error\":\"commands: is missing\",\"exitCode\":1}",
      "the path wins over the action" },
};

static void replies_have_the_documented_shape(void **state)
{
    struct server s;

    (void)state;
    server_init(&s, TEST_POLICY);
    for (size_t i = 0; i < ARRAY_SIZE(replies); i++) {
        struct reply rep;

        serve(&s, replies[i].path, replies[i].body, &rep);
        if (rep.status != replies[i].status ||
            strncmp(rep.body.data, replies[i].reply, strlen(replies[i].reply)) != 0)
            fail_msg("%s: %d %s", replies[i].because, rep.status, rep.body.data);
        reply_done(&rep);
    }
    server_done(&s);
}

static void without_a_policy_nothing_runs(void **state)
{
    struct server s;
    struct reply rep;

    (void)state;
    server_init(&s, NULL);
    serve(&s, "/execute", "{\"projectId\":\"p\",\"commands\":[\"true\"]}", &rep);
    assert_int_equal(rep.status, 503);
    assert_string_equal(rep.headers[rep.header_count - 1].name, "Retry-After");
    reply_done(&rep);
    server_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_body_is_checked_field_by_field),
        cmocka_unit_test(a_project_name_has_at_most_128_bytes),
        cmocka_unit_test(env_becomes_strings_for_the_command),
        cmocka_unit_test(replies_have_the_documented_shape),
        cmocka_unit_test(without_a_policy_nothing_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
