/* cove-init, the process made ahead: it makes commands quicker and changes nothing else. */
#include "config.h" /* _GNU_SOURCE */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
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
#include "tests/unit/init_filters.h"
#include "tests/unit/init_fixture.h"

enum { HELD_MS = 12000 }; /* above START_MS of init */
enum { SOON_MS = 3000 };  /* far below it */

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
        assert_true(eventually(is_gone, &launcher));
        run_filtered("exit 3", filter, 3);
    }
    close(filter);
}

/* The launcher may die with the order in its hands: then the client is told, and the next command runs. */
static void a_launcher_that_dies_over_an_order_costs_one_command_at_most(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    struct command cmd = filtered("exit 3", filter);

    (void)state;
    if (!fx.cgroup[0])
        skip();
    for (int i = 0; i < 3; i++) {
        struct msg m;
        pid_t launcher;

        run_filtered("exit 0", filter, 0);
        launcher = launcher_pid();
        assert_true(eventually(find_spare, NULL));
        kill(spare_pid, SIGKILL);
        kill(launcher, SIGKILL);
        send_spawn(fx.sock, &cmd);
        assert_int_equal(receive_from(fx.sock, &m, SOON_MS), 1);
        if (m.head.type == BOX_SPAWNED)
            expect(BOX_EXITED, NULL);
        else
            assert_int_equal(((const struct cove_err *)m.body)->code, COVE_LIMIT);
        assert_true(eventually(is_gone, &launcher));
    }
    close(filter);
}

/* Two commands: the spare, and one that waits for the launcher. The launcher is ended for them, the first one runs
   on, the second one is told. */
static void a_launcher_that_is_held_is_ended(void **state)
{
    pid_t launcher;
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    struct command first = filtered("sleep 9; exit 7", filter);
    struct command second = filtered("exit 0", filter);
    unsigned began = 0, told = 0;
    struct msg m;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    launcher = launcher_pid();
    if (ptrace(PTRACE_SEIZE, launcher, NULL, NULL) < 0)
        skip();                                     /* needs CAP_SYS_PTRACE */
    ptrace(PTRACE_INTERRUPT, launcher, NULL, NULL); /* of this stop SIGCONT is no end */
    send_spawn(fx.sock, &first);
    send_spawn(fx.sock, &second);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(receive_from(fx.sock, &m, HELD_MS), 1);
        began += m.head.type == BOX_SPAWNED;
        told += m.head.type == MSG_ERROR && ((const struct cove_err *)m.body)->code == COVE_LIMIT;
    }
    assert_true(began == 1 && told == 1);
    assert_int_equal(((const struct box_exited *)expect(BOX_EXITED, NULL))->end.exit_code, 7);
    assert_int_equal(waitpid(launcher, NULL, __WALL), launcher); /* the last stop, or the end */
    run_filtered("exit 5", filter, 5);
    close(filter);
}

static void run_two_at_once(int filter)
{
    struct command cmd = filtered("exit 6", filter);
    struct msg m;

    send_spawn(fx.sock, &cmd);
    send_spawn(fx.sock, &cmd);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(receive_from(fx.sock, &m, SOON_MS), 1);
        assert_true(m.head.type == BOX_SPAWNED || m.head.type == BOX_EXITED);
    }
}

static void one_that_was_stopped_goes_on(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    kill(launcher_pid(), SIGSTOP);
    run_two_at_once(filter);
    assert_true(eventually(find_spare, NULL));
    kill(spare_pid, SIGSTOP);
    run_two_at_once(filter);
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

/* A profile may also answer as if a call were done. What the launcher's process does to become the command is done. */
static const struct sock_filter pretends[] = {
    LOAD_NUMBER,
    IF_ANSWER(SYS_setgroups, SECCOMP_RET_ERRNO | 0),
    IF_ANSWER(SYS_setresgid, SECCOMP_RET_ERRNO | 0),
    IF_ANSWER(SYS_setresuid, SECCOMP_RET_ERRNO | 0),
    IF_ANSWER(SYS_setfsuid, SECCOMP_RET_ERRNO | 0),
    IF_ANSWER(SYS_prctl, SECCOMP_RET_ERRNO | 0),
    IF_ANSWER(SYS_prlimit64, SECCOMP_RET_ERRNO | 0),
    RETURN(SECCOMP_RET_ALLOW),
};

static void what_a_profile_only_pretends_is_done_for_the_command(void **state)
{
    static const char script[] =
        "test \"$(id -u)\" != 0 && test \"$(id -g)\" != 0 &&"
        "grep -q 'open files  *77 ' /proc/self/limits &&"
        "grep -Eq 'CapPrm:.0{16}' /proc/self/status &&"
        "! grep -q '^Groups:.*4711' /proc/self/status && exit 9"; /* main() gives init that group */
    int filter = filter_file(pretends, sizeof(pretends));
    struct command cmd = filtered(script, filter);

    (void)state;
    if (!fx.cgroup[0])
        skip();
    cmd.max_open_files = 77;
    for (int i = 0; i < 3; i++) {
        struct box_spawned s = spawn(&cmd);

        assert_int_equal(expect_exit(s.proc).exit_code, 9);
        assert_true(eventually(find_spare, NULL));
    }
    close(filter);
}

/* Root may run a program in a directory of somebody else, by the first command as by those of the launcher. */
static void root_reaches_a_program_whichever_way_it_is_started(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    struct command cmd = filtered("", filter);
    FILE *f;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    assert_int_equal(mkdir(in_dir("closed"), 0700), 0);
    f = fopen(in_dir("closed/run"), "we");
    assert_non_null(f);
    fputs("#!/bin/sh\nexit 8\n", f);
    fclose(f);
    assert_int_equal(chmod(in_dir("closed/run"), 0755), 0);
    assert_int_equal(chown(in_dir("closed"), 65534, 65534), 0);
    cmd.user = "root";
    cmd.argv[0] = in_dir("closed/run");
    cmd.argv[1] = NULL;
    for (int i = 0; i < 3; i++) {
        struct box_spawned s = spawn(&cmd);

        assert_int_equal(expect_exit(s.proc).exit_code, 8);
        assert_true(eventually(find_spare, NULL));
    }
    close(filter);
}

/* ------------------------------------------------------------------ the number that lets the launcher's calls pass */

/* The program run as a command: does this call pass with this number in its sixth argument? */
static int try_call(const char *call, const char *number)
{
    errno = 0;
    syscall(atol(call), -1L, -1L, -1L, 0L, 0L, strtoull(number, NULL, 16));
    return errno == ENOTTY ? 1 : 0;
}

/* Only the host's root can read a filter. 0: this kernel, or a filter of our own, does not let us. */
static uint64_t number_of(pid_t launcher)
{
    static struct sock_filter code[BPF_MAXINSNS];
    const uint32_t sixth = offsetof(struct seccomp_data, args[5]);
    uint32_t low = 0, high = 0;
    long len = 0, n;

    if (ptrace(PTRACE_SEIZE, launcher, NULL, NULL) < 0 ||
        ptrace(PTRACE_INTERRUPT, launcher, NULL, NULL) < 0 ||
        waitpid(launcher, NULL, __WALL) != launcher)
        return 0;
    for (long i = 0; (n = ptrace(PTRACE_SECCOMP_GET_FILTER, launcher, (void *)i, code)) > 0; i++)
        len = n; /* the last one is the newest */
    for (long i = 0; i + 1 < len && i < 40; i++) {
        if (code[i].code == (BPF_LD | BPF_W | BPF_ABS) && code[i].k == sixth)
            low = code[i + 1].k;
        if (code[i].code == (BPF_LD | BPF_W | BPF_ABS) && code[i].k == sixth + 4)
            high = code[i + 1].k;
    }
    ptrace(PTRACE_DETACH, launcher, NULL, NULL);
    return (uint64_t)high << 32 | low;
}

static const struct sock_filter odd_answers[] = {
    LOAD_NUMBER,
    IF_ANSWER(SYS_setfsuid, SECCOMP_RET_ERRNO | ENOTTY),
    IF_ANSWER(SYS_fchmod, SECCOMP_RET_ERRNO | ENOTTY),
    RETURN(SECCOMP_RET_ALLOW),
};

static bool passes(int filter, long call, uint64_t number)
{
    struct command cmd = filtered("", filter);
    char call_text[32], number_text[32], own[4096];
    ssize_t len = readlink("/proc/self/exe", own, sizeof(own) - 1);
    struct box_spawned s;

    own[len > 0 ? len : 0] = '\0';
    snprintf(call_text, sizeof(call_text), "%ld", call);
    snprintf(number_text, sizeof(number_text), "%llx", (unsigned long long)number);
    cmd.user = "root";
    cmd.argv[0] = own;
    cmd.argv[1] = call_text;
    cmd.argv[2] = number_text;
    s = spawn(&cmd);
    return expect_exit(s.proc).exit_code == 0;
}

static void only_the_whole_number_lets_only_the_launchers_calls_pass(void **state)
{
    int filter = filter_file(odd_answers, sizeof(odd_answers));
    uint64_t number;
    pid_t launcher;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    launcher = launcher_pid();
    assert_true(eventually(find_spare, NULL));
    kill(spare_pid,
         SIGKILL); /* the launcher sleeps while a spare waits, and cannot be stopped then */
    number = number_of(launcher);
    if (!number)
        skip();
    assert_true(passes(filter, SYS_setfsuid, number));
    assert_false(passes(filter, SYS_setfsuid, number ^ 1));
    assert_false(passes(filter, SYS_setfsuid, number ^ 1ULL << 32));
    assert_false(passes(filter, SYS_setfsuid, number ^ 1ULL << 63));
    assert_false(passes(filter, SYS_setfsuid, 0));
    assert_false(passes(filter, SYS_setfsuid, ~0ULL));
    assert_false(passes(filter, SYS_fchmod, number));
    assert_true(eventually(find_spare, "cove-launcher"));
    assert_int_equal(spare_pid, launcher); /* one number all the time */
    close(filter);
}

/* ------------------------------------------------------------------ what a command can see of both */

static int fd_count_of(pid_t pid)
{
    char path[64];
    int count = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *d = readdir(dir); d; d = readdir(dir))
        count += d->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* By somebody with all capabilities but CAP_SYS_PTRACE in force: only a process that is not dumpable refuses him. */
static bool can_be_traced(pid_t pid)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct caps[2];

        syscall(SYS_capget, &head, caps);
        caps[0].effective &= ~(1U << CAP_SYS_PTRACE);
        if (syscall(SYS_capset, &head, caps) < 0)
            _exit(2);
        _exit(ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 1;
}

static bool has_four_descriptors(void *pid)
{
    return fd_count_of(*(pid_t *)pid) == 4; /* /dev/null three times, and its socket to init */
}

static void assert_closed(pid_t pid)
{
    assert_false(can_be_traced(pid));
    /* More than a command of root can have: the kernel refuses those who have fewer. */
    assert_true(status_number(pid, "CapPrm", 16) & ~status_number(pid, "CapBnd", 16));
    assert_int_equal(status_number(pid, "Seccomp_filters", 10),
                     status_number(fx.init, "Seccomp_filters", 10) + 1);
}

static void neither_can_be_looked_into_or_holds_anything_of_inits(void **state)
{
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    pid_t launcher, spare;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    run_filtered("exit 0", filter,
                 0); /* the launcher has made a process that became another user */
    launcher = launcher_pid();
    assert_true(eventually(find_spare, NULL));
    spare = spare_pid;
    assert_closed(spare);
    assert_true(eventually(has_four_descriptors, &spare));
    assert_closed(launcher);
    kill(spare, SIGKILL);
    assert_true(eventually(has_four_descriptors, &launcher));
    close(filter);
}

static void commands_that_come_at_once_have_a_process_each(void **state)
{
    enum { COUNT = 12 };
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    struct box_spawned s[COUNT];
    struct command cmd;
    char script[256];

    (void)state;
    if (!fx.cgroup[0])
        skip();
    run_filtered("exit 0", filter, 0);
    snprintf(script, sizeof(script),
             "mkdir /tmp/x 2>/dev/null && exit 1; until test -e %s; do sleep 0.05; done; exit 4",
             in_dir("go"));
    cmd = filtered(script, filter);
    launcher_pid();
    for (int i = 0; i < COUNT; i++) {
        s[i] = spawn(&cmd);
        assert_true(s[i].pid > 1);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(s[i].pid, s[j].pid);
    }
    close(open(in_dir("go"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
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

/* It lives as long as commands come, and a ring that it had mapped would take memory as long. */
static void the_launcher_holds_no_log(void **state)
{
    struct command logged = {
        .cwd = "/", .argv = { "/bin/sleep", "1000" }, .flags = SPAWN_LOG, .log_bytes = 65536
    };
    int filter = filter_file(no_mkdir, sizeof(no_mkdir));
    char path[64], line[512];
    bool has_ring = false;
    FILE *f;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    spawn(&logged);
    run_filtered("exit 0", filter, 0);
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)launcher_pid());
    f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        has_ring |= strstr(line, "cove-ring") != NULL;
    fclose(f);
    assert_false(has_ring);
    close(filter);
}

int main(int argc, char **argv)
{
#define WITH(t) cmocka_unit_test_setup_teardown(t, fixture_start_with_cgroup, fixture_stop)
    const struct CMUnitTest tests[] = {
        WITH(the_next_command_becomes_of_the_process_made_ahead),
        WITH(it_is_under_the_filter_and_in_its_own_cgroup),
        WITH(one_that_was_killed_is_not_missed),
        WITH(a_launcher_that_was_killed_is_not_missed),
        WITH(a_launcher_that_dies_over_an_order_costs_one_command_at_most),
        WITH(a_launcher_that_is_held_is_ended),
        WITH(one_that_was_stopped_goes_on),
        WITH(calls_that_the_launcher_needs_stay_refused_to_commands),
        WITH(what_a_profile_only_pretends_is_done_for_the_command),
        WITH(root_reaches_a_program_whichever_way_it_is_started),
        WITH(only_the_whole_number_lets_only_the_launchers_calls_pass),
        WITH(neither_can_be_looked_into_or_holds_anything_of_inits),
        WITH(commands_that_come_at_once_have_a_process_each),
        WITH(another_filter_starts_in_the_ordinary_way),
        WITH(what_it_cannot_do_is_told_as_ever),
        WITH(it_keeps_nobodys_pipe_open),
        WITH(the_launcher_holds_no_log),
    };

    if (argc == 3)
        return try_call(argv[1], argv[2]);
    if (geteuid() != 0 || setgroups(1, &(gid_t){ 4711 }) < 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
