/* cove-init, exec-time policy: every execve waits for a verdict. */
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
#include "init_filters.h"
#include "init_fixture.h"

static void send_verdict(int sock, uint64_t ask, bool allow)
{
    struct box_exec_answer answer = { .ask = ask, .allow = allow };

    send_on(sock, BOX_EXEC_ANSWER, 1, &answer, sizeof(answer), "rm is not for you", 18, NULL, 0);
}

static struct command judged(const char *script)
{
    return (
        struct command){ .cwd = "/",
                         .user = "nobody",
                         .argv = { "sh", "-c", script },
                         .context = 4711,
                         .env = { "PATH=/bin" }, /* each command is looked for in one place only */
                         .flags = SPAWN_FD_FILTER | SPAWN_NOTIFY,
                         .fds = { filter_file(notify_exec, sizeof(notify_exec)) },
                         .fd_count = 1 };
}

static int become_judge(void)
{
    int judge = fixture_connect();

    send_on(judge, BOX_JUDGE, 1, NULL, 0, NULL, 0, NULL, 0);
    expect_on(judge, MSG_DONE, NULL);
    return judge;
}

/* Answer the next question: allowed unless it is about `forbidden`. */
static void judge_one(int judge, const char *forbidden)
{
    const struct box_exec_ask *ask = expect_on(judge, BOX_EXEC_ASK, NULL);
    const char *file = (const char *)(ask + 1);

    assert_true(ask->argc >= 1);
    assert_int_equal(ask->context, 4711); /* as the spawner said */
    assert_int_equal(ask->truncated, 0);
    assert_int_equal(file[last.body_len - sizeof(*ask) - 1], '\0');
    send_verdict(judge, ask->ask, !strstr(file, forbidden));
}

static void every_execve_is_judged_and_a_denial_is_told(void **state)
{
    struct command cmd = judged("ls / >/dev/null; rm -rf /nothing 2>/dev/null; exit 9");
    int judge = become_judge();
    const struct box_proc_ref *denied;
    struct box_spawned s;
    struct cove_end end;

    (void)state;
    send_spawn(fx.sock, &cmd);
    s = *(const struct box_spawned *)expect(BOX_SPAWNED, NULL);
    judge_one(judge, "/rm"); /* ls */
    judge_one(judge, "/rm"); /* rm */
    denied = expect(BOX_EXEC_DENIED, NULL);
    assert_int_equal(denied->proc, s.proc);
    assert_string_equal((const char *)(denied + 1), "rm is not for you");
    end = expect_exit(s.proc);
    assert_int_equal(end.exit_code, 9);
    assert_int_equal(end.denied, 1);
    close(judge);
    close(cmd.fds[0]);
}

static void the_commands_own_execve_needs_no_second_verdict(void **state)
{
    struct command cmd = judged("exit 3"); /* a builtin: no other execve */
    uint32_t proc;

    (void)state;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    assert_int_equal(expect_exit(proc).exit_code, 3);
    close(cmd.fds[0]);
}

static void without_a_judge_execve_is_refused_after_a_while_and_init_goes_on(void **state)
{
    struct command cmd = judged("/bin/ls /; exit 5");
    struct cove_end end;
    uint32_t proc;

    (void)state;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    assert_init_answers(); /* not stuck */
    expect(BOX_EXEC_DENIED, NULL);
    end = expect_exit(proc);
    assert_int_equal(end.exit_code, 5);
    assert_int_equal(end.denied, 1);
    close(cmd.fds[0]);
}

static void a_new_judge_takes_the_place_of_the_one_before(void **state)
{
    struct command cmd = judged("/bin/ls / >/dev/null");
    int first = become_judge(), second = become_judge();
    struct msg hung_up;
    uint32_t proc;

    (void)state;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    judge_one(second, "/rm");
    assert_int_equal(expect_exit(proc).exit_code, 0);
    assert_int_equal(receive_from(first, &hung_up, ANSWER_MS), 0);
    close(first);
    close(second);
    close(cmd.fds[0]);
}

static void a_judge_that_vanishes_is_replaced_by_the_next(void **state)
{
    struct command cmd = judged("/bin/ls / >/dev/null; exit 4");
    int first = become_judge(), second;
    uint32_t proc;

    (void)state;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    expect_on(first, BOX_EXEC_ASK, NULL);
    close(first);
    second = become_judge();
    judge_one(second, "/rm");
    assert_int_equal(expect_exit(proc).exit_code, 4);
    close(second);
    close(cmd.fds[0]);
}

int main(void)
{
#define PLAIN(t) cmocka_unit_test_setup_teardown(t, fixture_start, fixture_stop)
    const struct CMUnitTest tests[] = {
        PLAIN(every_execve_is_judged_and_a_denial_is_told),
        PLAIN(the_commands_own_execve_needs_no_second_verdict),
        PLAIN(without_a_judge_execve_is_refused_after_a_while_and_init_goes_on),
        PLAIN(a_judge_that_vanishes_is_replaced_by_the_next),
        PLAIN(a_new_judge_takes_the_place_of_the_one_before),
    };

    if (geteuid() != 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
