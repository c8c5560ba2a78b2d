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

enum { HELD_MS = 12000 }; /* above START_MS of init */

static pid_t spare_pid;

/* The child of init that calls itself "cove-spare", or as `arg` says. */
static bool find_spare(void *arg)
{
    const char *name = arg ? arg : "cove-spare";
    char path[64], line[512];
    FILE *f;

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
            if (c && fgets(comm, sizeof(comm), c) && strncmp(comm, name, strlen(name)) == 0)
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

static pid_t launcher_pid(void)
{
    assert_true(eventually(find_spare, NULL)); /* its launcher is there as well */
    assert_true(eventually(find_spare, "cove-launcher"));
    return spare_pid;
}

static void a_launcher_that_was_killed_is_not_missed(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    pid_t launcher;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    for (int i = 0; i < 3; i++) {
        run_filtered("exit 0", filter, 0);
        launcher = launcher_pid();
        kill(launcher, SIGKILL);
        if (i > 0)
            assert_true(eventually(is_gone, &launcher));
        run_filtered("exit 3", filter, 3);
    }
    close(filter);
}

/* Two commands: the spare, and one that waits for the launcher. The launcher is ended for them, the first one runs
   on, the second one is told. */
static void a_launcher_that_was_stopped_is_ended(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    struct command first = filtered("sleep 9; exit 7", filter);
    struct command second = filtered("exit 0", filter);
    unsigned began = 0, told = 0;
    struct msg m;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    kill(launcher_pid(), SIGSTOP);
    send_spawn(fx.sock, &first);
    send_spawn(fx.sock, &second);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(receive_from(fx.sock, &m, HELD_MS), 1);
        began += m.head.type == BOX_SPAWNED;
        told += m.head.type == MSG_ERROR && ((const struct cove_err *)m.body)->code == COVE_LIMIT;
    }
    assert_true(began == 1 && told == 1);
    assert_int_equal(((const struct box_exited *)expect(BOX_EXITED, NULL))->end.exit_code, 7);
    run_filtered("exit 5", filter, 5);
    close(filter);
}

static const struct sock_filter no_setsid[] = {
    LOAD_NUMBER,
    IF_ANSWER(SYS_setsid, SECCOMP_RET_ERRNO | EPERM),
    IF_ANSWER(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS),
    IF_ANSWER(SYS_seccomp, SECCOMP_RET_ERRNO | EPERM),
    RETURN(SECCOMP_RET_ALLOW),
};

static void calls_that_the_launcher_needs_stay_refused_to_commands(void **state)
{
    static const char script[] =
        "read -r p c s ppid pgrp sid rest < /proc/$$/stat; test \"$sid\" = $$ || exit 1;"
        "(setsid true) 2>/dev/null && exit 2; exit 9";
    int filter = filter_file(no_setsid, sizeof(no_setsid));

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered(script, filter, 9);
    for (int i = 0; i < 3; i++) {
        assert_true(eventually(find_spare, NULL));
        run_filtered(script, filter, 9);
    }
    close(filter);
}

static void commands_that_come_at_once_have_a_process_each(void **state)
{
    enum { COUNT = 12 };
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    struct command cmd = filtered("mkdir /tmp/x 2>/dev/null && exit 1; sleep 0.3; exit 4", filter);
    struct box_spawned s[COUNT];

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    launcher_pid();
    for (int i = 0; i < COUNT; i++) {
        s[i] = spawn(&cmd);
        assert_true(s[i].pid > 1);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(s[i].pid, s[j].pid);
    }
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(((const struct box_exited *)expect(BOX_EXITED, NULL))->end.exit_code, 4);
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
        WITH(a_launcher_that_was_killed_is_not_missed),
        WITH(a_launcher_that_was_stopped_is_ended),
        WITH(calls_that_the_launcher_needs_stay_refused_to_commands),
        WITH(commands_that_come_at_once_have_a_process_each),
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
