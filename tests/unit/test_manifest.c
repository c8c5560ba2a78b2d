/* What templates say about running their sandboxes: the flat form, names, and whose a template is. */
#include "cove/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cove/mem.h"

static const char whole[] =
    "user app\nworkdir /srv/app\nenv A=1\nenv B=two words\nstart run\\nit \\\\x\n"
    "ready test -e /ready\nready_timeout_ms 5000\n"
    "service 3000 creation serve it\nservice 9000 first-use code\n"
    "settings memory_max=1G network=none\npolicy strict\nseccomp default\n"
    "tenants acme,globex\nshell sh\n";

static void what_is_read_is_what_was_written(void **state)
{
    AUTO_BUF struct buf out = BUF(4096);
    struct cove_err e = { 0 };
    struct manifest *m;

    (void)state;
    if (manifest_parse("app", whole, &m, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(m->user, "app");
    assert_string_equal(m->start, "run\nit \\x");
    assert_string_equal(m->env[1], "B=two words");
    assert_null(m->env[2]);
    assert_int_equal(m->ready_timeout_ms, 5000);
    assert_true(manifest_service_at(m, 9000)->on_first_use);
    assert_string_equal(manifest_service_at(m, 3000)->command, "serve it");
    assert_null(manifest_service_at(m, 3001));
    assert_true(m->no_bash && manifest_has_start(m));
    manifest_format(m, &out);
    assert_string_equal(out.data, whole);
    manifest_free(m);
}

static void a_later_variable_replaces_an_earlier_one(void **state)
{
    struct manifest *m;

    (void)state;
    assert_int_equal(manifest_parse("app", "env A=1\nenv AB=2\nenv A=3\n", &m, NULL), 0);
    assert_int_equal(m->env_count, 2);
    assert_string_equal(m->env[0], "A=3");
    manifest_free(m);
}

static void a_wrong_line_is_refused_and_its_key_named(void **state)
{
    static const struct {
        const char *text, *message, *because;
    } cases[] = {
        { "colour red", "'colour': no such key", "a key that nobody knows" },
        { "template other", "'template': no such key", "a template cannot begin inside another" },
        { "user", "user: has no value", "" },
        { "user a:b", "user: must be", "a line of passwd cannot be smuggled in" },
        { "user -x", "user: must be", "" },
        { "workdir tmp", "workdir: must be an absolute path", "" },
        { "env =x", "env: '=x' is not", "" },
        { "env 1A=x", "env:", "" },
        { "start  ", "start: must not be empty", "" },
        { "start a\\x", "start: has a character", "an escape that is none" },
        { "start a\001b", "start: has a character", "" },
        { "start a\nstart b", "start: is given twice", "" },
        { "ready_timeout_ms 0", "ready_timeout_ms: 0 is not", "" },
        { "ready_timeout_ms 9999999", "ready_timeout_ms:", "a claim waits no longer than that" },
        { "service 0 creation x", "service: port 0", "" },
        { "service 80 sometimes x", "service: 'sometimes'", "" },
        { "service 80", "service: must be", "" },
        { "service 80 creation a\nservice 80 first-use b", "service: two services", "" },
        { "settings a\\nb", "settings: must be one line", "it becomes a line of a table" },
        { "seccomp ../x", "seccomp:", "it becomes part of a path" },
        { "policy a b", "policy:", "" },
        { "tenants a;b", "tenants:", "" },
        { "shell zsh", "shell: 'zsh'", "" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cove_err e = { 0 };
        struct manifest *m = NULL;

        if (manifest_parse("app", cases[i].text, &m, &e) == 0)
            fail_msg("taken: %s", cases[i].text);
        if (!strstr(e.msg, cases[i].message))
            fail_msg("%s: %s", cases[i].text, e.msg);
    }
}

static void names_are_checked(void **state)
{
    static const struct {
        const char *name;
        bool ok;
    } cases[] = {
        { "a", true },   { "py-3.12_x", true }, { "Acme/app", true },   { "acme/app", true },
        { "", false },   { "A", false },        { "a/b/c", false },     { "/a", false },
        { "a/", false }, { ".a", false },       { "-a", false },        { "a/.b", false },
        { "..", false }, { "a b", false },      { "acme/../x", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (manifest_is_name(cases[i].name) != cases[i].ok)
            fail_msg("'%s'", cases[i].name);
}

static void a_name_means_what_its_tenant_may_see(void **state)
{
    static const char text[] = "template base\ntemplate py\ntenants acme,glob\nuser op\n"
                               "template acme/py\nuser own\ntemplate other/mine\n";
    static const struct {
        const char *tenant, *name, *means;
    } cases[] = {
        { "acme", "default", "base" }, { "acme", "base", "base" },
        { "acme", "py", "acme/py" },   { "acme", "acme/py", "acme/py" },
        { "glob", "py", "py" },        { "globex", "py", NULL },
        { "globex", "acme/py", NULL }, { "other", "mine", "other/mine" },
        { "acme", "mine", NULL },      { "acme", "other/mine", NULL },
        { "acm", "acme/py", NULL },    { "acme", "nothing", NULL },
    };
    struct manifests all;

    (void)state;
    assert_int_equal(manifests_parse(text, &all, NULL), 0);
    assert_int_equal(all.count, 4);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct manifest *m = manifests_resolve(&all, cases[i].tenant, cases[i].name);

        if (!m != !cases[i].means || (m && strcmp(m->name, cases[i].means) != 0))
            fail_msg("%s of %s: %s", cases[i].name, cases[i].tenant, m ? m->name : "none");
    }
    assert_string_equal(manifests_find(&all, "acme/py")->user, "own");
    manifests_done(&all);
}

static void a_published_file_with_a_mistake_is_refused_whole(void **state)
{
    struct manifests all = { 0 };

    (void)state;
    assert_int_equal(manifests_parse("user x\n", &all, NULL), -1);
    assert_int_equal(manifests_parse("template a\nnonsense\ntemplate b\n", &all, NULL), -1);
    assert_int_equal(manifests_parse("template A\n", &all, NULL), -1);
    assert_int_equal(manifests_parse("", &all, NULL), 0);
    assert_int_equal(all.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_what_was_written),
        cmocka_unit_test(a_later_variable_replaces_an_earlier_one),
        cmocka_unit_test(a_wrong_line_is_refused_and_its_key_named),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(a_name_means_what_its_tenant_may_see),
        cmocka_unit_test(a_published_file_with_a_mistake_is_refused_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
