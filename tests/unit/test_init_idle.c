/* cove-init, an idle sandbox: what init gives back, and that the next request finds everything as before. */
#include "config.h" /* _GNU_SOURCE */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "tests/unit/init_fixture.h"

enum { IDLE_S = 60 }; /* far above what init waits for */

/* Pages of init that belong to no file. */
static long own_kib(void)
{
    char path[64], line[512];
    long sum = 0, kib;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/smaps", (int)fx.init);
    f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "Anonymous: %ld kB", &kib) == 1)
            sum += kib;
    fclose(f);
    return sum;
}

static int open_counters(void)
{
    int count = 0;

    for (int fd = 0; fd < 64; fd++) {
        char path[64], target[256];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)fx.init, fd);
        n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        count += strstr(target, "/memory/memory.") || strstr(target, "/pids/pids.");
    }
    return count;
}

static void become_idle(void)
{
    for (int i = 0; i < IDLE_S * 10 && open_counters() > 0; i++)
        usleep(100000);
    assert_int_equal(open_counters(), 0);
    usleep(100000); /* the rest follows in the same callback */
}

static struct cove_end run_as(const char *user, const char *script, char *out, size_t size)
{
    return run(&(struct command){ .user = user, .cwd = fx.dir, .argv = { "sh", "-c", script } },
               out, size);
}

static void an_idle_init_gives_pages_and_files_back_and_goes_on(void **state)
{
    struct box_list args = { 0 };
    struct cove_end end;
    long busy_kib, idle_kib;
    char out[100];

    (void)state;
    run_as("nobody", "sleep 0.1; id -un", out, sizeof(out)); /* /etc/passwd has settled */
    assert_string_equal(out, "nobody\n");
    run_as("nobody", "id -un", out, sizeof(out));
    send_on(fx.sock, BOX_LIST, 1, &args, sizeof(args), "root\0/etc", sizeof("root\0/etc"), NULL, 0);
    expect(BOX_ENTRIES, NULL);
    assert_true(open_counters() >= 2);
    busy_kib = own_kib();
    become_idle();
    idle_kib = own_kib();
    if (idle_kib > 40 || idle_kib > busy_kib / 2)
        fail_msg("%ld KiB of init's own pages before, %ld when it was idle", busy_kib, idle_kib);
    assert_init_answers();
    run_as("nobody", "id -un", out, sizeof(out));
    assert_string_equal(out, "nobody\n");
    run_as("root", "id -un", out, sizeof(out));
    assert_string_equal(out, "root\n");
    end =
        run_as("root", "echo oom_kill 4 > memory/memory.oom_control; kill -9 $$", out, sizeof(out));
    assert_int_equal(end.cause, END_MEMORY);
    assert_int_equal(end.limit, 536870912);
    end = run_as("root", "kill -9 $$", out, sizeof(out));
    assert_int_equal(end.cause, END_OWN);
    send_on(fx.sock, BOX_LIST, 1, &args, sizeof(args), "root\0/etc", sizeof("root\0/etc"), NULL, 0);
    expect(BOX_ENTRIES, NULL);
}

/* A client that starts no command fills buffers as well. */
static void an_init_that_was_only_asked_for_files_becomes_idle_too(void **state)
{
    struct box_list args = { 0 };
    int other = fixture_connect();
    long busy_kib;

    (void)state;
    send_on(other, BOX_LIST, 1, &args, sizeof(args), "root\0/etc", sizeof("root\0/etc"), NULL, 0);
    expect_on(other, BOX_ENTRIES, NULL);
    busy_kib = own_kib();
    close(other);
    for (int i = 0; i < IDLE_S * 10 && own_kib() > busy_kib - 8; i++)
        usleep(100000);
    assert_true(own_kib() <= busy_kib - 8);
    assert_init_answers();
}

int main(void)
{
#define COUNTERS(t) cmocka_unit_test_setup_teardown(t, fixture_start_with_counters, fixture_stop)
    const struct CMUnitTest tests[] = {
        COUNTERS(an_idle_init_gives_pages_and_files_back_and_goes_on),
        COUNTERS(an_init_that_was_only_asked_for_files_becomes_idle_too),
    };

    if (geteuid() != 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
