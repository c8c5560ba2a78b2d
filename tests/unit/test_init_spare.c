/* cove-init, the process made ahead: it makes commands quicker and changes nothing else. */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "tests/unit/init_filters.h"
#include "tests/unit/init_fixture.h"

static pid_t spare_pid;

/* The child of init that calls itself so. */
static bool find_spare(void *arg)
{
    char path[64], line[512];
    FILE *f;

    (void)arg;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)fx.init, (int)fx.init);
    f = fopen(path, "re");
    spare_pid = 0;
    if (f && fgets(line, sizeof(line), f)) {
        char *save, *at = strtok_r(line, " ", &save);

        for (; at; at = strtok_r(NULL, " ", &save)) {
            char comm[32] = "";
            FILE *c;

            snprintf(path, sizeof(path), "/proc/%s/comm", at);
            c = fopen(path, "re");
            if (c && fgets(comm, sizeof(comm), c) && strncmp(comm, "cove-spare", 10) == 0)
                spare_pid = atoi(at);
            if (c)
                fclose(c);
        }
    }
    if (f)
        fclose(f);
    return spare_pid > 0;
}

static struct command filtered(const char *script, int filter)
{
    return (struct command){ .user = "nobody",
                             .cwd = "/",
                             .argv = { "/bin/sh", "-c", script },
                             .env = { "GREETING=hello" },
                             .flags = SPAWN_FD_FILTER,
                             .fds = { filter },
                             .fd_count = 1 };
}

static struct box_spawned run_filtered(const char *script, int filter, int want_exit)
{
    struct command cmd = filtered(script, filter);
    struct box_spawned s = spawn(&cmd);

    assert_int_equal(expect_exit(s.proc).exit_code, want_exit);
    return s;
}

static void the_next_command_becomes_of_the_process_made_ahead(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    struct box_spawned s;
    pid_t ahead;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    assert_true(eventually(find_spare, NULL));
    ahead = spare_pid;
    s = run_filtered("test \"$GREETING\" = hello && test \"$(id -un)\" = nobody && exit 7", filter,
                     7);
    assert_int_equal(s.pid, ahead);
    close(filter);
}

static void it_is_under_the_filter_and_in_its_own_cgroup(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    char script[256];

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    assert_true(eventually(find_spare, NULL));
    snprintf(script, sizeof(script),
             "mkdir %s 2>/dev/null && exit 1; grep -q '/c[0-9]*$' /proc/self/cgroup && exit 8",
             in_dir("made"));
    run_filtered(script, filter, 8);
    close(filter);
}

static bool is_gone(void *pid)
{
    return !process_exists(pid);
}

static void one_that_was_killed_is_not_missed(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    pid_t killed;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    for (int i = 0; i < 5; i++) {
        run_filtered("exit 0", filter, 0);
        assert_true(eventually(find_spare, NULL));
        killed = spare_pid;
        kill(killed, SIGKILL);
        assert_true(eventually(is_gone, &killed));
        run_filtered("exit 3", filter, 3);
    }
    close(filter);
}

static void another_filter_starts_in_the_ordinary_way(void **state)
{
    int one = filter_file(no_mkdir, sizeof(no_mkdir)),
        other = filter_file(no_mkdir, sizeof(no_mkdir));
    struct command plain = { .cwd = "/", .argv = { "/bin/sh", "-c", "exit 5" } };
    struct box_spawned s;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    for (int i = 0; i < 3; i++) {
        run_filtered("exit 1", one, 1);
        assert_true(eventually(find_spare, NULL));
        run_filtered("exit 2", other, 2);
        assert_true(eventually(find_spare, NULL));
        s = spawn(&plain);
        assert_int_equal(expect_exit(s.proc).exit_code, 5);
    }
    close(one);
    close(other);
}

static void what_it_cannot_do_is_told_as_ever(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    struct command cmd = filtered("exit 0", filter);

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    assert_true(eventually(find_spare, NULL));
    cmd.cwd = "/no/such/place";
    send_spawn(fx.sock, &cmd);
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
    cmd.cwd = "/";
    cmd.argv[0] = "/no/such/program";
    send_spawn(fx.sock, &cmd);
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
    assert_init_answers();
    close(filter);
}

static void it_keeps_nobodys_pipe_open(void **state)
{
    struct command reader = { .cwd = "/",
                              .argv = { "/bin/cat" },
                              .flags = SPAWN_STDIN | SPAWN_LOG,
                              .log_bytes = 65536,
                              .label = "cat" };
    struct box_stdin no_more = { .close = 1 };
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    struct box_spawned s;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    s = spawn(&reader);
    run_filtered("exit 0", filter, 0);
    assert_true(eventually(find_spare, NULL));
    no_more.proc = s.proc;
    ASK(BOX_STDIN, no_more, "");
    expect(MSG_DONE, NULL);
    assert_int_equal(expect_exit(s.proc).exit_code, 0); /* cat saw the end of its input */
    close(filter);
}

int main(void)
{
#define WITH(t) cmocka_unit_test_setup_teardown(t, fixture_start_with_cgroup, fixture_stop)
    const struct CMUnitTest tests[] = {
        WITH(the_next_command_becomes_of_the_process_made_ahead),
        WITH(it_is_under_the_filter_and_in_its_own_cgroup),
        WITH(one_that_was_killed_is_not_missed),
        WITH(another_filter_starts_in_the_ordinary_way),
        WITH(what_it_cannot_do_is_told_as_ever),
        WITH(it_keeps_nobodys_pipe_open),
    };

    if (geteuid() != 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
