/*
 * What confines cove-init, and with it everything it starts: sandbox/init/filter.c and the
 * capabilities of init.c. A copy of this program is run by init and tries each call of the list;
 * the same copy without init shows that the call would come through otherwise.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "sandbox/init/refused.h"
#include "tests/unit/init_fixture.h"

#define NAME_AND_NUMBER(name, x86, arm) { #name, SYS_##name },
static const struct {
    const char *name;
    long number;
} calls[] = { REFUSED_CALLS(NAME_AND_NUMBER) };

/* ------------------------------------------------------------------ in the copy */

/* Arguments that no call accepts, so that nothing happens where the call comes through. */
static int try_all(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        errno = 0;
        syscall(calls[i].number, -1L, -1L, -1L, -1L, -1L, -1L);
        printf("%s %d\n", calls[i].name, errno);
    }
    return 0;
}

/* ------------------------------------------------------------------ in the test */

/* The errno that a copy's output gives for the call; -1 if there is no line for it. */
static int outcome(const char *output, const char *name)
{
    char key[64];
    const char *line;

    snprintf(key, sizeof(key), "%s ", name);
    for (line = output; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) == 0)
            return atoi(line + strlen(key));
    }
    return -1;
}

static const char *own_path(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    path[n > 0 ? n : 0] = '\0';
    return path;
}

static void run_unconfined(char *out, size_t size)
{
    char shell[4200];
    FILE *f;

    snprintf(shell, sizeof(shell), "'%s' --try", own_path());
    f = popen(shell, "r");
    assert_non_null(f);
    out[fread(out, 1, size - 1, f)] = '\0';
    pclose(f);
}

static void init_and_its_commands_are_refused_what_no_profile_allows(void **state)
{
    struct command cmd = { .argv = { own_path(), "--try", NULL } };
    char confined[8192], unconfined[8192];
    unsigned shown = 0;

    (void)state;
    run(&cmd, confined, sizeof(confined));
    run_unconfined(unconfined, sizeof(unconfined));
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        if (outcome(confined, calls[i].name) != EPERM)
            fail_msg("%s is not refused: errno %d", calls[i].name,
                     outcome(confined, calls[i].name));
        shown += outcome(unconfined, calls[i].name) != EPERM;
    }
    print_message("%u of %zu calls come through without the filter\n", shown, ARRAY_SIZE(calls));
    assert_true(shown > ARRAY_SIZE(calls) / 2);
}

#define CAP(c) (1ULL << CAP_##c)

static void init_has_only_the_capabilities_it_uses(void **state)
{
    const uint64_t used = CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(FSETID) | CAP(KILL) |
                          CAP(SETGID) | CAP(SETUID) | CAP(SYS_PTRACE);

    (void)state;
    assert_int_equal(status_number(fx.init, "CapEff", 16) & ~used, 0);
    assert_int_equal(status_number(fx.init, "CapPrm", 16) & ~(used | CAP(SYS_ADMIN)), 0);
    assert_int_equal(status_number(fx.init, "CapInh", 16), 0);
    assert_int_equal(status_number(fx.init, "CapAmb", 16), 0);
    assert_int_equal(status_number(fx.init, "Seccomp", 10), 2);
}

/* ------------------------------------------------------------------ the profiles */

static void check_words(const char *profile, char *line)
{
    char *word, *rest = line;

    while ((word = strsep(&rest, " \t\n"))) {
        if (strcmp(word, "if") == 0)
            return;
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
            if (strcmp(word + (*word == '?'), calls[i].name) == 0)
                fail_msg("%s allows %s, which init refuses to everybody", profile, calls[i].name);
    }
}

static unsigned check_profile(const char *name)
{
    char path[512], line[1024];
    unsigned allowed = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/policy/profiles/%s", SOURCE_DIR, name);
    f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, "allow ", 6) != 0 && strncmp(line, "also ", 5) != 0)
            continue;
        allowed++;
        check_words(name, line);
    }
    fclose(f);
    return allowed;
}

static void no_profile_allows_what_init_refuses(void **state)
{
    (void)state;
    assert_true(check_profile("default.conf") > 20);
    assert_true(check_profile("build.conf") > 1);
    check_profile("strict.conf");
}

/* Not in init's list: other names for what is in it, calls that no kernel of today has, what follows from another call that is
 * refused, and what x86 alone has and no user namespace gives. */
static const char *const spared[] = {
    "umount", "clock_settime64", "stime",         "create_module",  "nfsservctl", "uselib",
    "iopl",   "ioperm",          "vm86",          "vm86old",        "mbind",      "set_mempolicy",
    "kcmp",   "pidfd_getfd",     "fanotify_mark", "lookup_dcookie",
};

static bool is_refused_or_spared(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (strcmp(name, calls[i].name) == 0)
            return true;
    for (size_t i = 0; i < ARRAY_SIZE(spared); i++)
        if (strcmp(name, spared[i]) == 0)
            return true;
    return false;
}

/* A list that is compared with itself alone is right whatever is missing in it. */
static void what_the_default_profile_refuses_by_name_init_refuses_too(void **state)
{
    char line[1024], *word, *rest;
    FILE *f = fopen(SOURCE_DIR "/policy/profiles/default.conf", "re");
    unsigned refused = 0;

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, "refuse ", 7) != 0)
            continue;
        for (rest = line + 7; (word = strsep(&rest, " \t\n"));) {
            if (*word && !is_refused_or_spared(word))
                fail_msg("init does not refuse %s", word);
            refused += *word != '\0';
        }
    }
    fclose(f);
    assert_true(refused > ARRAY_SIZE(spared));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_start, fixture_stop)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(init_and_its_commands_are_refused_what_no_profile_allows),
        TEST(init_has_only_the_capabilities_it_uses),
        cmocka_unit_test(no_profile_allows_what_init_refuses),
        cmocka_unit_test(what_the_default_profile_refuses_by_name_init_refuses_too),
    };

    if (argc == 2 && strcmp(argv[1], "--try") == 0)
        return try_all();
    if (geteuid() != 0) {
        printf("skipped: init needs root to install its filter\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
