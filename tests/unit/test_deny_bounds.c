/* policy/deny/: what bounds hold where a command or a policy is made to be expensive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/policy.h"
#include "tests/unit/deny_fixture.h"

#define NOBODY NULL /* no rule refuses it */
#define WORDS  POLICY_FORM_WORDS
#define LIMIT  POLICY_FORM_LIMIT

/* --- bounds ---------------------------------------------------------------------------------- */

/* Of this thread's work: a busy machine makes no pattern slower. */
static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct policy_result check_repeated(const char *policy, char c, size_t count)
{
    struct policy *p = deny_compile(policy);
    char *text = malloc(count + 1);
    struct policy_result r;

    assert_non_null(text);
    memset(text, c, count);
    text[count] = '\0';
    r = deny_check(p, "execute", text);
    free(text);
    policy_free(p);
    return r;
}

static void patterns_that_backtrack_are_cut_off(void **state)
{
    static const struct {
        const char *policy, *because;
        size_t count;
    } slow[] = {
        { "deny a raw /(a+)+\\d/ \"r\"\n", "exponential", 64 },
        { "deny a raw /^(a|a)*\\d/ \"r\"\n", "exponential, anchored", 64 },
        { "deny a raw /a.*a.*a.*b/ \"r\"\n", "a cube", 5000 },
        { "deny a raw /a[^b]*\\d/ \"r\"\n", "a square over a megabyte", 1024 * 1024 },
        { "deny a raw /(a+)+\\d/ \"r\"\n", "exponential and long", 5000 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
        double start = seconds();
        struct policy_result r = check_repeated(slow[i].policy, 'a', slow[i].count);

        if (seconds() - start > 5)
            fail_msg("%s: took %.1f s", slow[i].because, seconds() - start);
        /* either judged or refused, never let through for having been expensive */
        assert_true(!r.denied || r.form == LIMIT);
    }
    assert_int_equal(check_repeated(slow[0].policy, 'a', 64).form, LIMIT);
}

static void what_is_too_large_is_refused(void **state)
{
    static const char policy[] = "deny a words /^zzz/ \"r\"\n";

    (void)state;
    assert_false(check_repeated(policy, 'a', POLICY_COMMAND_MAX).denied);
    assert_int_equal(check_repeated(policy, 'a', POLICY_COMMAND_MAX + 1).form, LIMIT);
    assert_int_equal(check_repeated(policy, ';', POLICY_COMMAND_MAX).form, POLICY_FORM_NONE);
}

/* A bound must not hit honest work: a megabyte of names, for each rule that looks at all of them. */
static void long_argument_lists_are_judged(void **state)
{
    static const struct {
        const char *begin, *end, *rule;
    } rows[] = {
        { "rm -f ", "", NOBODY },
        { "rm -r ", "", NOBODY },
        { "rm -r ", "-f", "rm-rf" },
        { "chmod 644 ", "", NOBODY },
        { "dd ", "", NOBODY },
        { "dd ", "if=x", "dd-if" },
        { "systemctl ", "", NOBODY },
        { "tar cf x ", "", NOBODY },
        { "tar cf x ", "/dev/sda", "dev-sd" },
    };
    struct policy *p = deny_load(TEST_SRCDIR "/policy/policy.conf");
    char *text = malloc(POLICY_COMMAND_MAX + 1);

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t len = (size_t)sprintf(text, "%s", rows[i].begin);
        struct policy_result r;

        while (len + 16 < POLICY_COMMAND_MAX)
            len += (size_t)sprintf(text + len, "file.o ");
        strcpy(text + len, rows[i].end);
        r = deny_check(p, "execute", text);
        if (!deny_is_as_wanted(&r, rows[i].rule, WORDS))
            fail_msg("%s ... %s: %s on %s", rows[i].begin, rows[i].end, r.rule,
                     policy_form_name(r.form));
    }
    free(text);
    policy_free(p);
}

static void nesting_is_refused_not_followed(void **state)
{
    struct policy *p = deny_compile("deny a words /^zzz/ \"r\"\n");
    char text[20001];
    struct policy_result r;

    (void)state;
    for (size_t i = 0; i < 10000; i++)
        memcpy(text + 2 * i, "$(", 3);
    r = deny_check(p, "execute", text);
    assert_true(r.denied);
    assert_int_equal(r.form, LIMIT);
    assert_string_equal(r.rule, "limit");
    policy_free(p);
}

static struct policy_result check_all(const struct policy *p, const char *const *commands,
                                      size_t count, size_t *ret_at)
{
    struct policy_result r;

    *ret_at = policy_check_all(p, &(struct policy_query){ 0 }, commands, count, &r);
    return r;
}

static void a_request_is_refused_at_its_first_forbidden_command(void **state)
{
    static const char *const commands[] = { "ls", "touch x", "rm a", "touch y" };
    struct policy *p = deny_compile("deny rm words /^rm/ \"r\"\n");
    size_t at;

    (void)state;
    assert_string_equal(check_all(p, commands, 4, &at).rule, "rm");
    assert_int_equal(at, 2);
    assert_false(check_all(p, commands, 2, &at).denied);
    assert_int_equal(at, 2);
    assert_false(check_all(p, commands, 0, &at).denied);
    policy_free(p);
}

/* Writes a line before the rules, which begin at 32. */
static const char *with_setting(char *policy, const char *setting)
{
    snprintf(policy, 32, "%-31s", setting);
    policy[31] = '\n';
    return policy;
}

/* 2000 commands of 1000 bytes, with 40 patterns that must look at every byte: each command is judged in
 * no time, all of them are not. */
static void fill_long_request(const char *commands[2000], char policy[4096])
{
    static char text[1001];
    char *rules = policy + 32;

    memset(text, 'a', 1000);
    for (size_t i = 0; i < 2000; i++)
        commands[i] = text;
    for (int i = 0, n = 0; i < 40; i++)
        n += sprintf(rules + n, "deny a%d raw /[a-c]*[^a-c]{%d}/ \"r\"\n", i, i + 2);
}

static bool left_at_the_third_look(void *looks)
{
    return ++*(int *)looks >= 3;
}

static void judging_stops_when_nobody_waits_for_the_verdict(void **state)
{
    const char *commands[2000];
    char policy[4096];
    int looks = 0;
    struct policy_query q = { .gone = left_at_the_third_look, .gone_arg = &looks };
    struct policy_result r;
    struct policy *p;

    (void)state;
    fill_long_request(commands, policy);
    p = deny_compile(with_setting(policy, "max-time = 60s"));
    assert_true(policy_check_all(p, &q, commands, 2000, &r) < 2000);
    assert_true(r.denied);
    assert_true(r.gone);
    assert_int_equal(looks, 3);
    policy_free(p);
}

static void the_commands_of_a_request_share_one_bound(void **state)
{
    const char *commands[2000];
    struct policy_result r;
    char policy[4096];
    struct policy *p;
    size_t at;

    (void)state;
    fill_long_request(commands, policy);

    p = deny_compile(with_setting(policy, "max-text = 50K"));
    r = check_all(p, commands, 2000, &at);
    assert_int_equal(at, 51); /* 51 of them have 51000 bytes, one more is too many */
    assert_int_equal(r.form, POLICY_FORM_LIMIT);
    assert_string_equal(r.rule, "max-text");
    assert_non_null(strstr(r.reason, "51200 bytes"));
    assert_false(check_all(p, commands, 5, &at).denied);
    policy_free(p);

    p = deny_compile(with_setting(policy, "max-time = 10ms"));
    r = check_all(p, commands, 2000, &at);
    assert_true(at > 0 && at < 2000);
    assert_int_equal(r.form, POLICY_FORM_LIMIT);
    assert_string_equal(r.rule, "max-time");
    assert_non_null(strstr(r.reason, "10 ms"));
    policy_free(p);
}

static void bounds_hold_for_whom_their_section_says(void **state)
{
    struct policy *p =
        deny_compile("deny x raw /x/ \"r\"\nmax-time = 20s\n[a]\nmax-text = 1K\n[b]\n"
                     "max-time = 100ms\n");
    struct policy_limits limits;

    (void)state;
    policy_get_limits(p, &(struct policy_query){ .dialect = "a" }, &limits);
    assert_int_equal(limits.text_bytes, 1024);
    assert_int_equal(limits.time_ms, 20000);
    policy_get_limits(p, &(struct policy_query){ .dialect = "b" }, &limits);
    assert_int_equal(limits.text_bytes, 2 * 1024 * 1024);
    assert_int_equal(limits.time_ms, 100);
    policy_free(p);
    p = deny_compile("deny x raw /x/ \"r\"\n");
    policy_get_limits(p, &(struct policy_query){ 0 }, &limits);
    assert_int_equal(limits.time_ms, 500);
    policy_free(p);
}

/* Whatever two bytes follow a harmless command: it is judged, and that is no refusal. */
static void every_pair_of_bytes_is_judged(void **state)
{
    struct policy *p = deny_load(TEST_SRCDIR "/policy/policy.conf");
    char text[] = "ls __ x";

    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        struct policy_result r;

        text[3] = (char)(i >> 8);
        text[4] = (char)i;
        policy_check(p, &(struct policy_query){ .dialect = "execute" }, text, sizeof(text) - 1, &r);
        if (r.denied)
            fail_msg("%02x %02x: %s on %s", i >> 8, i & 255, r.rule, r.matched);
    }
    policy_free(p);
}

/* Each of these left open to the end, with a forbidden command before it. */
static void what_is_never_closed_hides_nothing_before_it(void **state)
{
    static const char *const open[] = {
        "'",  "\"", "`",  "$(",  "${",   "$'", "\\",    "(",   "{",
        "<(", "((", "[[", "<<E", "case", "if", "f() {", "a=(", "$(("
    };
    struct policy *p = deny_load(TEST_SRCDIR "/policy/policy.conf");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(open); i++) {
        char text[64];

        snprintf(text, sizeof(text), "rm -rf / ; echo %s", open[i]);
        if (!deny_check(p, "execute", text).denied)
            fail_msg("%s is allowed", text);
        snprintf(text, sizeof(text), "%s", open[i]);
        if (deny_check(p, "execute", text).denied)
            fail_msg("%s alone is refused", text);
    }
    policy_free(p);
}

static void results_are_valid_text(void **state)
{
    struct policy *p = deny_compile("deny a raw /x/ \"r\"\n");
    struct policy_result r;
    char text[1000];

    (void)state;
    memset(text, 0xff, sizeof(text));
    text[0] = 'x';
    text[1] = '\n';
    policy_check(p, &(struct policy_query){ 0 }, text, sizeof(text), &r);
    assert_true(r.denied);
    assert_memory_equal(r.matched, "x ???", 5);
    assert_string_equal(r.matched + strlen(r.matched) - 3, "...");
    policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_that_backtrack_are_cut_off),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(long_argument_lists_are_judged),
        cmocka_unit_test(nesting_is_refused_not_followed),
        cmocka_unit_test(a_request_is_refused_at_its_first_forbidden_command),
        cmocka_unit_test(judging_stops_when_nobody_waits_for_the_verdict),
        cmocka_unit_test(the_commands_of_a_request_share_one_bound),
        cmocka_unit_test(bounds_hold_for_whom_their_section_says),
        cmocka_unit_test(every_pair_of_bytes_is_judged),
        cmocka_unit_test(what_is_never_closed_hides_nothing_before_it),
        cmocka_unit_test(results_are_valid_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
