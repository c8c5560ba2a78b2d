/* cove-init, how processes end: signals, trees, ties, causes, records. */
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
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "tests/unit/init_fixture.h"

/* --------------------------------------------------------------- signals and ends */

static struct box_spawned sleeper(uint32_t flags)
{
    return spawn(
        &(struct command){ .argv = { "sleep", "1000" }, .flags = flags, .label = "sleeper" });
}

static void a_signal_with_a_cause_is_told_in_the_end(void **state)
{
    struct box_signal sig = {
        .signo = SIGKILL, .scope = SIGNAL_GROUP, .cause = END_DEADLINE, .limit = 60000
    };
    struct cove_end end;

    (void)state;
    sig.proc = sleeper(0).proc;
    ASK(BOX_SIGNAL, sig, "");
    expect(MSG_DONE, NULL);
    end = expect_exit(sig.proc);
    assert_int_equal(end.signal, SIGKILL);
    assert_int_equal(end.cause, END_DEADLINE);
    assert_int_equal(end.limit, 60000);
}

/* Until that process has set its trap: init runs in our own pid namespace here. */
static void wait_for_handler(pid_t pid, int signo)
{
    char path[32], line[128];

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    for (int tries = 0; tries < 1000; tries++) {
        unsigned long long caught = 0;
        FILE *f = fopen(path, "re");

        while (f && fgets(line, sizeof(line), f))
            sscanf(line, "SigCgt: %llx", &caught);
        if (f)
            fclose(f);
        if (caught & (1ULL << (signo - 1)))
            return;
        usleep(10000);
    }
    fail_msg("process %d never caught signal %d", (int)pid, signo);
}

static void a_signal_that_did_not_end_it_is_not_its_cause(void **state)
{
    struct command cmd = { .argv = { "sh", "-c",
                                     "trap 'exit 5' TERM; while :; do sleep 0.01; done" } };
    struct box_signal sig = { .signo = SIGTERM, .scope = SIGNAL_PROCESS, .cause = END_KILLED };
    struct box_spawned s;
    struct cove_end end;

    (void)state;
    s = spawn(&cmd);
    sig.proc = s.proc;
    wait_for_handler((pid_t)s.pid, SIGTERM);
    ASK(BOX_SIGNAL, sig, "");
    expect(MSG_DONE, NULL);
    end = expect_exit(sig.proc);
    assert_int_equal(end.exit_code, 5);
    assert_int_equal(end.cause, END_OWN);
}

static const struct {
    const char *because, *script;
    uint32_t cause;
    uint64_t limit;
} limits_hit[] = {
    { "killed when memory ran out", "echo oom_kill 4 > memory/memory.oom_control; kill -9 $$",
      END_MEMORY, 536870912 },
    { "its child was, and the shell says 137",
      "echo oom_kill 5 > memory/memory.oom_control; exit 137", END_MEMORY, 536870912 },
    { "killed, but memory did not run out", "kill -9 $$", END_OWN, 0 },
    { "memory ran out for somebody else", "echo oom_kill 6 > memory/memory.oom_control; exit 1",
      END_OWN, 0 },
    { "no more processes, and it failed", "echo max 1 > pids/pids.events; exit 2", END_PIDS, 64 },
    { "no more processes, and it coped", "echo max 2 > pids/pids.events; exit 0", END_OWN, 0 },
};

static void a_limit_that_was_hit_is_told_with_its_figure(void **state)
{
    char out[100];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(limits_hit); i++) {
        struct command cmd = { .cwd = fx.dir, .argv = { "sh", "-c", limits_hit[i].script } };
        struct cove_end end = run(&cmd, out, sizeof(out));

        if (end.cause != limits_hit[i].cause || end.limit != limits_hit[i].limit)
            fail_msg("%s: got %s, %llu", limits_hit[i].because, end_cause_name(end.cause),
                     (unsigned long long)end.limit);
    }
}

static void signals_that_make_no_sense_are_refused(void **state)
{
    struct box_signal sig = { .proc = sleeper(0).proc, .signo = 0 };

    (void)state;
    ASK(BOX_SIGNAL, sig, "");
    assert_int_equal(expect_error(), COVE_INVALID);
    sig.signo = 65;
    ASK(BOX_SIGNAL, sig, "");
    assert_int_equal(expect_error(), COVE_INVALID);
    sig.signo = SIGTERM;
    sig.scope = SIGNAL_TREE;
    ASK(BOX_SIGNAL, sig, "");
    assert_int_equal(expect_error(), COVE_INVALID);
    sig = (struct box_signal){ .proc = 9999, .signo = SIGTERM };
    ASK(BOX_SIGNAL, sig, "");
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
}

static void who_waits_is_told_at_once_or_later(void **state)
{
    struct box_spawned s = sleeper(SPAWN_RECORD);
    struct box_proc_ref ref = { .proc = s.proc };
    struct box_signal sig = { .proc = s.proc, .signo = SIGTERM, .cause = END_KILLED };
    int other = fixture_connect();

    (void)state;
    send_on(other, BOX_WAIT, 77, &ref, sizeof(ref), "", 1, NULL, 0);
    send_on(other, BOX_PING, 78, NULL, 0, NULL, 0, NULL, 0);
    expect_on(other, MSG_DONE, NULL); /* it waits, and is served meanwhile */
    ASK(BOX_FORGET, ref, "");
    assert_int_equal(expect_error(), COVE_CONFLICT); /* not while it runs */
    ASK(BOX_SIGNAL, sig, "");
    expect(MSG_DONE, NULL);
    assert_int_equal(expect_exit(s.proc).cause, END_KILLED);
    assert_int_equal(((const struct box_exited *)expect_on(other, BOX_EXITED, NULL))->proc, s.proc);
    assert_int_equal(last.head.tag, 77);
    send_on(other, BOX_WAIT, 79, &(struct box_proc_ref){ 0 }, sizeof(ref), "sleeper", 8, NULL, 0);
    assert_int_equal(((const struct box_exited *)expect_on(other, BOX_EXITED, NULL))->proc, s.proc);
    ASK(BOX_FORGET, ref, "");
    expect(MSG_DONE, NULL);
    ASK(BOX_WAIT, ref, "");
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
    close(other);
}

static void a_client_that_vanishes_takes_what_is_tied_with_it_and_no_more(void **state)
{
    int before = init_fd_count(), other = fixture_connect();
    struct command cmd = { .argv = { "sleep", "1000" }, .flags = SPAWN_TIED };
    pid_t tied, free_one;

    (void)state;
    send_spawn(other, &cmd);
    tied = (pid_t)((const struct box_spawned *)expect_on(other, BOX_SPAWNED, NULL))->pid;
    cmd.flags = SPAWN_RECORD;
    send_spawn(other, &cmd);
    free_one = (pid_t)((const struct box_spawned *)expect_on(other, BOX_SPAWNED, NULL))->pid;
    close(other);
    for (int i = 0; i < 500 && process_exists(&tied); i++)
        usleep(10000);
    assert_false(process_exists(&tied));
    assert_true(process_exists(&free_one));
    assert_true(eventually(init_holds_only, &before));
}

static pid_t read_pid_file(const char *path)
{
    for (int i = 0; i < 500; i++) {
        FILE *f = fopen(path, "r");
        int pid = 0;

        if (f && fscanf(f, "%d", &pid) != 1)
            pid = 0;
        if (f)
            fclose(f);
        if (pid > 0)
            return pid;
        usleep(10000);
    }
    fail_msg("%s never appeared", path);
    return 0;
}

static bool process_is_gone(void *pid)
{
    return !process_exists(pid);
}

/* A daemon that did all it can to get away: its own session, reparented. */
static pid_t start_daemon(uint32_t flags, const char *then, struct box_spawned *ret)
{
    char script[300];

    snprintf(script, sizeof(script), "(setsid sh -c 'echo $$ > %s/pid; exec sleep 1000' &) ; %s",
             fx.dir, then);
    *ret = spawn(&(struct command){ .argv = { "sh", "-c", script }, .flags = flags });
    return read_pid_file(in_dir("pid"));
}

static void the_whole_tree_is_killed_with_the_connection_it_is_tied_to(void **state)
{
    struct box_spawned s;
    pid_t daemon;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    daemon = start_daemon(SPAWN_TIED, "sleep 1000", &s);
    close(fx.sock);
    assert_true(eventually(process_is_gone, &daemon));
    fx.sock = fixture_connect();
}

/* The directory of the command's cgroup that this process is in: below fx.cgroup. */
static void find_cgroup(uint32_t pid, char out[300])
{
    char path[64], text[4096], *at;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%u/cgroup", pid);
    f = fopen(path, "re");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    at = strstr(text, "0::");
    assert_non_null(at);
    at[strcspn(at, "\n")] = '\0';
    snprintf(out, 300, "%s%s", fx.cgroup, strrchr(at, '/'));
    assert_int_equal(access(out, F_OK), 0);
}

static bool is_removed(void *path)
{
    return access(path, F_OK) < 0;
}

static void a_daemon_outlives_its_shell_and_can_still_be_killed(void **state)
{
    static const uint32_t flags[] = { SPAWN_RECORD,
                                      0 /* then there is no record, only the tree */ };

    (void)state;
    if (!fx.cgroup[0])
        skip();
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        struct box_signal sig = { .scope = SIGNAL_TREE, .signo = SIGKILL, .cause = END_KILLED };
        struct box_spawned s;
        pid_t daemon = start_daemon(flags[i] | SPAWN_TIED, "exit 0", &s);
        char path[300];

        assert_int_equal(expect_exit(s.proc).exit_code, 0); /* the shell's end, not the daemon's */
        assert_true(process_exists(&daemon));
        find_cgroup((uint32_t)daemon, path);
        sig.proc = s.proc;
        ASK(BOX_SIGNAL, sig, "");
        expect(MSG_DONE, NULL);
        assert_true(eventually(process_is_gone, &daemon));
        assert_true(eventually(is_removed, path));
        unlink(in_dir("pid"));
    }
}

static void what_a_tied_command_left_running_stays_when_the_connection_ends_later(void **state)
{
    struct box_spawned s;
    pid_t daemon;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    daemon = start_daemon(SPAWN_TIED, "exit 0", &s);
    expect_exit(s.proc);
    close(fx.sock);
    fx.sock = fixture_connect();
    assert_init_answers();
    assert_true(process_exists(&daemon));
}

static void end_it(const struct box_spawned *s)
{
    ASK(BOX_SIGNAL, ((struct box_signal){ .proc = s->proc, .signo = SIGKILL }), "");
    expect(MSG_DONE, NULL);
    expect_exit(s->proc);
}

static void no_two_commands_have_one_cgroup_at_a_time(void **state)
{
    enum { MANY = 6 };
    struct box_spawned s[MANY], daemons;
    char path[MANY + 1][300];
    pid_t daemon;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    daemon = start_daemon(0, "exit 0", &daemons);
    expect_exit(daemons.proc);
    find_cgroup((uint32_t)daemon, path[MANY]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            s[i] = sleeper(0);
            find_cgroup(s[i].pid, path[i]);
            for (int j = 0; j < i; j++)
                assert_string_not_equal(path[i], path[j]);
            assert_string_not_equal(path[i], path[MANY]); /* a daemon is still in that one */
        }
        for (int i = 0; i < MANY; i++)
            end_it(&s[i]);
    }
    kill(daemon, SIGKILL);
    assert_true(eventually(is_removed, path[MANY]));
}

static uint64_t cpu_of(uint32_t proc)
{
    struct box_procs args = { .after = proc - 1 };
    const struct box_page *page;
    struct box_proc entry;

    send_on(fx.sock, BOX_PROCS, 1, &args, sizeof(args), NULL, 0, NULL, 0);
    page = expect(BOX_PROC_LIST, NULL);
    assert_int_equal(page->count, 1);
    memcpy(&entry, page + 1, sizeof(entry));
    assert_int_equal(entry.proc, proc);
    return entry.cpu_us;
}

static void a_cgroup_that_is_used_again_tells_nothing_of_the_command_before(void **state)
{
    struct command busy = { .argv = { "sh", "-c",
                                      "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done" },
                            .flags = SPAWN_RECORD };
    struct box_spawned s;
    uint64_t before;

    (void)state;
    if (!fx.cgroup[0])
        skip();
    s = spawn(&busy);
    expect_exit(s.proc);
    before = cpu_of(s.proc);
    for (int i = 0; i < 3; i++) {
        s = sleeper(0);
        assert_true(cpu_of(s.proc) < before);
        end_it(&s);
    }
}

/* Linux 6.18 kills what is cloned into a cgroup that was killed before. */
static void a_cgroup_that_was_killed_is_not_used_again(void **state)
{
    struct box_signal sig = { .scope = SIGNAL_TREE, .signo = SIGKILL, .cause = END_KILLED };
    struct box_spawned s;
    char path[300];

    (void)state;
    if (!fx.cgroup[0])
        skip();
    for (int i = 0; i < 3; i++) {
        s = sleeper(0);
        find_cgroup(s.pid, path);
        sig.proc = s.proc;
        ASK(BOX_SIGNAL, sig, "");
        expect(MSG_DONE, NULL);
        expect_exit(s.proc);
        assert_true(eventually(is_removed, path));
    }
}

/* Init holds files of eight cgroups open, three of each. */
static void many_commands_do_not_fill_inits_descriptors(void **state)
{
    enum { MANY = 40, OPEN = 8 * 3, SPARE = 8 };
    int before = init_fd_count();

    (void)state;
    if (!fx.cgroup[0])
        skip();
    for (int i = 0; i < MANY; i++)
        sleeper(0);
    assert_in_range(init_fd_count(), 1, before + OPEN + SPARE);
}

/* --------------------------------------------------------------- records */

static void records_are_listed_page_by_page_and_the_oldest_go_first(void **state)
{
    enum { MANY = 1100, KEPT = 1024 };
    struct box_procs args = { 0 };
    uint32_t seen = 0, before = 0, pages = 0, first = 0;
    bool more = true;

    (void)state;
    for (int i = 0; i < MANY; i++)
        expect_exit(spawn(&(struct command){ .argv = { "true", "with some argument" },
                                             .label = "a label that takes some room",
                                             .flags = SPAWN_RECORD })
                        .proc);
    while (more) {
        const struct box_page *page;
        const char *at;

        send_on(fx.sock, BOX_PROCS, 1, &args, sizeof(args), NULL, 0, NULL, 0);
        page = expect(BOX_PROC_LIST, NULL);
        at = (const char *)(page + 1);
        for (uint32_t i = 0; i < page->count; i++) {
            const struct box_proc *p = (const struct box_proc *)at;

            assert_true(p->proc > before);
            before = p->proc;
            first = first ? first : p->proc;
            assert_int_equal(p->running, 0);
            assert_string_equal((const char *)(p + 1), "a label that takes some room");
            assert_string_equal((const char *)(p + 1) + 29, "true with some argument");
            at += p->size;
            seen++;
        }
        assert_ptr_equal(at, (const char *)page + last.body_len);
        args.after = (uint32_t)page->next;
        more = page->more;
        pages++;
    }
    assert_int_equal(seen, KEPT);
    assert_int_equal(first, MANY - KEPT + 1);
    assert_true(pages > 1);
}

static void a_running_process_is_listed_with_what_it_uses(void **state)
{
    struct box_procs args = { 0 };
    struct box_spawned s = sleeper(0);
    const struct box_page *page;
    const struct box_proc *p;

    (void)state;
    send_on(fx.sock, BOX_PROCS, 1, &args, sizeof(args), NULL, 0, NULL, 0);
    page = expect(BOX_PROC_LIST, NULL);
    p = (const struct box_proc *)(page + 1);
    assert_int_equal(page->count, 1);
    assert_int_equal(p->proc, s.proc);
    assert_int_equal(p->pid, s.pid);
    assert_int_equal(p->running, 1);
    assert_true(p->memory_bytes > 0);
    assert_true(p->end.started_unix_ms > 0);
    assert_string_equal((const char *)(p + 1) + 8, "sleep 1000");
}

int main(void)
{
#define PLAIN(t)    cmocka_unit_test_setup_teardown(t, fixture_start, fixture_stop)
#define CGROUP(t)   cmocka_unit_test_setup_teardown(t, fixture_start_with_cgroup, fixture_stop)
#define COUNTERS(t) cmocka_unit_test_setup_teardown(t, fixture_start_with_counters, fixture_stop)
    const struct CMUnitTest tests[] = {
        PLAIN(a_signal_with_a_cause_is_told_in_the_end),
        PLAIN(a_signal_that_did_not_end_it_is_not_its_cause),
        COUNTERS(a_limit_that_was_hit_is_told_with_its_figure),
        PLAIN(signals_that_make_no_sense_are_refused),
        PLAIN(who_waits_is_told_at_once_or_later),
        PLAIN(a_client_that_vanishes_takes_what_is_tied_with_it_and_no_more),
        CGROUP(the_whole_tree_is_killed_with_the_connection_it_is_tied_to),
        CGROUP(a_daemon_outlives_its_shell_and_can_still_be_killed),
        CGROUP(what_a_tied_command_left_running_stays_when_the_connection_ends_later),
        CGROUP(no_two_commands_have_one_cgroup_at_a_time),
        CGROUP(a_cgroup_that_is_used_again_tells_nothing_of_the_command_before),
        CGROUP(a_cgroup_that_was_killed_is_not_used_again),
        CGROUP(many_commands_do_not_fill_inits_descriptors),
        CGROUP(records_are_listed_page_by_page_and_the_oldest_go_first),
        CGROUP(a_running_process_is_listed_with_what_it_uses),
    };

    if (geteuid() != 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
