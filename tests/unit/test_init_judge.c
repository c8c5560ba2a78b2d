/* cove-init, exec-time policy: every execve waits for a verdict. */
#include "config.h" /* _GNU_SOURCE */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "tests/unit/init_filters.h"
#include "tests/unit/init_fixture.h"

static uint32_t
    refusals_max; /* what the judges of these tests say; fixture_start() leaves it alone */

static void send_verdict(int sock, uint64_t ask, bool allow)
{
    struct box_exec_answer answer = { .ask = ask, .allow = allow, .refusals_max = refusals_max };

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
    struct command cmd = judged("ls / >/dev/null; rm -rf /nothing 2>/dev/null && exit 1; exit 9");
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

/* From the second command on, processes come from the launcher (sandbox/init/launcher.c), and its filter is the same for all
   of them: each question must still be about the command that asks. */
static void commands_with_one_filter_are_told_apart(void **state)
{
    struct command first = judged("exit 0");
    unsigned right = 0;
    int judge = become_judge();

    (void)state;
    if (!fx.cgroup[0])
        skip();
    for (int round = 0; round < 4; round++) {
        struct command one = first, other = first;
        struct box_spawned s = spawn(&first), a, b;

        assert_int_equal(expect_exit(s.proc).exit_code, 0);
        poll(NULL, 0, 50); /* a spare is made */
        one.argv[2] = "rm /one; exit 3";
        other.argv[2] = "rm /other; exit 3";
        a = spawn(&one);
        b = spawn(&other);
        for (int i = 0; i < 2; i++) {
            const struct box_exec_ask *ask = expect_on(judge, BOX_EXEC_ASK, NULL);
            const char *words = (const char *)(ask + 1);
            const char *path = words + strlen(words) + 1 + strlen("rm") + 1;

            right += (ask->proc == a.proc && strcmp(path, "/one") == 0) ||
                     (ask->proc == b.proc && strcmp(path, "/other") == 0);
            send_verdict(judge, ask->ask, false);
        }
        for (int i = 0; i < 4; i++) { /* for each of the two: refused, ended */
            assert_int_equal(receive_from(fx.sock, &last, 5000), 1);
            if (last.head.type == BOX_EXITED)
                assert_int_equal(((const struct box_exited *)last.body)->end.denied, 1);
        }
    }
    assert_int_equal(right, 8);
    close(judge);
    close(first.fds[0]);
}

/* The profile asks: then the launcher's processes ask as well, whatever the spawn says. */
static void a_spawn_that_forgets_to_notify_is_asked_about_all_the_same(void **state)
{
    struct command cmd = judged("exit 0");
    int judge = become_judge();
    struct box_spawned s = spawn(&cmd);

    (void)state;
    if (!fx.cgroup[0])
        skip();
    assert_int_equal(expect_exit(s.proc).exit_code, 0);
    poll(NULL, 0, 1500); /* the launcher is made, a second after the first command */
    cmd.flags &= ~(uint32_t)SPAWN_NOTIFY;
    cmd.argv[2] = "/bin/rm --version >/dev/null 2>&1 && exit 1; exit 9";
    s = spawn(&cmd);
    judge_one(judge, "/rm");
    expect(BOX_EXEC_DENIED, NULL);
    assert_int_equal(expect_exit(s.proc).exit_code, 9);
    close(judge);
    close(cmd.fds[0]);
}

#if defined(__x86_64__)
/* The program run as a command: execve by the number of 32-bit programs. */
static int execve_of_32_bits(void)
{
    long rc;

    __asm__ volatile("int $0x80" : "=a"(rc) : "a"(11), "b"(0), "c"(0), "d"(0) : "memory");
    return rc == -EPERM ? 9 : 1;
}

static void a_32_bit_execve_is_refused_and_told(void **state)
{
    struct command cmd = judged("exit 0");
    char own[4096];
    ssize_t len = readlink("/proc/self/exe", own, sizeof(own) - 1);
    int judge = become_judge();
    struct box_spawned s = spawn(&cmd);
    struct cove_end end;
    unsigned told = 0;
    struct msg m;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    assert_int_equal(expect_exit(s.proc).exit_code, 0);
    poll(
        NULL, 0,
        1500); /* the filter of this test asks about native calls alone, the launcher's about both */
    own[len > 0 ? len : 0] = '\0';
    cmd.user = "root";
    cmd.argv[0] = own;
    cmd.argv[1] = "--32";
    cmd.argv[2] = NULL;
    send_spawn(fx.sock, &cmd);
    do { /* the refusal may be told before the start, which the launcher's wake-up ends */
        assert_int_equal(receive_from(fx.sock, &m, 5000), 1);
        if (m.head.type == BOX_EXEC_DENIED)
            told += strstr((const char *)m.body + sizeof(struct box_proc_ref), "32-bit") != NULL;
    } while (m.head.type != BOX_EXITED);
    end = ((const struct box_exited *)m.body)->end;
    if (end.signal)
        skip(); /* a kernel that runs no 32-bit calls */
    assert_int_equal(end.exit_code, 9);
    assert_int_equal(end.denied, 1);
    assert_int_equal(told, 1);
    close(judge);
    close(cmd.fds[0]);
}
#endif

/* How many words stand in a file, and the last of them. */
static size_t count_words(int fd, char *last_word, size_t size)
{
    static char bytes[2 * 1024 * 1024];
    ssize_t len = pread(fd, bytes, sizeof(bytes), 0);
    size_t count = 0;

    assert_true(len > 0);
    for (const char *at = bytes; at < bytes + len; at += strlen(at) + 1) {
        text_copy(last_word, size, at);
        count++;
    }
    return count;
}

static void ten_thousand_arguments_are_all_shown_to_the_judge(void **state)
{
    struct command cmd = judged("/bin/echo $(seq 10000) the-end >/dev/null; exit 0");
    int judge = become_judge();
    const struct box_exec_ask *ask;
    char last_word[64] = "";
    uint32_t proc;
    int words;

    (void)state;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    judge_one(judge, "/rm");                      /* seq */
    ask = expect_on(judge, BOX_EXEC_ASK, &words); /* too long for a message: a file */
    assert_int_equal(ask->truncated, 0);
    assert_int_equal(ask->argc, 10003); /* the file, echo, the numbers, the end */
    assert_int_equal(count_words(words, last_word, sizeof(last_word)), 10003);
    close(words);
    assert_string_equal(last_word, "the-end");
    send_verdict(judge, ask->ask, true);
    assert_int_equal(expect_exit(proc).exit_code, 0);
    close(judge);
    close(cmd.fds[0]);
}

/* More at once than a socket holds: they wait their turn, and the judge is not lost. */
static void a_storm_of_execves_is_judged_one_after_the_other(void **state)
{
    struct command cmd = judged("i=0; while [ $i -lt 200 ]; do /bin/true & i=$((i+1)); done; wait");
    int judge = become_judge();
    struct cove_end end;
    uint32_t proc;

    (void)state;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    for (int i = 0; i < 200; i++)
        judge_one(judge, "/rm");
    end = expect_exit(proc);
    assert_int_equal(end.exit_code, 0);
    assert_int_equal(end.denied, 0);
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
    struct command cmd = judged("/bin/ls / && exit 1; exit 5");
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

static void a_judge_that_never_answers_is_not_waited_for_forever(void **state)
{
    struct command cmd = judged("/bin/ls /; exit 6");
    int judge = become_judge();
    struct cove_end end;
    struct msg denied;
    uint32_t proc;

    (void)state;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    expect_on(judge, BOX_EXEC_ASK, NULL);
    assert_init_answers();
    assert_int_equal(receive_from(fx.sock, &denied, 2 * ANSWER_MS), 1);
    assert_int_equal(denied.head.type, BOX_EXEC_DENIED);
    end = expect_exit(proc);
    assert_int_equal(end.exit_code, 6);
    assert_int_equal(end.denied, 1);
    close(judge);
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

/* Whoever can connect to init must not be able to answer for the judge. */
static void an_answer_that_is_not_the_judges_counts_for_nothing(void **state)
{
    struct command cmd = judged("/bin/rm -rf /nothing 2>/dev/null; exit 3");
    int judge = become_judge(), stranger = fixture_connect();
    const struct box_exec_ask *ask;
    struct cove_end end;
    struct msg hung_up;
    uint64_t number;
    uint32_t proc;

    (void)state;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    ask = expect_on(judge, BOX_EXEC_ASK, NULL);
    number = ask->ask;
    send_verdict(stranger, number, true);
    assert_int_equal(receive_from(stranger, &hung_up, ANSWER_MS), 0); /* init wants no more of it */
    send_verdict(judge, number, false);
    expect(BOX_EXEC_DENIED, NULL);
    end = expect_exit(proc);
    assert_int_equal(end.exit_code, 3);
    assert_int_equal(end.denied, 1);
    close(stranger);
    close(judge);
    close(cmd.fds[0]);
}

/* An answer that comes a second time, or for a question that nobody asked, must not be taken for the
 * answer to the next question. */
static void a_late_answer_does_not_answer_the_next_question(void **state)
{
    struct command cmd =
        judged("/bin/rm -rf /one 2>/dev/null; /bin/rm -rf /two 2>/dev/null; exit 3");
    int judge = become_judge();
    struct cove_end end;
    uint64_t first, second;
    uint32_t proc;

    (void)state;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    first = ((const struct box_exec_ask *)expect_on(judge, BOX_EXEC_ASK, NULL))->ask;
    send_verdict(judge, first, false);
    expect(BOX_EXEC_DENIED, NULL);
    second = ((const struct box_exec_ask *)expect_on(judge, BOX_EXEC_ASK, NULL))->ask;
    assert_true(second != first);
    send_verdict(judge, first, true);
    send_verdict(judge, second + 1000, true);
    send_verdict(judge, second, false);
    expect(BOX_EXEC_DENIED, NULL);
    end = expect_exit(proc);
    assert_int_equal(end.exit_code, 3);
    assert_int_equal(end.denied, 2);
    close(judge);
    close(cmd.fds[0]);
}

static void a_command_that_is_refused_too_often_is_ended_and_told_why(void **state)
{
    struct command cmd = judged("while :; do /bin/rm -rf /x 2>/dev/null; done");
    int judge = become_judge();
    struct cove_end end;
    uint32_t proc;

    (void)state;
    refusals_max = 3;
    send_spawn(fx.sock, &cmd);
    proc = ((const struct box_spawned *)expect(BOX_SPAWNED, NULL))->proc;
    for (int i = 0; i < 3; i++) {
        judge_one(judge, "/rm");
        expect(BOX_EXEC_DENIED, NULL);
    }
    refusals_max = 0;
    end = expect_exit(proc);
    assert_int_equal(end.signal, SIGKILL);
    assert_int_equal(end.cause, END_POLICY);
    assert_int_equal(end.limit, 3);
    assert_int_equal(end.denied, 3);
    close(judge);
    close(cmd.fds[0]);
}

/* ------------------------------------------------------------------ listeners come and go with their commands */

/* Descriptors of init that are seccomp listeners. */
static int listener_count(void)
{
    char path[320], target[64];
    int count = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)fx.init);
    dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *d = readdir(dir); d; d = readdir(dir)) {
        ssize_t len;

        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)fx.init, d->d_name);
        len = readlink(path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        count += strstr(target, "seccomp") != NULL;
    }
    closedir(dir);
    return count;
}

static bool there_is_no_listener(void *arg)
{
    (void)arg;
    return listener_count() == 0;
}

static bool is_zombie(void *pid)
{
    char path[64], line[256] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)*(pid_t *)pid);
    f = fopen(path, "re");
    assert_non_null(f);
    if (!fgets(line, sizeof(line), f))
        line[0] = '\0';
    fclose(f);
    return strstr(line, ") Z ") != NULL;
}

/* The filter is freed when its listener is closed, and this work would delay the end of the command. A process that
   is traced is not told to init as ended before its tracer has seen the end. */
static void a_listener_is_closed_when_the_end_has_been_told(void **state)
{
    struct command cmd = judged("read -r line; exit 3");
    struct box_spawned s;
    int ends[2];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    cmd.flags |= SPAWN_FD_STDIN;
    cmd.fds[1] = cmd.fds[0];
    cmd.fds[0] = ends[0];
    cmd.fd_count = 2;
    s = spawn(&cmd);
    pid = (pid_t)s.pid;
    assert_int_equal(listener_count(), 1);
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0)
        skip(); /* needs CAP_SYS_PTRACE */
    assert_int_equal(write(ends[1], "\n", 1), 1);
    assert_true(eventually(is_zombie, &pid));
    assert_init_answers();
    assert_init_answers(); /* by now init has seen all that happened before */
    assert_int_equal(listener_count(), 1);
    assert_int_equal(waitpid(pid, NULL, __WALL), pid);
    assert_int_equal(expect_exit(s.proc).exit_code, 3);
    assert_true(eventually(there_is_no_listener, NULL));
    close(ends[0]);
    close(ends[1]);
    close(cmd.fds[1]);
}

static void no_listener_outlives_its_command(void **state)
{
    struct command cmd = judged("exit 0"), none = cmd;

    (void)state;
    none.argv[0] = "there-is-no-such-program";
    for (int i = 0; i < 20; i++) {
        struct box_spawned s = spawn(&cmd);

        assert_int_equal(expect_exit(s.proc).exit_code, 0);
        send_spawn(fx.sock, &none);
        assert_int_equal(expect_error(), COVE_NOT_FOUND);
    }
    assert_true(eventually(there_is_no_listener, NULL));
    close(cmd.fds[0]);
}

static void what_a_command_leaves_behind_is_judged_until_it_ends(void **state)
{
    struct command cmd = judged("(read -r line < $FIFO; /bin/rm -rf /nothing) & exit 0");
    int judge = become_judge(), fifo;
    struct box_spawned s;
    char env[128];

    (void)state;
    snprintf(env, sizeof(env), "FIFO=%s", in_dir("fifo"));
    assert_int_equal(mkfifo(in_dir("fifo"), 0666), 0);
    assert_int_equal(chmod(in_dir("fifo"), 0666), 0);
    cmd.env[1] = env;
    s = spawn(&cmd);
    assert_int_equal(expect_exit(s.proc).exit_code, 0);
    fifo = open(in_dir("fifo"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(write(fifo, "\n", 1), 1);
    assert_int_equal(listener_count(), 1);
    judge_one(judge, "/rm");
    assert_true(eventually(there_is_no_listener, NULL));
    close(fifo);
    close(judge);
    close(cmd.fds[0]);
}

int main(int argc, char **argv)
{
#define PLAIN(t)       cmocka_unit_test_setup_teardown(t, fixture_start, fixture_stop)
#define WITH_CGROUP(t) cmocka_unit_test_setup_teardown(t, fixture_start_with_cgroup, fixture_stop)
    const struct CMUnitTest tests[] = {
        PLAIN(every_execve_is_judged_and_a_denial_is_told),
        WITH_CGROUP(commands_with_one_filter_are_told_apart),
        WITH_CGROUP(a_spawn_that_forgets_to_notify_is_asked_about_all_the_same),
#if defined(__x86_64__)
        WITH_CGROUP(a_32_bit_execve_is_refused_and_told),
#endif
        PLAIN(a_command_that_is_refused_too_often_is_ended_and_told_why),
        PLAIN(ten_thousand_arguments_are_all_shown_to_the_judge),
        PLAIN(a_storm_of_execves_is_judged_one_after_the_other),
        PLAIN(the_commands_own_execve_needs_no_second_verdict),
        PLAIN(without_a_judge_execve_is_refused_after_a_while_and_init_goes_on),
        PLAIN(a_judge_that_never_answers_is_not_waited_for_forever),
        PLAIN(a_judge_that_vanishes_is_replaced_by_the_next),
        PLAIN(a_new_judge_takes_the_place_of_the_one_before),
        PLAIN(an_answer_that_is_not_the_judges_counts_for_nothing),
        PLAIN(a_late_answer_does_not_answer_the_next_question),
        PLAIN(a_listener_is_closed_when_the_end_has_been_told),
        PLAIN(no_listener_outlives_its_command),
        WITH_CGROUP(no_listener_outlives_its_command),
        PLAIN(what_a_command_leaves_behind_is_judged_until_it_ends),
    };

#if defined(__x86_64__)
    if (argc == 2 && strcmp(argv[1], "--32") == 0)
        return execve_of_32_bits();
#endif
    (void)argc;
    (void)argv;
    if (geteuid() != 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
