/* cove policy, cove audit: what scripts rely on, exit codes and words. Runs the built program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/audit.h"
#include "cove/mem.h"

#define POLICY   TEST_SRCDIR "/policy/policy.conf"
#define PROFILES TEST_SRCDIR "/policy/profiles/"

static const struct {
    const char *args;
    int exit;
    const char *says;
} cases[] = {
    { "policy check " POLICY, 0, "ok, 16 rules, 0 warnings" },
    { "policy check --json " POLICY, 0, "{\"ok\":true,\"hash\":\"" },
    { "policy check /nonexistent", 1, "/nonexistent: No such file" },
    { "policy check --json bad.conf", 1, "{\"ok\":false,\"error\":\"bad.conf:1:1: neither" },
    { "policy check warn.conf", 0, "warn.conf:1: warning: rule 'a': catastrophic" },
    { "policy test 'rm -rf /' --dialect execute --file " POLICY, 1,
      "denied by rule 'rm-rf', words" },
    { "policy test 'npm i' --dialect execute --file " POLICY, 0, "execute: allowed" },
    { "policy test 'rm -rf x' --json --file " POLICY, 1, "{\"dialect\":\"e2b\",\"denied\":false}" },
    { "policy test --file " POLICY " --argv -- rm -rf x", 1, "denied by rule 'rm-rf', argv form" },
    { "policy test x --file /nonexistent", 2, "No such file" },
    { "policy test", 2, "usage" },
    { "policy explain 'ls; reboot' --file " POLICY, 1, "words  ls" },
    { "policy explain --dialect e2b --file " POLICY, 0, "deny rm-root words" },
    { "policy diff " POLICY " " POLICY, 0, "" },
    { "policy diff " POLICY " warn.conf", 1, "+ [*] deny a words /^(a+)+$/" },
    { "policy diff a b c", 2, "usage" },
    { "policy diff sections.conf settings.conf", 1, "+ [tenant=acme] audit = all" },
    { "policy diff sections.conf settings.conf", 1, "- [tenant=acme] exec-time = on" },
    { "-c no.conf policy status", 2, "no.conf" },
    { "-c mine.conf policy check", 0, "/sections.conf: ok, 1 rules" },
    { "-c mine.conf policy log", 0, "refused by rm-rf" },
    { "-c mine.conf policy status", 2, "coved is not running" },
    { "-c mine.conf policy diff", 2, "coved is not running" },
    { "policy check --strict warn.conf", 1, "1 warnings" },
    { "policy check --strict sections.conf", 0, "0 warnings" },
    { "policy test 'x y' --dialect e2b --file lifted.conf", 0, "an exception lifts rule 'a'" },
    { "policy test 'x z' --dialect e2b --file lifted.conf", 1, "denied by rule 'a'" },
    { "policy explain 'x y' --file lifted.conf", 0, "rule 'a' matches, an exception lifts it" },
    { "policy test --cases good.cases --file " POLICY, 0, "good.cases: 9 cases, 0 wrong" },
    { "policy test --cases bad.cases --file " POLICY, 1,
      "bad.cases:2: e2b: wanted rule 'rm-rf', got no refusal: rm -rf x" },
    { "policy test --cases worse.cases --file " POLICY, 2, "worse.cases:1:1: a line is" },
    { "policy log --file audit.log --rule nope", 0, "" },
    { "policy log --file audit.log --rule rm-rf --tenant acme -n 5 --json", 0, "" },
    { "policy seccomp show " PROFILES "default.conf", 0, "refuse  mount" },
    { "policy seccomp diff " PROFILES "default.conf " PROFILES "strict.conf", 1,
      "+ refuse  ptrace" },
    { "policy seccomp show ./nope", 2, "No such file" },
    { "policy log --file audit.log", 0, "refused by rm-rf" },
    { "policy log --file audit.log -n 1 --json", 0, "{\"seq\":2," },
    { "policy log -n x", 2, "usage" },
    { "audit verify audit.log", 0, "ok: 2 good lines in 1 files" },
    { "audit verify --json broken.log", 1, "{\"ok\":false,\"lines\":0," },
    { "audit verify nope.log", 2, "No such file" },
    { "policy nonsense", 2, "usage" },
    { "--help", 0, "cove policy" },
};

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void write_log(void)
{
    struct audit_entry entry = {
        .event = "refused", .rule = "rm-rf", .command = "x", .command_len = 1
    };
    struct audit *a = NULL;
    struct cove_err e;

    assert_int_equal(audit_open("audit.log", NULL, &a, &e), 0);
    assert_int_equal(audit_append(a, &entry, &e), 0);
    assert_int_equal(audit_append(a, &entry, &e), 0);
    audit_close(a);
}

static int run(const char *args, char *out, size_t size)
{
    char command[1024];
    size_t len;
    FILE *f;

    snprintf(command, sizeof(command), "%s %s 2>&1", COVE_PROGRAM, args);
    f = popen(command, "r");
    assert_non_null(f);
    len = fread(out, 1, size - 1, f);
    out[len] = '\0';
    return WEXITSTATUS(pclose(f));
}

static void commands_end_as_scripts_expect(void **state)
{
    char dir[] = "/tmp/cove-cli-XXXXXX", out[65536];
    int wrong = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chdir(dir), 0);
    write_file("bad.conf", "nonsense\n");
    write_file("warn.conf", "deny a words /^(a+)+$/ \"r\"\n");
    write_file("broken.log", "{}\n");
    write_file("sections.conf", "deny a words /^x/ \"r\"\n[tenant=acme]\nexec-time = on\n");
    write_file("settings.conf", "deny a words /^x/ \"r\"\n[tenant=acme]\naudit = all\n");
    write_file("lifted.conf", "deny a words /^x/ \"r\"\nallow a words /^x y$/\n");
    write_file("good.cases", "# mine\nrm-rf execute rm -rf x\n- e2b rm -rf x\n\n- * ls\n");
    write_file("bad.cases", "rm-rf execute rm -rf x\nrm-rf e2b rm -rf x\n");
    write_file("worse.cases", "rm-rf execute\n");
    snprintf(out, sizeof(out), "policy_file = %s/sections.conf\naudit_file = %s/audit.log\n", dir,
             dir);
    write_file("mine.conf", out);
    write_log();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int status = run(cases[i].args, out, sizeof(out));

        if (status == cases[i].exit && strstr(out, cases[i].says))
            continue;
        print_error("cove %s: exit %d, not %d: %s\n", cases[i].args, status, cases[i].exit, out);
        wrong++;
    }
    assert_int_equal(chdir("/"), 0);
    snprintf(out, sizeof(out), "rm -rf '%s'", dir);
    assert_int_equal(system(out), 0);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(commands_end_as_scripts_expect) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
