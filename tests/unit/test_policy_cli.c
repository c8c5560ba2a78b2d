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
    { "policy diff " POLICY, 2, "usage" },
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
