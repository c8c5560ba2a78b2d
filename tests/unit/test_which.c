/* sandbox/client/which.c and what builds on it: a sandbox has one answer to each of its names, and is
 * judged by its own template's rules whatever name it is called by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/dialect.h"
#include "cove/mem.h"
#include "cove/which.h"
#include "fcgi/core.h"
#include "fcgi/dialects/dialects.h"
#include "process/policy_live.h"
#include "tests/unit/fcgi_request.h"
#include "tests/unit/state_fixture.h"

#define PLAIN_ID  "aaaaaaaaaaaaaaaaaaaa"
#define STRICT_ID "bbbbbbbbbbbbbbbbbbbb"
#define AGED_ID   "cccccccccccccccccccc"
#define OTHER_ID  "dddddddddddddddddddd"
#define DEAD_ID   "eeeeeeeeeeeeeeeeeeee"

#define POLICY                                                                                     \
    "[template=base]\ndeny only-base words /^curl/ \"no\"\n"                                       \
    "[template=strict]\ndeny only-strict words /^git/ \"no\"\n"

static struct state *boxes;

static void add(uint32_t slot, uint32_t box_state, const char *tenant, const char *project,
                const char *template, const char *id)
{
    struct box_info info = { .state = box_state, .reuse_until_ms = UINT64_MAX };

    snprintf(info.id, sizeof(info.id), "%s", id);
    snprintf(info.tenant, sizeof(info.tenant), "%s", tenant);
    snprintf(info.project, sizeof(info.project), "%s", project);
    snprintf(info.template, sizeof(info.template), "%s", template);
    state_box_write(boxes, slot, &info);
}

static int setup(void **state)
{
    (void)state;
    if (state_fixture(8, &boxes) < 0)
        return -1;
    add(0, BOX_LIVE, "acme", "plain", "base", PLAIN_ID);
    add(1, BOX_LIVE, "acme", "strict", "strict", STRICT_ID);
    add(2, BOX_AGEING, "acme", "plain", "strict", AGED_ID);
    add(3, BOX_LIVE, "other", "plain", "base", OTHER_ID);
    add(4, BOX_DYING, "acme", "dead", "base", DEAD_ID);
    add(5, BOX_LIVE, "acme", DEAD_ID, "strict", "ffffffffffffffffffff");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    state_close(boxes);
    return 0;
}

/* ------------------------------------------------------------------ names */

static const struct {
    const char *tenant, *name, *id; /* id NULL: none */
    bool by_id;
    const char *because;
} names[] = {
    { "acme", "plain", PLAIN_ID, false, "a project's current sandbox" },
    { "acme", PLAIN_ID, PLAIN_ID, true, "the bare id" },
    { "acme", "sandbox_" PLAIN_ID, PLAIN_ID, true, "as execute shows it" },
    { "acme", "sandbox-" PLAIN_ID, PLAIN_ID, true, "as relay shows it" },
    { "acme", AGED_ID, AGED_ID, true, "by id an ageing one is found too" },
    { "other", "plain", OTHER_ID, false, "another tenant's project of the same name" },
    { "acme", OTHER_ID, NULL, false, "what is not the tenant's is not there" },
    { "acme", "nothing", NULL, false, "no such project" },
    { "acme", "dead", NULL, false, "it is being killed" },
    { "acme", "sandbox_" DEAD_ID, NULL, false, "the id of a dead one" },
    { "acme", DEAD_ID, "ffffffffffffffffffff", false, "a project may be called like an id" },
    { "acme", "sandbox_" PLAIN_ID "x", NULL, false, "longer than an id" },
    { "acme", "_" PLAIN_ID, NULL, false, "no word in front" },
    { "acme", "", NULL, false, "nothing" },
    { NULL, PLAIN_ID, PLAIN_ID, true, "whoever's it is" },
    { NULL, "plain", NULL, false, "a project is always some tenant's" },
};

static void every_name_has_one_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        enum which_where want = names[i].id ? WHICH_HERE : WHICH_NONE;
        struct which w;

        if (which_sandbox(boxes, names[i].tenant, names[i].name, &w) != want ||
            strcmp(w.box.id, names[i].id ? names[i].id : "") != 0 || w.by_id != names[i].by_id)
            fail_msg("%s: %d '%s'", names[i].because, w.where, w.box.id);
    }
}

static void where_only_an_id_will_do_a_project_is_not_meant(void **state)
{
    struct which w;

    (void)state;
    assert_int_equal(which_sandbox_id(boxes, "acme", "plain", &w), WHICH_NONE);
    assert_int_equal(which_sandbox_id(boxes, "acme", DEAD_ID, &w), WHICH_NONE);
    assert_int_equal(which_sandbox_id(boxes, "acme", PLAIN_ID, &w), WHICH_HERE);
}

/* ------------------------------------------------------------------ whose rules hold */

static uint32_t same_generation(const struct state *state)
{
    (void)state;
    return 1;
}

static const struct {
    const char *name, *command, *rule; /* rule NULL: it may run */
} judged[] = {
    { "plain", "curl x", "only-base" },
    { "plain", "git x", NULL },
    { PLAIN_ID, "curl x", "only-base" },
    { PLAIN_ID, "git x", NULL },
    { "strict", "git x", "only-strict" },
    { "strict", "curl x", NULL },
    { STRICT_ID, "git x", "only-strict" }, /* by id: judged by the default template's rules once */
    { STRICT_ID, "curl x", NULL },
    { "sandbox_" STRICT_ID, "git x", "only-strict" },
    { "sandbox-" STRICT_ID, "curl x", NULL },
    { AGED_ID, "git x", "only-strict" },
    { "nothing", "curl x", "only-base" }, /* the sandbox it will get is of the default template */
};

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void a_sandbox_is_judged_by_its_own_template_by_any_name(void **state)
{
    char dir[] = "/tmp/cove-which-XXXXXX", path[64];
    struct live_kind kind = policy_kind;
    struct cove_config config;
    struct live policy;
    struct core core;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/profiles", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    put_file(dir, "policy", POLICY);
    put_file(dir, "profiles/default.bpf", ""); /* only opened, never installed */
    config_default(&config);
    snprintf(config.template, sizeof(config.template), "base");
    config.audit_file[0] = '\0';
    kind.generation = same_generation;
    live_init(&policy, &kind, NULL, dir, "policy");
    core = (struct core){ .config = &config, .policy = &policy, .state = boxes };
    for (size_t i = 0; i < sizeof(judged) / sizeof(judged[0]); i++) {
        struct core_ask ask = { .dialect = DIALECT_EXECUTE,
                                .tenant = "acme",
                                .project = judged[i].name,
                                .commands = &judged[i].command,
                                .count = 1 };
        struct core_permit p = { 0 };
        struct cove_err e = { 0 };

        if (core_permit_get(&core, &ask, &p, &e) < 0)
            fail_msg("%s: %s", judged[i].name, e.msg);
        if ((p.forbidden != NULL) != (judged[i].rule != NULL) ||
            (p.forbidden && strcmp(p.verdict.rule, judged[i].rule) != 0))
            fail_msg("%s: %s", judged[i].name, judged[i].command);
        core_permit_put(&p);
    }
    live_done(&policy);
    snprintf(path, sizeof(path), "%s/profiles/default.bpf", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/profiles", dir);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/policy", dir);
    unlink(path);
    rmdir(dir);
}

/* ------------------------------------------------------------------ host names */

static const struct {
    const char *host, *box; /* box NULL: the site's own name */
    unsigned port;
} hosts[] = {
    { "8080-" PLAIN_ID ".cove.example", PLAIN_ID, 8080 },
    { "8080-AAAAAAAAAAAAAAAAAAAA.cove.example:443", PLAIN_ID, 8080 },
    { "1-" PLAIN_ID, PLAIN_ID, 1 },
    { "sandbox-" PLAIN_ID "-3000.cove.example", PLAIN_ID, 3000 },
    { "8000-nosuchid.cove.example", "nosuchid", 8000 },
    { "0-" PLAIN_ID ".x", PLAIN_ID, 0 },
    { "99999-" PLAIN_ID ".x", PLAIN_ID, 99999 },
    { "123456-" PLAIN_ID ".x", NULL, 0 },
    { "sandbox-nosuchid-3000.x", NULL, 0 },
    { "my-site.example", NULL, 0 },
    { "3-tier.example", NULL, 0 }, /* it is the site's own name here, as nginx tells it */
    { "127.0.0.1:8080", NULL, 0 },
    { "8080-", NULL, 0 },
    { "", NULL, 0 },
};

static void request_to(struct fake_request *f, const char *method, const char *path,
                       const char *host, const char *tenant)
{
    char *params[8];
    struct cove_err e;

    snprintf(f->params_text[0], sizeof(f->params_text[0]), "REQUEST_METHOD=%s", method);
    snprintf(f->params_text[1], sizeof(f->params_text[1]), "REQUEST_URI=%s", path);
    snprintf(f->params_text[2], sizeof(f->params_text[2]), "COVE_TENANT=%s", tenant);
    snprintf(f->params_text[3], sizeof(f->params_text[3]), "HTTP_HOST=%s", host);
    for (int i = 0; i < 4; i++)
        params[i] = f->params_text[i];
    params[4] = "COVE_DOMAIN=3-tier.example";
    params[5] = NULL;
    assert_int_equal(request_init(&f->req, params, &e), 0);
    memcpy(f->params, params, sizeof(f->params) - sizeof(char *));
    f->params[4] = NULL;
    f->req.params = f->params;
}

static void host_names_of_sandboxes_are_recognised(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        struct fake_request f;

        request_to(&f, "GET", "/", hosts[i].host, "acme");
        if ((f.req.host_box != NULL) != (hosts[i].box != NULL) ||
            (f.req.host_box && strcmp(f.req.host_box, hosts[i].box) != 0) ||
            f.req.host_port != hosts[i].port)
            fail_msg("%s: %s %u", hosts[i].host, f.req.host_box ? f.req.host_box : "none",
                     f.req.host_port);
        request_done(&f.req);
    }
}

static const struct {
    const char *host, *tenant;
    bool refused;
    const char *because;
} answers[] = {
    { "8080-" PLAIN_ID ".x", "acme", false, "its own" },
    { "8080-" PLAIN_ID ".x", "", false, "it lives: without a key the answer is 401" },
    { "8080-" OTHER_ID ".x", "acme", true, "another tenant's" },
    { "8080-" DEAD_ID ".x", "acme", true, "dead, although a project is called like it" },
    { "8080-nosuchid.x", "acme", true, "no id at all" },
    { "8000-nosuchid.x", "acme", true, "ran in the project `default` once" },
    { "8000-nosuchid.x", "", true, "without a key" },
    { "8000-" PLAIN_ID ".x", "acme", true, "a port whose traffic does not come to workers" },
    { "cove.example", "acme", false, "the site itself" },
};

static void a_host_name_of_no_living_sandbox_is_nobodys(void **state)
{
    struct cove_config config;
    struct core core = { .config = &config, .state = boxes };
    struct router router = { .dialects = all_dialects, .cors_origins = "", .slots.free = 1 };

    (void)state;
    config_default(&config);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct fake_request f;
        struct reply rep;

        request_to(&f, "POST", "/run", answers[i].host, answers[i].tenant);
        f.req.core = &core;
        reply_init(&rep, 10000);
        router_serve(&router, &f.req, &rep);
        if ((rep.status == 502) != answers[i].refused)
            fail_msg("%s: %d %s", answers[i].because, rep.status, rep.body.data);
        if (answers[i].refused)
            assert_string_equal(rep.body.data,
                                "{\"code\":502,\"message\":\"no sandbox answers by this name\","
                                "\"error\":\"no sandbox answers by this name\"}");
        reply_done(&rep);
        request_done(&f.req);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_names_of_sandboxes_are_recognised),
        cmocka_unit_test(a_host_name_of_no_living_sandbox_is_nobodys),
        cmocka_unit_test(every_name_has_one_answer),
        cmocka_unit_test(where_only_an_id_will_do_a_project_is_not_meant),
        cmocka_unit_test(a_sandbox_is_judged_by_its_own_template_by_any_name),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
