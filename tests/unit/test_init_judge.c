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
    judge_one(judge, "/rm"); /* sh */
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

static void a_command_that_is_refused_itself_does_not_start(void **state)
{
    struct command cmd = judged("true");
    int judge = become_judge();

    (void)state;
    send_spawn(fx.sock, &cmd);
    judge_one(judge, "/bin/sh");
    expect(BOX_EXEC_DENIED, NULL);
    assert_int_equal(expect_error(), COVE_FORBIDDEN);
    assert_init_answers();
    close(judge);
    close(cmd.fds[0]);
}

static void without_a_judge_execve_is_refused_after_a_while_and_init_goes_on(void **state)
{
    struct command cmd = judged("true");

    (void)state;
    send_spawn(fx.sock, &cmd);
    assert_init_answers(); /* not stuck in the start */
    expect(BOX_EXEC_DENIED, NULL);
    assert_int_equal(expect_error(), COVE_FORBIDDEN);
    close(cmd.fds[0]);
}

static void a_judge_that_vanishes_is_replaced_by_the_next(void **state)
{
    struct command cmd = judged("exit 4");
    int first = become_judge(), second;
    uint32_t proc;

    (void)state;
    send_spawn(fx.sock, &cmd);
    expect_on(first, BOX_EXEC_ASK, NULL);
    close(first);
    second = become_judge();
    judge_one(second, "/rm");
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    assert_int_equal(expect_exit(proc).exit_code, 4);
    close(second);
    close(cmd.fds[0]);
}

int main(void)
{
#define PLAIN(t) cmocka_unit_test_setup_teardown(t, fixture_start, fixture_stop)
    const struct CMUnitTest tests[] = {
        PLAIN(every_execve_is_judged_and_a_denial_is_told),
        PLAIN(a_command_that_is_refused_itself_does_not_start),
        PLAIN(without_a_judge_execve_is_refused_after_a_while_and_init_goes_on),
        PLAIN(a_judge_that_vanishes_is_replaced_by_the_next),
    };

    if (geteuid() != 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
