/* cove-init, the protocol and spawning: what is taken, what a command gets. */
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/msg_keeper.h"
#include "tests/unit/init_filters.h"
#include "tests/unit/init_fixture.h"

static char out[65536];

/* --------------------------------------------------------------- the protocol */

static void ping_is_answered_with_the_same_tag(void **state)
{
    (void)state;
    send_on(fx.sock, BOX_PING, 4711, NULL, 0, NULL, 0, NULL, 0);
    expect(MSG_DONE, NULL);
    assert_int_equal(last.head.tag, 4711);
}

static const struct {
    const char *because;
    uint32_t magic, type;
    size_t len;
    const char *tail;
    size_t tail_len;
} nonsense[] = {
    { "wrong magic", 1, BOX_PING, 16, "", 0 },
    { "no whole head", MSG_MAGIC, BOX_PING, 5, "", 0 },
    { "a type that only init sends", MSG_MAGIC, BOX_EXITED, 16, "", 0 },
    { "a keeper's message", MSG_MAGIC, KEEPER_CLAIM, 16, "", 0 },
    { "half a struct", MSG_MAGIC, BOX_WAIT, 20, "", 0 },
    { "no label", MSG_MAGIC, BOX_WAIT, 24, "", 0 },
    { "a label without an end", MSG_MAGIC, BOX_WAIT, 24, "abc", 3 },
    { "two labels", MSG_MAGIC, BOX_WAIT, 24, "a\0b", 4 },
    { "a path without a user", MSG_MAGIC, BOX_STAT, 32, "/tmp", 5 },
    { "one string too many", MSG_MAGIC, BOX_STAT, 32, "root\0/tmp\0x", 12 },
};

static void nonsense_is_cut_off_and_nobody_else_notices(void **state)
{
    int before = init_fd_count();

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++) {
        int sock = fixture_connect();
        char packet[256] = { 0 };
        size_t len = nonsense[i].len + nonsense[i].tail_len;
        struct msg_head head = { nonsense[i].magic, nonsense[i].type, (uint32_t)len, 1 };
        struct msg m;

        memcpy(packet, &head, sizeof(head));
        memcpy(packet + nonsense[i].len, nonsense[i].tail, nonsense[i].tail_len);
        assert_int_equal(send(sock, packet, len, 0), len);
        if (receive_from(sock, &m, ANSWER_MS) != 0)
            fail_msg("%s: was not cut off", nonsense[i].because);
        close(sock);
    }
    assert_init_answers();
    assert_int_equal(init_fd_count(), before);
}

/* Body and tail of a BOX_SPAWN that claims other numbers than it has. */
static const struct {
    const char *because;
    uint32_t argc, envc, flags;
    const char *tail;
    size_t tail_len;
} bad_spawns[] = {
    { "more arguments than strings", 9, 0, 0, "\0\0\0true", 8 },
    { "fewer arguments than strings", 1, 0, 0, "\0\0\0echo\0x", 10 },
    { "environment that is not there", 1, 1, 0, "\0\0\0true", 8 },
    { "no arguments", 0, 0, 0, "\0\0", 3 },
    { "counts that overflow", UINT32_MAX, UINT32_MAX, 0, "\0\0\0true", 8 },
    { "no end of the last string", 1, 0, 0, "\0\0\0true", 7 },
    { "a descriptor announced that did not come", 1, 0, SPAWN_FD_STDOUT, "\0\0\0true", 8 },
    { "flags nobody knows", 1, 0, 1 << 20, "\0\0\0true", 8 },
};

static void a_spawn_whose_counts_do_not_match_is_cut_off(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad_spawns); i++) {
        struct box_spawn body = { .argc = bad_spawns[i].argc,
                                  .envc = bad_spawns[i].envc,
                                  .flags = bad_spawns[i].flags };
        int sock = fixture_connect();
        struct msg m;

        send_on(sock, BOX_SPAWN, 1, &body, sizeof(body), bad_spawns[i].tail, bad_spawns[i].tail_len,
                NULL, 0);
        if (receive_from(sock, &m, ANSWER_MS) != 0)
            fail_msg("%s: was not cut off", bad_spawns[i].because);
        close(sock);
    }
}

static void descriptors_that_do_not_belong_are_closed(void **state)
{
    int before = init_fd_count(), sock = fixture_connect();
    struct box_spawn body = { .argc = 1 };
    int fds[4] = { sock, sock, sock, sock };
    struct msg m;

    (void)state;
    send_on(sock, BOX_SPAWN, 1, &body, sizeof(body), "\0\0\0true", 8, fds, 4);
    assert_int_equal(receive_from(sock, &m, ANSWER_MS), 0);
    close(sock);
    assert_init_answers();
    assert_int_equal(init_fd_count(), before);
}

static void beyond_so_many_connections_new_ones_are_closed(void **state)
{
    int socks[1100], refused = 0;
    struct msg m;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(socks); i++)
        socks[i] = fixture_connect();
    for (size_t i = 0; i < ARRAY_SIZE(socks); i++)
        if (msg_send(socks[i], &(struct msg_out){ BOX_PING, .tag = 1 }, 0, NULL) < 0 ||
            receive_from(socks[i], &m, ANSWER_MS) == 0)
            refused++;
    for (size_t i = 0; i < ARRAY_SIZE(socks); i++)
        close(socks[i]);                    /* only now: a place that gets free is given away */
    assert_int_equal(refused, 1100 - 1023); /* one is ours */
    assert_init_answers();
}

static void a_client_that_never_reads_is_cut_off_and_the_others_are_served(void **state)
{
    int sock = fixture_connect(), sent = 0;

    (void)state;
    fcntl(sock, F_SETFL, O_NONBLOCK);
    for (; sent < 1000000; sent++) {
        struct cove_err e;

        if (msg_send(sock, &(struct msg_out){ BOX_PING, .tag = 1 }, 0, &e) == 0)
            continue;
        if (e.code == COVE_GONE)
            break;
        usleep(1000);
    }
    assert_true(sent < 1000000);
    close(sock);
    assert_init_answers();
}

/* --------------------------------------------------------------- spawning */

static void a_command_runs_and_its_exit_code_comes_back(void **state)
{
    struct cove_end end = run_sh("echo out; echo err >&2; exit 3", out, sizeof(out));

    (void)state;
    assert_string_equal(out, "out\nerr\n");
    assert_int_equal(end.exit_code, 3);
    assert_int_equal(end.signal, 0);
    assert_int_equal(end.cause, END_OWN);
    assert_true(end.started_unix_ms > 1500000000000 && end.ended_unix_ms >= end.started_unix_ms);
}

static void a_signal_from_inside_is_its_own_doing(void **state)
{
    struct cove_end end = run_sh("kill -SEGV $$", out, sizeof(out));

    (void)state;
    assert_int_equal(end.signal, SIGSEGV);
    assert_int_equal(end.cause, END_OWN);
}

static const struct {
    const char *because;
    struct command cmd;
    enum cove_code code;
    const char *names;
} not_started[] = {
    { "no such command", { .argv = { "no-such-command" } }, COVE_NOT_FOUND, "no-such-command" },
    { "no such file", { .argv = { "/no/such" } }, COVE_NOT_FOUND, "/no/such" },
    { "a directory", { .argv = { "/etc" } }, COVE_FORBIDDEN, "/etc" },
    { "not executable", { .argv = { "/etc/passwd" } }, COVE_FORBIDDEN, "/etc/passwd" },
    { "an empty name", { .argv = { "" } }, COVE_INVALID, "empty" },
    { "no such cwd", { .argv = { "true" }, .cwd = "/no/dir" }, COVE_NOT_FOUND, "cwd '/no/dir'" },
    { "cwd is a file", { .argv = { "true" }, .cwd = "/etc/passwd" }, COVE_INVALID, "/etc/passwd" },
    { "a cwd of others",
      { .argv = { "true" }, .cwd = "/root", .user = "nobody" },
      COVE_FORBIDDEN,
      "/root" },
    { "no such user", { .argv = { "true" }, .user = "xyzzy" }, COVE_NOT_FOUND, "xyzzy" },
    { "env is no pair", { .argv = { "true" }, .env = { "A" } }, COVE_INVALID, "NAME=VALUE" },
    { "two stdins",
      { .argv = { "true" }, .flags = SPAWN_STDIN | SPAWN_PTY },
      COVE_INVALID,
      "input" },
};

static void see_why_each_does_not_start(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(not_started); i++) {
        const struct cove_err *e;

        send_spawn(fx.sock, &not_started[i].cmd);
        e = expect(MSG_ERROR, NULL);
        if (e->code != not_started[i].code || !strstr(e->msg, not_started[i].names))
            fail_msg("%s: %s, %s", not_started[i].because, cove_code_name(e->code), e->msg);
    }
}

static void what_cannot_start_says_why_and_leaves_nothing(void **state)
{
    int before;

    (void)state;
    chmod("/root", 0700);
    see_why_each_does_not_start();
    before =
        init_fd_count(); /* with the files of cgroups, which are opened when they are first needed */
    see_why_each_does_not_start();
    assert_true(init_fd_count() <= before);
}

static void the_environment_is_small_and_what_is_passed_wins(void **state)
{
    struct command cmd = { .argv = { "env" }, .env = { "LANG=de", "X=1" }, .user = "nobody" };

    (void)state;
    run(&cmd, out, sizeof(out));
    assert_string_equal(out, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
                             "HOME=/nonexistent\nUSER=nobody\nLOGNAME=nobody\n"
                             "SHELL=/usr/sbin/nologin\nLANG=de\nX=1\n");
}

/* Where this machine has no C.UTF-8 of its own the variable is LANG, see utf8_variable(). */
static void programs_get_utf8_unless_the_request_has_a_locale(void **state)
{
    bool there = access("/usr/lib/locale/C.utf8/LC_CTYPE", F_OK) == 0;
    const struct {
        const char *passed, *shown;
    } cases[] = {
        { "X=1", there ? "-C.UTF-8-" : "C.UTF-8--" },
        { "LANG=de", "de--" },
        { "LC_CTYPE=C", there ? "-C-" : "C.UTF-8-C-" },
        { "LC_ALL=C", there ? "--C" : "C.UTF-8--C" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct command cmd = { .argv = { "/bin/sh", "-c", "printf %s $LANG-$LC_CTYPE-$LC_ALL" },
                               .env = { cases[i].passed } };

        run(&cmd, out, sizeof(out));
        assert_string_equal(out, cases[i].shown);
    }
}

static void the_command_is_looked_up_in_its_own_path(void **state)
{
    struct command cmd = { .argv = { "cove-hello" }, .env = { out } };
    int fd = open(in_dir("cove-hello"), O_CREAT | O_WRONLY | O_CLOEXEC, 0755);

    (void)state;
    assert_int_equal(write(fd, "#!/bin/sh\necho hello\n", 21), 21);
    close(fd);
    snprintf(out, 200, "PATH=/nowhere::%s:/bin", fx.dir);
    run(&cmd, out, sizeof(out));
    assert_string_equal(out, "hello\n");
}

/* Everything a command gets from us, seen from inside. */
static const struct {
    const char *because;
    const char *user, *script, *want;
} inside[] = {
    { "root has the bounding set and no more", "root",
      "grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status | cut -f2 | sort -u", "00000000800405fb\n" },
    { "a user has no capability", "nobody",
      "grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | cut -f2 | sort -u",
      "0000000000000000\n" },
    { "a user cannot get more than the bounding set", "nobody",
      "grep CapBnd /proc/self/status | cut -f2", "00000000800405fb\n" },
    { "ids are the user's, all four", "nobody",
      "grep -E '^(Uid|Gid)' /proc/self/status | cut -f2- | sort -u",
      "65534\t65534\t65534\t65534\n" },
    { "groups too", "nobody", "id -G", "65534\n" },
    { "a number is a user", "12345", "id -u; id -g", "12345\n12345\n" },
    { "set-uid programs work", "nobody", "grep NoNewPrivs /proc/self/status | cut -f2", "0\n" },
    { "no signal is blocked or ignored", "root",
      "grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2 | sort -u", "0000000000000000\n" },
    { "it leads its session", "root", "test $(cut -d' ' -f6 /proc/$$/stat) = $$ && echo yes",
      "yes\n" },
    { "no descriptor of ours", "root", "ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 " },
    { "no core files", "root", "ulimit -c", "0\n" },
    { "umask", "root", "umask", "0022\n" },
    { "it dies before init when memory runs out", "root", "cat /proc/self/oom_score_adj", "500\n" },
    { "stdin is empty", "root", "cat", "" },
};

static void a_command_gets_what_it_should_and_no_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(inside); i++) {
        struct command cmd = { .user = inside[i].user,
                               .cwd = "/",
                               .argv = { "sh", "-c", inside[i].script } };

        run(&cmd, out, sizeof(out));
        if (strcmp(out, inside[i].want) != 0)
            fail_msg("%s: got %s", inside[i].because, out);
    }
}

static void init_cannot_be_looked_into_or_ended_by_a_root_command(void **state)
{
    (void)state;
    run_sh("cat /proc/$PPID/environ /proc/$PPID/maps 2>&1; ls /proc/$PPID/fd/ 2>&1", out,
           sizeof(out));
    assert_non_null(strstr(out, "environ: Permission denied"));
    assert_non_null(strstr(out, "maps: Permission denied"));
    assert_non_null(strstr(out, "Permission denied\n"));
    assert_null(strstr(out, "cove-init\n")); /* no line of its maps */
    run_sh("kill -TERM $PPID; kill -HUP $PPID; kill -INT $PPID", out, sizeof(out));
    assert_init_answers(); /* the one signal left, SIGKILL, cannot reach PID 1 from inside */
}

static void limits_are_set(void **state)
{
    struct command cmd = { .argv = { "sh", "-c", "ulimit -n; ulimit -f" },
                           .max_open_files = 77,
                           .max_file_bytes = 512 * 1024 };

    (void)state;
    run(&cmd, out, sizeof(out));
    assert_string_equal(out, "77\n1024\n");
}

/* --------------------------------------------------------------- seccomp */

static void the_filter_is_in_force_and_takes_no_privileges(void **state)
{
    struct command cmd = { .user = "nobody",
                           .cwd = "/",
                           .argv = { "sh", "-c",
                                     "mkdir /tmp/cove-x 2>&1; grep -E 'Seccomp:|NoNew' "
                                     "/proc/self/status | cut -f2 | tr '\\n' ' '" },
                           .flags = SPAWN_FD_FILTER,
                           .fds = { filter_file(no_mkdir, sizeof(no_mkdir)) },
                           .fd_count = 1 };

    (void)state;
    run(&cmd, out, sizeof(out));
    assert_non_null(strstr(out, "Operation not permitted"));
    assert_non_null(strstr(out, "0 2 "));
    close(cmd.fds[0]);
}

static void a_filter_that_is_none_is_refused(void **state)
{
    static const char junk[] = "not a filter at all";
    struct command cmd = { .argv = { "true" }, .flags = SPAWN_FD_FILTER, .fd_count = 1 };
    int pipe_fds[2];

    (void)state;
    assert_int_equal(pipe(pipe_fds), 0);
    cmd.fds[0] = pipe_fds[0];
    send_spawn(fx.sock, &cmd);
    assert_int_equal(expect_error(), COVE_INVALID);
    cmd.fds[0] = memfd_create("junk", 0);
    assert_int_equal(write(cmd.fds[0], junk, 16), 16);
    send_spawn(fx.sock, &cmd);
    assert_int_equal(expect_error(), COVE_INVALID);
    close(cmd.fds[0]);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

int main(void)
{
#define PLAIN(t)  cmocka_unit_test_setup_teardown(t, fixture_start, fixture_stop)
#define CGROUP(t) cmocka_unit_test_setup_teardown(t, fixture_start_with_cgroup, fixture_stop)
    const struct CMUnitTest tests[] = {
        PLAIN(ping_is_answered_with_the_same_tag),
        PLAIN(nonsense_is_cut_off_and_nobody_else_notices),
        PLAIN(a_spawn_whose_counts_do_not_match_is_cut_off),
        PLAIN(descriptors_that_do_not_belong_are_closed),
        PLAIN(beyond_so_many_connections_new_ones_are_closed),
        PLAIN(a_client_that_never_reads_is_cut_off_and_the_others_are_served),
        PLAIN(a_command_runs_and_its_exit_code_comes_back),
        PLAIN(a_signal_from_inside_is_its_own_doing),
        CGROUP(what_cannot_start_says_why_and_leaves_nothing),
        PLAIN(the_environment_is_small_and_what_is_passed_wins),
        PLAIN(programs_get_utf8_unless_the_request_has_a_locale),
        PLAIN(the_command_is_looked_up_in_its_own_path),
        PLAIN(a_command_gets_what_it_should_and_no_more),
        PLAIN(init_cannot_be_looked_into_or_ended_by_a_root_command),
        PLAIN(limits_are_set),
        PLAIN(the_filter_is_in_force_and_takes_no_privileges),
        PLAIN(a_filter_that_is_none_is_refused),
    };

    if (geteuid() != 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
