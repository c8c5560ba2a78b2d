/* policy/deny/: exceptions, sections, settings; many rules and many threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/policy.h"
#include "tests/unit/deny_fixture.h"

#define WORDS POLICY_FORM_WORDS

/* --- exceptions and scopes ------------------------------------------------------------------- */

static void exceptions_lift_one_rule_for_one_command(void **state)
{
    struct policy *p = deny_compile("deny rm words /^rm -rf/ \"no\"\n"
                                    "deny cp words /^cp/ \"no\"\n"
                                    "deny secret raw /secret/ \"no\"\n"
                                    "allow rm words /^rm -rf node_modules$/\n"
                                    "allow * words /^cp a b$/\n");

    (void)state;
    assert_false(deny_check(p, NULL, "rm -rf node_modules").denied);
    assert_true(deny_check(p, NULL, "rm -rf node_modules; rm -rf /").denied);
    assert_true(deny_check(p, NULL, "rm -rf node_modules /").denied);
    assert_false(deny_check(p, NULL, "cp a b").denied);
    assert_true(deny_check(p, NULL, "cp a c").denied);
    assert_true(deny_check(p, NULL, "cp a b # secret").denied); /* another form, another rule */
    policy_free(p);
}

static void an_exception_lifts_no_other_rule_that_matches_the_same_command(void **state)
{
    struct policy *p = deny_compile("deny rm words /^rm/ \"no\"\n"
                                    "deny force words / -f/ \"no\"\n"
                                    "allow rm words /^rm -f x$/\n");
    struct policy_result r = deny_check(p, NULL, "rm -f x");

    (void)state;
    assert_true(r.denied);
    assert_string_equal(r.rule, "force");
    assert_string_equal(r.lifted, "rm");
    policy_free(p);
}

static void an_exception_holds_only_where_its_section_does(void **state)
{
    struct policy *p = deny_compile("deny rm words /^rm/ \"no\"\n[e2b]\nallow rm words /^rm x$/\n");

    (void)state;
    assert_false(deny_check(p, "e2b", "rm x").denied);
    assert_string_equal(deny_check(p, "e2b", "rm x").lifted, "rm");
    assert_true(deny_check(p, "execute", "rm x").denied);
    assert_string_equal(deny_check(p, "execute", "rm x").lifted, "");
    policy_free(p);
}

static void sections_say_for_whom(void **state)
{
    static const struct {
        const char *dialect, *tenant, *template, *denied;
    } asks[] = {
        { "execute", "acme", "base", "a" },  { "e2b", "acme", "base", "b" },
        { "executor", "acme", "py-3", "b" }, { "e2b", "other", "base", NULL },
        { "relay", "x", "py-3", "c" },       { "relay", "x", "node", NULL },
        { "agent", "bad", "node", NULL },    { "agent", "good", "node", "d" },
        { NULL, NULL, NULL, NULL },
    };
    struct policy *p = deny_compile("[execute]\ndeny a words /^x/ \"r\"\n"
                                    "[dialect=executor,e2b tenant=acme template=*]\n"
                                    "deny b words /^x/ \"r\"\n"
                                    "[relay template=py-*]\ndeny c words /^x/ \"r\"\n"
                                    "[dialect=agent tenant=!bad]\ndeny d words /^x/ \"r\"\n");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(asks); i++) {
        struct policy_query q = {
            asks[i].dialect, asks[i].tenant, asks[i].template, NULL, NULL, NULL
        };
        struct policy_result r;

        policy_check(p, &q, "x", 1, &r);
        if (!deny_is_as_wanted(&r, asks[i].denied, WORDS))
            fail_msg("row %zu: got '%s'", i, r.rule);
    }
    policy_free(p);
}

static void later_settings_win(void **state)
{
    struct policy *p = deny_compile("deny a words /^x/ \"r\"\nexec-time = on\nseccomp = build\n"
                                    "[e2b]\nexec-time = off\nseccomp = strict\naudit = all\n");
    struct policy_query e2b = { .dialect = "e2b" }, any = { 0 };

    (void)state;
    assert_true(policy_exec_time(p, &any));
    assert_false(policy_exec_time(p, &e2b));
    assert_string_equal(policy_profile(p, &any), "build");
    assert_string_equal(policy_profile(p, &e2b), "strict");
    assert_false(policy_audit_all(p, &any));
    assert_true(policy_audit_all(p, &e2b));
    policy_free(p);
}
/* --- many rules, many threads ---------------------------------------------------------------- */

/* Each of `count` rules refuses one word of its own. */
static char *many_rules(int count)
{
    char *text = malloc((size_t)count * 64 + 1), *at = text;

    assert_non_null(text);
    for (int i = 0; i < count; i++)
        at += sprintf(at, "deny r%d words /^tool%d( .*)? --force/ \"r\"\n", i, i);
    return text;
}

static void the_prefilter_loses_no_rule(void **state)
{
    AUTO_FREE char *text = many_rules(5000);
    struct policy *p = deny_compile(text);

    (void)state;
    for (int i = 0; i < 5000; i += 7) {
        char command[64], rule[16];
        struct policy_result r;

        snprintf(command, sizeof(command), "tool%d a --force", i);
        snprintf(rule, sizeof(rule), "r%d", i);
        r = deny_check(p, NULL, command);
        assert_string_equal(r.rule, rule);
    }
    assert_false(deny_check(p, NULL, "tool5001 a --force").denied);
    policy_free(p);
}

static const struct {
    const char *pattern, *matches;
} literals[] = {
    { "a(?:b|c)*d", "ad" },
    { "abc?d", "abd" },
    { "abc*", "ab" },
    { "ab{0}cde", "acde" },
    { "x|abcdef", "x" },
    { "(?i)abc", "ABC" },
    { "[abc]def", "adef" },
    { "[]abc]def", "]def" },
    { "\\x41bc", "Abc" },
    { "a\\.bc", "a.bc" },
    { "(?=.*z)abc", "abcz" },
    { "a+bcd", "aabcd" },
    { "\\Qa.b\\E", "a.b" },
    { "abc|", "" },
    { "(abc)?", "" },
    { "x{{y\\dabc{", "x{{y1abc{" },
    { "ab{\\dcde", "ab{1cde" },
    { "ab\\d{2}cd", "ab12cd" },
    { "[[:alpha:]]bcd", "abcd" },
    { "a{2,}bc", "aabc" },
};

static void the_prefilter_understands_patterns(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(literals); i++) {
        char text[128];
        struct policy *p;

        snprintf(text, sizeof(text), "deny a raw /^(?:%s)/ \"r\"\ndeny b raw /%s/ \"r\"\n", "never",
                 literals[i].pattern);
        p = deny_compile(text);
        if (!deny_check(p, NULL, literals[i].matches).denied)
            fail_msg("/%s/ does not match '%s'", literals[i].pattern, literals[i].matches);
        policy_free(p);
    }
}

static void *check_often(void *arg)
{
    const struct policy *p = arg;
    intptr_t wrong = 0;

    for (int i = 0; i < 2000; i++) {
        wrong += !deny_check(p, "execute", "cd x && rm -rf /").denied;
        wrong += deny_check(p, "execute", "npm install && npm run build").denied;
    }
    return (void *)wrong;
}

static void threads_share_a_policy(void **state)
{
    struct policy *p = deny_load(TEST_SRCDIR "/policy/policy.conf");
    pthread_t threads[4];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, check_often, p), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exceptions_lift_one_rule_for_one_command),
        cmocka_unit_test(an_exception_lifts_no_other_rule_that_matches_the_same_command),
        cmocka_unit_test(an_exception_holds_only_where_its_section_does),
        cmocka_unit_test(sections_say_for_whom),
        cmocka_unit_test(later_settings_win),
        cmocka_unit_test(the_prefilter_loses_no_rule),
        cmocka_unit_test(the_prefilter_understands_patterns),
        cmocka_unit_test(threads_share_a_policy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
