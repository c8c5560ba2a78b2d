/*
 * sandbox/init: nothing that the sandbox can hold up holds init up. Root in a sandbox can stop any
 * process of the sandbox at any instruction, and need not read what is written to it.
 */
#include "config.h" /* _GNU_SOURCE */

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "tests/unit/init_fixture.h"

enum { HELD_MS = 12000 }; /* longer than init lets a start take */

static const struct command sleeper = { .argv = { "/bin/sleep", "1000", NULL } };

/* ------------------------------------------------------------------ a child stopped at its birth */

/* From now on each child of init stops before its first instruction. */
static void hold_children(void)
{
    const long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;

    if (ptrace(PTRACE_SEIZE, fx.init, NULL, options) < 0)
        skip(); /* needs CAP_SYS_PTRACE: init is not dumpable */
}

/* Wait until init has made a child, and let init go on. */
static pid_t next_held_child(void)
{
    unsigned long child = 0;
    int status;

    assert_int_equal(waitpid(fx.init, &status, __WALL), fx.init);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(ptrace(PTRACE_GETEVENTMSG, fx.init, NULL, &child), 0);
    assert_true(child > 0);
    assert_int_equal(waitpid((pid_t)child, &status, __WALL), (pid_t)child);
    assert_int_equal(ptrace(PTRACE_CONT, fx.init, NULL, NULL), 0);
    return (pid_t)child;
}

static void a_command_stopped_before_its_execve_keeps_nobody_else_waiting(void **state)
{
    const struct box_spawned *spawned;
    int other;
    pid_t child;

    (void)state;
    hold_children();
    send_spawn(fx.sock, &sleeper);
    child = next_held_child();
    other = fixture_connect();
    send_on(other, BOX_PING, 7, NULL, 0, NULL, 0, NULL, 0);
    expect_on(other, MSG_DONE, NULL);
    close(other);
    assert_int_equal(ptrace(PTRACE_DETACH, child, NULL, NULL), 0);
    spawned = expect(BOX_SPAWNED, NULL);
    assert_int_equal(spawned->pid, child);
}

static void a_command_that_never_comes_to_its_execve_is_killed_and_told(void **state)
{
    struct cove_err e;
    struct msg m;
    pid_t child;
    int status;

    (void)state;
    hold_children();
    send_spawn(fx.sock, &sleeper);
    child = next_held_child();
    assert_int_equal(receive_from(fx.sock, &m, HELD_MS), 1);
    assert_int_equal(m.head.type, MSG_ERROR);
    memcpy(&e, m.body, sizeof(e));
    assert_int_equal(e.code, COVE_LIMIT);
    assert_non_null(strstr(e.msg, "held up"));
    assert_int_equal(waitpid(child, &status, __WALL), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ptrace(PTRACE_DETACH, fx.init, NULL, NULL);
    assert_init_answers();
}

/* ------------------------------------------------------------------ a terminal that nobody reads */

static void fill(int fd)
{
    const char line[] = "xxxxxxx\n";

    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    for (int i = 0; i < 1 << 20 && write(fd, line, sizeof(line) - 1) > 0; i++)
        ;
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
}

static void a_terminal_that_is_full_keeps_nobody_waiting(void **state)
{
    struct command cmd = sleeper;
    struct box_stdin end = { .close = 1 };
    const struct box_spawned *spawned;
    AUTO_CLOSE int pty = -1;
    struct msg m;

    (void)state;
    cmd.flags = SPAWN_PTY;
    send_spawn(fx.sock, &cmd);
    spawned = expect(BOX_SPAWNED, &pty);
    end.proc = spawned->proc;
    fill(pty);
    ASK(BOX_STDIN, end, "");
    assert_int_equal(receive_from(fx.sock, &m, ANSWER_MS), 1); /* done or busy, but an answer */
    assert_init_answers();
    assert_int_equal(fcntl(pty, F_GETFL) & O_NONBLOCK, 0); /* as whoever has a copy left it */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_start, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_command_stopped_before_its_execve_keeps_nobody_else_waiting),
        TEST(a_command_that_never_comes_to_its_execve_is_killed_and_told),
        TEST(a_terminal_that_is_full_keeps_nobody_waiting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
