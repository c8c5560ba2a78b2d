/* policy/deny/lint.c: what `cove policy check` warns about, and what it leaves alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/policy.h"

static const char *const dialects[] = { "execute", "e2b", NULL };

#define OK "deny ok words /^ok$/ \"r\"\n"

static const struct {
    const char *text, *warns;
} cases[] = {
    { OK, "" },
    { "deny a words /x*/ \"r\"\n", "1 a: matches everything" },
    { "deny a words /^\\/bin\\/rm/ \"r\"\n", "1 a: can never match: words begin with" },
    { "deny a words ~^/bin/rm~ \"r\"\n", "1 a: can never match: words begin with" },
    { "deny a words /^rm  -rf/ \"r\"\n", "1 a: can never match: words are joined" },
    { "deny a words /rm\\n/ \"r\"\n", "1 a: can never match: words hold no newlines" },
    { "deny a raw /rm\\n/ \"r\"\n", "" },
    { "deny a raw /a$b/ \"r\"\n", "1 a: can never match: something must come" },
    { "deny a raw /a^b/ \"r\"\n", "1 a: can never match: something must come" },
    { "deny a raw /(?:a|^)b/ \"r\"\n", "" },
    { "deny a raw /[$a]b/ \"r\"\n", "" },
    { "deny a words /^(a+)+$/ \"r\"\n", "1 a: catastrophic" },
    { "deny a words /^(a|aa)+$/ \"r\"\n", "1 a: catastrophic" },
    { "deny a words /^rm (\\w+\\s?)*x/ \"r\"\n", "1 a: catastrophic" },
    { "deny a raw /(z|z)*!/ \"r\"\n", "1 a: catastrophic" },
    { "deny a raw /^(\\d+)*$/ \"r\"\n", "1 a: " },
    { "deny a words /^rm( \\S+)* -rf/ \"r\"\n", "" },
    { "deny a words /^(?:[a-z]+-)+x$/ \"r\"\n", "" },
    { "deny a words /./ \"r\"\n", "1 a: matches everything: no command gets past it" },
    { "deny a words /^\\S+/ \"r\"\n", "1 a: matches everything" },
    { "deny a words /(?!)/ \"r\"\n", "1 a: can never match: a part of it fails" },
    { "deny a words /x$^y/ \"r\"\n", "1 a: can never match" },
    { "deny a words /curl .*\\| sh/ \"r\"\n", "1 a: can never match: commands are cut apart" },
    { "deny a words /^cd x; rm/ \"r\"\n", "1 a: can never match: commands are cut apart" },
    { "deny a words /^a && b/ \"r\"\n", "1 a: can never match: commands are cut apart" },
    { "deny a words /^echo \"x\"/ \"r\"\n", "1 a: can never match: quotes were taken away" },
    { "deny a raw /curl .*\\| sh/ \"r\"\n", "" },
    { "deny a words /^x (?:a|b;)/ \"r\"\n", "" },
    { "deny a raw /(?:.*,){10}x/ \"r\"\n", "1 a: catastrophic" },
    { "deny a raw /(x+x+)+y/ \"r\"\n", "1 a: catastrophic" },
    { "deny a raw /([a-z]+)*[A-Z]Q/ \"r\"\n", "1 a: catastrophic" },
    { OK "allow b words /x/\n", "2 b: an exception to a rule that is not there" },
    { OK "allow ok raw /x/\n", "2 ok: an exception to a rule that is not there (or not raw)" },
    { OK "allow ok words /^x$/\nallow * words /^y$/\n", "" },
    { OK "allow ok words /^x/\n", "2 ok: an exception that does not end with $" },
    { OK "allow ok words /^x\\$/\n", "2 ok: an exception that does not end with $" },
    { OK "allow ok words /x$/\n", "2 ok: an exception that does not begin with ^" },
    { OK "allow * words /.*/\n", "2 *: matches everything: it lifts the rule altogether" },
    { "[execute]\n" OK "[e2b]\nallow ok words /^x$/\n",
      "4 ok: an exception to a rule that does not hold for the same dialects" },
    { "[execute]\n" OK "[tenant=acme]\nallow ok words /^x$/\n", "" },
    { "deny a words /rm/ \"r\"\ndeny b words /^rm -rf/ \"r\"\n", "2 b: shadowed" },
    { "deny a words /^rm/i \"r\"\ndeny b words /^rm -rf/ \"r\"\n", "2 b: shadowed" },
    { "deny a words /^rm/ \"r\"\ndeny b words /^rm -rf/i \"r\"\n", "" },
    { OK "[execute,!execute]\n", "2 -: section [execute,!execute]: it holds for nobody" },
    { "deny a words /^rm/ \"r\"\ndeny b words /^rm -rf/ \"r\"\n",
      "2 b: shadowed: rule 'a' (line 1)" },
    { "deny b words /^rm -rf/ \"r\"\ndeny a words /^rm/ \"r\"\n",
      "1 b: shadowed: rule 'a' (line 2)" },
    { "deny a words /^rm/ \"r\"\ndeny b words /^rm/ \"r\"\n", "2 b: shadowed" },
    { "deny a words /^rm/ \"r\"\ndeny b words /^rm?/ \"r\"\n", "" },
    { "deny a words /^rm/ \"r\"\ndeny b raw /^rm -rf/ \"r\"\n", "" },
    { "deny a words /^rm|x/ \"r\"\ndeny b words /^rm|xy/ \"r\"\n", "" },
    { "[execute]\ndeny a words /^rm/ \"r\"\n[e2b]\ndeny b words /^rm -rf/ \"r\"\n", "" },
    { "deny a words /^rm/ \"r\"\n[e2b]\ndeny b words /^rm -rf/ \"r\"\n", "3 b: shadowed" },
    { OK "deny ok words /^z/ \"r\"\n", "2 ok: line 1 has a rule of the same name" },
    { OK "[excute]\n", "2 -: section [excute]: there is no dialect 'excute'" },
    { OK "[dialect=!execute,e*]\n", "" },
};

static void remember(void *ctx, const struct policy_warning *w)
{
    char *out = ctx;
    size_t len = strlen(out);

    snprintf(out + len, 1000 - len, "%u %s: %s\n", len ? 0 : w->line - (w->line > 2 && !w->rule),
             w->rule ? w->rule : "-", w->what);
}

static void strange_rules_are_pointed_out(void **state)
{
    int wrong = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p = NULL;
        struct cove_err e;
        char got[1000] = "";
        const char *rule;

        if (policy_compile(cases[i].text, strlen(cases[i].text), &p, &e) < 0)
            fail_msg("%s", e.msg);
        policy_lint(p, dialects, remember, got);
        rule = cases[i].warns;
        if (*rule ? strncmp(got, rule, strlen(rule)) != 0 : *got != '\0') {
            print_error("%s  said '%s'\n  want '%s'\n", cases[i].text, got, rule);
            wrong++;
        }
        policy_free(p);
    }
    assert_int_equal(wrong, 0);
}

static void count(void *ctx, const struct policy_warning *w)
{
    print_error("%s:%u: %s: %s\n", w->file, w->line, w->rule ? w->rule : "", w->what);
    ++*(int *)ctx;
}

static void the_default_policy_has_no_warning(void **state)
{
    static const char *const all[] = { "execute", "executor", "e2b", "relay", "agent", NULL };
    AUTO_FREE char *bundle = NULL;
    struct policy *p = NULL;
    struct cove_err e;
    size_t len;
    int warnings = 0;

    (void)state;
    assert_int_equal(policy_bundle_read(TEST_SRCDIR "/policy/policy.conf", &bundle, &len, &e), 0);
    assert_int_equal(policy_compile(bundle, len, &p, &e), 0);
    assert_int_equal(policy_lint(p, all, count, &warnings), 0);
    assert_int_equal(warnings, 0);
    policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strange_rules_are_pointed_out),
        cmocka_unit_test(the_default_policy_has_no_warning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
