/* policy/deny/file.c, policy/deny/parse.c: what a file may say, and what is said about a bad one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/policy.h"

/* A folder of its own for each test. */
static int setup(void **state)
{
    char *dir = strdup("/tmp/cove-policy-XXXXXX");

    *state = dir ? mkdtemp(dir) : NULL;
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    char command[128];
    int r;

    snprintf(command, sizeof(command), "rm -rf '%s'", (char *)*state);
    r = system(command);
    free(*state);
    return r;
}

static const char *path_in(const char *dir, const char *name)
{
    static char path[2][256];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

static void write_bytes(const char *dir, const char *name, const void *bytes, size_t len)
{
    FILE *f = fopen(path_in(dir, name), "w");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    write_bytes(dir, name, text, strlen(text));
}

static int load(const char *dir, struct policy **ret, struct cove_err *e)
{
    AUTO_FREE char *bundle = NULL;
    size_t len;

    *e = (struct cove_err){ 0 };
    if (policy_bundle_read(path_in(dir, "policy.conf"), &bundle, &len, e) < 0)
        return -1;
    return policy_compile(bundle, len, ret, e);
}

/* The message without the folder in front. */
static void assert_refused(const char *dir, const char *want)
{
    struct policy *p = NULL;
    struct cove_err e;
    const char *msg;

    if (load(dir, &p, &e) == 0)
        fail_msg("taken, though it should say: %s", want);
    msg = strncmp(e.msg, dir, strlen(dir)) == 0 ? e.msg + strlen(dir) + 1 : e.msg;
    if (strncmp(msg, want, strlen(want)) != 0)
        fail_msg("said '%s'\n  instead of '%s'", msg, want);
}

#define OK "deny a words /x/ \"r\"\n"

static const struct {
    const char *text, *says;
} bad[] = {
    { "", "policy.conf:1:1: no deny rule in the whole policy" },
    { "# only a comment\n", "policy.conf:1:1: no deny rule" },
    { "allow a words /x/\n", "policy.conf:1:1: no deny rule" },
    { "deny a words /x/ \"r\"",
      "policy.conf:1:21: the last line has no end: is the file half-written?" },
    { OK "den", "policy.conf:2:4: the last line has no end" },
    { OK "deny\n", "policy.conf:2:5: a name is missing" },
    { OK "deny b!c words /x/ \"r\"\n", "policy.conf:2:6: a name is letters" },
    { OK "deny b\n", "policy.conf:2:7: rule 'b': its kind must be words or raw" },
    { OK "deny b word /x/ \"r\"\n", "policy.conf:2:8: rule 'b': its kind must be" },
    { OK "deny b words x \"r\"\n", "policy.conf:2:14: rule 'b': the pattern must stand between" },
    { OK "deny b words /x \"r\"\n", "policy.conf:2:14: rule 'b': the pattern has no end" },
    { OK "deny b words // \"r\"\n", "policy.conf:2:15: rule 'b': an empty pattern" },
    { OK "deny b words /a(b/ \"r\"\n", "policy.conf:2:18: rule 'b': missing closing parenthesis" },
    { OK "deny b words /a**/ \"r\"\n", "policy.conf:2:" },
    { OK "deny b words /(*UTF)a/ \"r\"\n", "policy.conf:2:21: rule 'b': using UTF is disabled" },
    { OK "deny b words /x/g \"r\"\n", "policy.conf:2:17: rule 'b': after the pattern only an i" },
    { OK "deny b words /x/\n",
      "policy.conf:2:17: rule 'b': the \"reason\" that callers are shown" },
    { OK "deny b words /x/ r\n", "policy.conf:2:18: rule 'b': the reason must stand in" },
    { OK "deny b words /x/ \"r\n", "policy.conf:2:18: rule 'b': the reason must stand in" },
    { OK "deny b words /x/ \" \"\n", "policy.conf:2:18: rule 'b': an empty reason" },
    { OK "deny b words /x/ \"r\" y\n", "policy.conf:2:22: rule 'b': text follows the reason" },
    { OK "[execute\n", "policy.conf:2:1: section: the closing ] is missing" },
    { OK "[]\n", "policy.conf:2:2: section: empty" },
    { OK "[a] b\n", "policy.conf:2:5: section: text follows" },
    { OK "[dialect=a color=red]\n", "policy.conf:2:12: section: 'color' is not one of" },
    { OK "[a dialect=b]\n", "policy.conf:2:4: section: dialect is said twice" },
    { OK "[tenant=]\n", "policy.conf:2:2: section: tenant: an empty item" },
    { OK "[tenant=a,,b]\n", "policy.conf:2:2: section: tenant: an empty item" },
    { OK "exec-time on\n", "policy.conf:2:1: neither a rule, a [section] nor a setting" },
    { OK "exec-time = maybe\n", "policy.conf:2:13: neither on nor off" },
    { OK "audit = some\n", "policy.conf:2:9: neither all nor refusals" },
    { OK "seccomp = ../x\n", "policy.conf:2:11: seccomp: not a profile's name" },
    { OK "colour = red\n", "policy.conf:2:1: no such setting" },
    { OK "\n\n   what is this\n", "policy.conf:4:4: neither a rule" },
    { OK "include missing.conf\n", "policy.conf:2:1: include: " },
    { OK "\xff\n", "policy.conf:2:1: not UTF-8 text" },
    { OK "a\001b\n", "policy.conf:2:2: a control character: is this a binary file?" },
    { OK "\001=1 x\n", "policy.conf:2:1: a control character" },
};

static void a_bad_file_is_refused_with_its_place(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        write_text(*state, "policy.conf", bad[i].text);
        assert_refused(*state, bad[i].says);
    }
}

static void what_is_no_file_is_refused(void **state)
{
    struct policy *p = NULL;
    struct cove_err e;

    assert_refused(*state, "policy.conf: No such file");
    assert_int_equal(mkdir(path_in(*state, "policy.conf"), 0700), 0);
    assert_refused(*state, "policy.conf: not a regular file");
    rmdir(path_in(*state, "policy.conf"));
    assert_int_equal(mkfifo(path_in(*state, "policy.conf"), 0600), 0);
    assert_refused(*state, "policy.conf: not a regular file");
    unlink(path_in(*state, "policy.conf"));
    assert_int_equal(symlink("policy.conf", path_in(*state, "policy.conf")), 0);
    assert_refused(*state, "policy.conf: Too many levels");
    unlink(path_in(*state, "policy.conf"));
    write_bytes(*state, "policy.conf", "\177ELF\0\0\0", 7);
    assert_refused(*state, "policy.conf:1:1: a control character");
    assert_int_equal(load(*state, &p, &e), -1);
    assert_null(p);
}

static void an_unreadable_file_is_refused(void **state)
{
    pid_t pid;

    write_text(*state, "policy.conf", OK);
    assert_int_equal(chmod(path_in(*state, "policy.conf"), 0), 0);
    if (geteuid() != 0) {
        assert_refused(*state, "policy.conf: Permission denied");
        return;
    }
    assert_int_equal(chmod(*state, 0755), 0); /* as root: ask as somebody else */
    pid = fork();
    if (pid == 0) {
        struct policy *p;
        struct cove_err e;

        _exit(setuid(65534) == 0 && load(*state, &p, &e) < 0 && strstr(e.msg, "denied") ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void hundred_thousand_lines_are_read_or_refused(void **state)
{
    size_t size = 100000 * 40;
    char *text = malloc(size), *at = text;
    struct policy *p = NULL;
    struct cove_err e;

    assert_non_null(text);
    for (int i = 0; i < 100000; i++)
        at += sprintf(at, i == 99999 ? OK : "# a comment, line %d\n", i);
    write_bytes(*state, "policy.conf", text, (size_t)(at - text));
    assert_int_equal(load(*state, &p, &e), 0);
    assert_int_equal(policy_rule_count(p), 1);
    policy_free(p);

    at = text;
    for (int i = 0; i < 100000; i++)
        at += sprintf(at, "deny r%d words /^x%d/ \"r\"\n", i, i);
    write_bytes(*state, "policy.conf", text, (size_t)(at - text));
    assert_refused(*state, "policy.conf:20001:1: rule 'r20000': more than 20000 rules");
    free(text);
}

static void a_file_too_large_is_refused(void **state)
{
    write_text(*state, "policy.conf", OK);
    assert_int_equal(truncate(path_in(*state, "policy.conf"), POLICY_BUNDLE_MAX + 1), 0);
    assert_refused(*state, "policy.conf: larger than");
}

static const char *denied_by(const struct policy *p, const char *dialect, const char *command)
{
    static struct policy_result r;

    policy_check(p, &(struct policy_query){ .dialect = dialect }, command, strlen(command), &r);
    return r.denied ? r.rule : "";
}

static void every_way_to_write_a_rule_works(void **state)
{
    struct policy *p = NULL;
    struct cove_err e;

    write_text(*state, "policy.conf",
               "  deny\ta words /^a\\/b/ \"r\"   # comment\r\n"
               "deny b words ~^/x/~ \"r\"\n"
               "deny c raw %C/~% \"r\"\n"
               "deny d words @^dd@i \"with # and 'quotes'\"\n"
               "[e2b] # comment\n"
               "deny e words !^e! \"r\"\n"
               "allow * words /^e e/\n");
    if (load(*state, &p, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(denied_by(p, NULL, "echo C/~"), "c");
    assert_string_equal(denied_by(p, NULL, "DD x"), "d");
    assert_string_equal(denied_by(p, NULL, "e"), "");
    assert_string_equal(denied_by(p, "e2b", "e"), "e");
    assert_string_equal(denied_by(p, "e2b", "e e"), "");
    policy_free(p);
}

static void other_files_are_read_in_their_order(void **state)
{
    struct policy_rule_info info;
    struct policy *p = NULL;
    struct cove_err e;
    const char *names[] = { "a", "inner", "b", "ten", "twenty" };

    assert_int_equal(mkdir(path_in(*state, "policy.d"), 0700), 0);
    write_text(*state, "policy.conf",
               "[execute]\ndeny a words /x/ \"r\"\ninclude more.inc\ndeny b words /x/ \"r\"\n");
    write_text(*state, "more.inc", "deny inner words /x/ \"r\"\n[relay]\n");
    write_text(*state, "policy.d/20-last.conf", "deny twenty words /x/ \"r\"\n");
    write_text(*state, "policy.d/10-first.conf", "deny ten words /x/ \"r\"\n");
    write_text(*state, "policy.d/ignored.conf.bak", "not a rule\n");
    write_text(*state, "policy.d/.hidden.conf", "not a rule\n");
    if (load(*state, &p, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(policy_rule_count(p), ARRAY_SIZE(names));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        policy_rule_get(p, i, &info);
        assert_string_equal(info.name, names[i]);
        /* an included file's sections are its own, and policy.d starts afresh */
        assert_string_equal(info.scope, names[i][0] == 'a' || names[i][0] == 'b' ? "execute" : "*");
    }
    policy_rule_get(p, 2, &info);
    assert_int_equal(info.line, 4);
    assert_non_null(strstr(info.file, "/policy.conf"));
    policy_free(p);
}

static void errors_name_the_file_they_are_in(void **state)
{
    assert_int_equal(mkdir(path_in(*state, "policy.d"), 0700), 0);
    write_text(*state, "policy.conf", OK "include more.inc\nbad line\n");
    write_text(*state, "more.inc", OK);
    assert_refused(*state, "policy.conf:3:1: neither");
    write_text(*state, "more.inc", OK "bad line\n");
    assert_refused(*state, "more.inc:2:1: neither");
    write_text(*state, "policy.conf", OK);
    write_text(*state, "policy.d/x.conf", "\nbad line\n");
    assert_refused(*state, "policy.d/x.conf:2:1: neither");
}

static void an_include_loop_ends(void **state)
{
    write_text(*state, "policy.conf", OK "include policy.conf\n");
    assert_refused(*state, "policy.conf:2:1: include: ");
}

static void the_same_text_has_the_same_hash(void **state)
{
    struct policy *a = NULL, *b = NULL, *c = NULL;
    struct cove_err e;

    write_text(*state, "policy.conf", OK);
    assert_int_equal(load(*state, &a, &e), 0);
    assert_int_equal(load(*state, &b, &e), 0);
    write_text(*state, "policy.conf", OK "\n");
    assert_int_equal(load(*state, &c, &e), 0);
    assert_string_equal(policy_hash(a), policy_hash(b));
    assert_string_not_equal(policy_hash(a), policy_hash(c));
    policy_free(a);
    policy_free(b);
    policy_free(c);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_bad_file_is_refused_with_its_place),
        TEST(what_is_no_file_is_refused),
        TEST(an_unreadable_file_is_refused),
        TEST(hundred_thousand_lines_are_read_or_refused),
        TEST(a_file_too_large_is_refused),
        TEST(every_way_to_write_a_rule_works),
        TEST(other_files_are_read_in_their_order),
        TEST(errors_name_the_file_they_are_in),
        TEST(an_include_loop_ends),
        TEST(the_same_text_has_the_same_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
