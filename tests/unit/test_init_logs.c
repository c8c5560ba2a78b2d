/* cove-init, what processes read and write: stdin, terminals, log rings. */
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
#include "cove/ring.h"
#include "tests/unit/init_fixture.h"

static char out[65536];

/* --------------------------------------------------------------- stdin, pty */

static void stdin_is_handed_out_and_closed(void **state)
{
    struct command cmd = { .argv = { "cat" },
                           .flags = SPAWN_STDIN | SPAWN_FD_STDOUT,
                           .label = "cat" };
    struct box_stdin args = { 0 };
    int fds[2], fd;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    cmd.fds[0] = fds[1];
    cmd.fd_count = 1;
    args.proc = spawn(&cmd).proc;
    close(fds[1]);
    ASK(BOX_STDIN, args, "");
    expect(MSG_DONE, &fd);
    assert_int_equal(write(fd, "hello\n", 6), 6);
    assert_int_equal(read(fds[0], out, 100), 6);
    close(fd);
    args.close = 1;
    ASK(BOX_STDIN, ((struct box_stdin){ .proc = 0, .close = 1 }), "cat"); /* by its label */
    expect(MSG_DONE, NULL);
    assert_int_equal(expect_exit(args.proc).exit_code, 0);
    ASK(BOX_STDIN, args, "");
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
    close(fds[0]);
}

/* Read from a terminal until `want` shows up. */
static void read_until(int fd, const char *want)
{
    size_t len = 0;
    ssize_t n;

    while ((n = read(fd, out + len, sizeof(out) - 1 - len)) > 0) {
        len += (size_t)n;
        out[len] = '\0';
        if (strstr(out, want))
            return;
    }
    fail_msg("never saw '%s', only: %s", want, out);
}

static void a_terminal_has_a_size_that_can_be_changed(void **state)
{
    struct command cmd = {
        .user = "nobody", .cwd = "/", .argv = { "sh" }, .flags = SPAWN_PTY, .rows = 24, .cols = 80
    };
    struct box_resize size = { .rows = 50, .cols = 132 };
    int tty;

    (void)state;
    send_spawn(fx.sock, &cmd);
    size.proc = ((const struct box_spawned *)expect(BOX_SPAWNED, &tty))->proc;
    assert_true(isatty(tty));
    assert_int_equal(write(tty, "stty size; test -w $(tty) && echo is-m''ine\n", 44), 44);
    read_until(tty, "is-mine");
    assert_non_null(strstr(out, "24 80")); /* it came first, maybe in the same read */
    ASK(BOX_RESIZE, size, "");
    expect(MSG_DONE, NULL);
    assert_int_equal(write(tty, "stty size\n", 10), 10);
    read_until(tty, "50 132");
    ASK(BOX_STDIN, ((struct box_stdin){ .proc = size.proc, .close = 1 }), "");
    expect(MSG_DONE, NULL); /* control-D: the shell ends */
    assert_int_equal(expect_exit(size.proc).exit_code, 0);
    close(tty);
}

static void a_terminal_can_be_logged(void **state)
{
    struct command cmd = { .argv = { "sh", "-c",
                                     "tty >/dev/null && echo on a tty; read x; echo got $x" },
                           .flags = SPAWN_PTY | SPAWN_LOG | SPAWN_RECORD };
    struct box_spawned s = spawn(&cmd);
    struct box_proc_ref ref = { .proc = s.proc };
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap;
    int tty, ring;
    size_t len = 0;

    (void)state;
    ASK(BOX_STDIN, ((struct box_stdin){ .proc = s.proc }), "");
    expect(MSG_DONE, &tty);
    assert_int_equal(write(tty, "abc\n", 4), 4);
    expect_exit(s.proc);
    ASK(BOX_LOG, ref, "");
    expect(BOX_LOG_OPENED, &ring);
    assert_int_equal(ring_reader_init(&r, ring, 0, NULL), 0);
    while (ring_read(&r, &rec, out + len, &gap, NULL) == 1)
        len += rec.len;
    out[len] = '\0';
    assert_non_null(strstr(out, "on a tty"));
    assert_non_null(strstr(out, "got abc"));
    close(tty);
    close(ring);
}

static uint32_t give(uint32_t proc, const char *bytes, size_t len)
{
    struct box_input args = { .proc = proc };

    send_on(fx.sock, BOX_INPUT, 1, &args, sizeof(args), bytes, len, NULL, 0);
    return ((const struct box_taken *)expect(BOX_TAKEN, NULL))->bytes;
}

static void input_is_written_by_init_as_far_as_there_is_room(void **state)
{
    static char much[BOX_INPUT_MAX];
    struct command cmd = { .argv = { "sh", "-c", "read x; read y; echo got $x $y; sleep 60" },
                           .flags = SPAWN_STDIN | SPAWN_LOG | SPAWN_RECORD };
    struct box_spawned s = spawn(&cmd);
    uint32_t n, total = 0;

    (void)state;
    assert_int_equal(give(s.proc, "abc\nd", 5), 5);
    memset(much, 'x', sizeof(much));
    do { /* a pipe holds 64 KiB, and the shell reads one line of it */
        n = give(s.proc, much, sizeof(much));
        total += n;
    } while (n > 0 && total < 1 << 20);
    assert_int_equal(n, 0);
    assert_true(total >= sizeof(much));
}

static void input_for_a_terminal_is_written_too(void **state)
{
    struct command cmd = { .argv = { "sh", "-c", "read x; test $x = abc" },
                           .flags = SPAWN_PTY | SPAWN_LOG | SPAWN_RECORD };
    struct box_spawned s = spawn(&cmd);

    (void)state;
    assert_int_equal(give(s.proc, "abc\n", 4), 4);
    assert_int_equal(expect_exit(s.proc).exit_code, 0);
}

/* --------------------------------------------------------------- logs */

static int open_log(uint32_t proc, struct ring_reader *r)
{
    struct box_proc_ref ref = { .proc = proc };
    int fd;

    ASK(BOX_LOG, ref, "");
    expect(BOX_LOG_OPENED, &fd);
    assert_int_equal(ring_reader_init(r, fd, 0, NULL), 0);
    return fd;
}

static void arm(uint32_t proc, uint64_t pos)
{
    struct box_log_arm args = { .proc = proc, .pos = pos };

    send_on(fx.sock, BOX_LOG_ARM, 9, &args, sizeof(args), NULL, 0, NULL, 0);
}

static void output_is_kept_with_its_streams_and_offsets(void **state)
{
    struct command cmd = { .argv = { "sh", "-c", "echo one; echo two >&2; sleep 0.05; echo three" },
                           .flags = SPAWN_LOG | SPAWN_RECORD,
                           .log_bytes = 65536 };
    char text[3][RING_REC_MAX];
    size_t len[3] = { 0 };
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap;
    uint32_t proc = spawn(&cmd).proc;
    int fd;

    (void)state;
    expect_exit(proc);
    fd = open_log(proc, &r);
    while (ring_read(&r, &rec, out, &gap, NULL) == 1) {
        assert_int_equal(rec.offset, len[rec.stream]);
        memcpy(text[rec.stream] + len[rec.stream], out, rec.len);
        len[rec.stream] += rec.len;
        assert_true(rec.unix_ns > 1500000000000000000);
    }
    assert_int_equal(len[RING_STDOUT], 10);
    assert_memory_equal(text[RING_STDOUT], "one\nthree\n", 10);
    assert_memory_equal(text[RING_STDERR], "two\n", 4);
    close(fd);
}

static void one_tick_for_each_arming_and_a_last_one_at_the_end(void **state)
{
    struct command cmd = { .argv = { "cat" }, .flags = SPAWN_LOG | SPAWN_STDIN | SPAWN_RECORD };
    struct box_stdin input = { .proc = spawn(&cmd).proc };
    const struct box_log_tick *tick;
    struct msg m;
    uint64_t pos;
    int in;

    (void)state;
    ASK(BOX_STDIN, input, "");
    expect(MSG_DONE, &in);
    arm(input.proc, 0);
    assert_int_equal(receive_from(fx.sock, &m, 50), -1); /* nothing yet: no tick */
    assert_int_equal(write(in, "a\n", 2), 2);
    tick = expect(BOX_LOG_TICK, NULL);
    assert_int_equal(last.head.tag, 9);
    assert_int_equal(tick->running, 1);
    assert_true(tick->end > 0);
    pos = tick->end;
    assert_int_equal(write(in, "b\n", 2), 2);
    assert_int_equal(receive_from(fx.sock, &m, 50), -1); /* not armed: no tick */
    arm(input.proc, pos);
    tick = expect(BOX_LOG_TICK, NULL); /* there is more already */
    assert_true(tick->end > pos);
    arm(input.proc, tick->end);
    close(in);
    input.close = 1;
    ASK(BOX_STDIN, input, "");
    expect(MSG_DONE, NULL);
    tick = expect(BOX_LOG_TICK, NULL);
    assert_int_equal(tick->running, 0);
    expect(BOX_EXITED, NULL);
    arm(input.proc, 1 << 30);
    assert_int_equal(((const struct box_log_tick *)expect(BOX_LOG_TICK, NULL))->running, 0);
}

/* The ring holds a fifth of the output: without the hold most of it would be overwritten. */
static void a_process_waits_for_the_reader_that_holds_its_log(void **state)
{
    struct command cmd = { .argv = { "sh", "-c", "read x; head -c 300000 /dev/zero" },
                           .flags = SPAWN_LOG | SPAWN_STDIN | SPAWN_RECORD,
                           .log_bytes = 65536 };
    struct box_stdin input = { .proc = spawn(&cmd).proc };
    struct box_log_arm args = { .proc = input.proc, .flags = LOG_ARM_HOLD };
    uint64_t gap, bytes = 0;
    struct ring_reader r;
    struct ring_rec rec;
    int in, fd = open_log(input.proc, &r);

    (void)state;
    ASK(BOX_STDIN, input, "");
    expect(MSG_DONE, &in);
    send_on(fx.sock, BOX_LOG_ARM, 9, &args, sizeof(args), NULL, 0, NULL, 0);
    assert_int_equal(write(in, "\n", 1), 1);
    for (struct msg m; bytes < 300000;) {
        assert_int_equal(receive_from(fx.sock, &m, 5000), 1); /* a tick, or the end */
        while (ring_read(&r, &rec, out, &gap, NULL) == 1) {
            assert_int_equal(gap, 0);
            assert_int_equal(rec.offset, bytes);
            bytes += rec.len;
        }
        args.pos = args.held = r.pos;
        send_on(fx.sock, BOX_LOG_ARM, 9, &args, sizeof(args), NULL, 0, NULL, 0);
    }
    assert_int_equal(bytes, 300000);
    close(in);
    close(fd);
}

/* The starter is slow: the process has ended before its log is asked for. Ring and pipe together hold what it
 * wrote, the ring alone does not. */
static void a_log_is_held_from_the_start_for_a_starter_that_says_so(void **state)
{
    struct command cmd = { .argv = { "head", "-c", "75000", "/dev/zero" },
                           .flags = SPAWN_LOG | SPAWN_HOLD | SPAWN_RECORD,
                           .log_bytes = 65536 };
    struct box_log_arm args = { .proc = spawn(&cmd).proc, .flags = LOG_ARM_HOLD };
    uint64_t gap, bytes = 0;
    struct ring_reader r;
    struct ring_rec rec;
    int fd;

    (void)state;
    expect_exit(args.proc);
    fd = open_log(args.proc, &r);
    for (int rounds = 0; rounds < 10; rounds++) {
        while (ring_read(&r, &rec, out, &gap, NULL) == 1) {
            assert_int_equal(gap, 0);
            bytes += rec.len;
        }
        args.pos = args.held = r.pos;
        send_on(fx.sock, BOX_LOG_ARM, 9, &args, sizeof(args), NULL, 0, NULL, 0);
        expect(BOX_LOG_TICK, NULL);
    }
    assert_int_equal(bytes, 75000);
    close(fd);
}

static void init_keeps_a_deadline_by_itself(void **state)
{
    struct command cmd = { .argv = { "sleep", "1000" }, .flags = SPAWN_RECORD, .timeout_ms = 50 };
    struct cove_end end = expect_exit(spawn(&cmd).proc);

    (void)state;
    assert_int_equal(end.signal, SIGKILL);
    assert_int_equal(end.cause, END_DEADLINE);
    assert_int_equal(end.limit, 50);
}

static void what_a_background_child_writes_later_is_still_kept(void **state)
{
    struct command cmd = { .argv = { "sh", "-c", "(sleep 0.2; echo late) & echo early" },
                           .flags = SPAWN_LOG | SPAWN_RECORD };
    uint32_t proc = spawn(&cmd).proc;
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap;
    int fd, tries = 0;

    (void)state;
    expect_exit(proc); /* does not wait for the child */
    fd = open_log(proc, &r);
    assert_int_equal(ring_read(&r, &rec, out, &gap, NULL), 1);
    assert_memory_equal(out, "early\n", 6);
    while (ring_read(&r, &rec, out, &gap, NULL) == 0 && tries++ < 500)
        usleep(10000);
    assert_memory_equal(out, "late\n", 5);
    close(fd);
}

static void a_flood_is_not_slowed_by_many_armed_readers(void **state)
{
    enum { READERS = 200, MEGABYTES = 256 };
    struct command cmd = { .argv = { "sh", "-c", "head -c 256M /dev/zero" },
                           .flags = SPAWN_LOG | SPAWN_RECORD,
                           .log_bytes = 1 << 20 };
    int socks[READERS], ticks = 0, fd, over = 0;
    uint32_t proc = spawn(&cmd).proc;
    struct box_log_arm args = { .proc = proc };
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap, lost = 0, got = 0;
    struct msg m;

    (void)state;
    for (int i = 0; i < READERS; i++) {
        socks[i] = fixture_connect();
        send_on(socks[i], BOX_LOG_ARM, 1, &args, sizeof(args), NULL, 0, NULL, 0);
    }
    while (over < READERS) {
        over = 0;
        for (int i = 0; i < READERS; i++) {
            const struct box_log_tick *tick;

            if (socks[i] < 0) {
                over++;
                continue;
            }
            if (receive_from(socks[i], &m, 0) != 1)
                continue;
            ticks++;
            tick = m.body;
            args.pos = tick->end;
            if (tick->running)
                send_on(socks[i], BOX_LOG_ARM, 1, &args, sizeof(args), NULL, 0, NULL, 0);
            else
                socks[i] = cove_close(socks[i]);
        }
    }
    assert_int_equal(expect_exit(proc).exit_code, 0);
    fd = open_log(proc, &r);
    while (ring_read(&r, &rec, out, &gap, NULL) == 1) {
        lost += gap;
        got = rec.offset + rec.len;
    }
    assert_int_equal(got, (uint64_t)MEGABYTES << 20); /* every byte was counted */
    assert_true(lost > 0);
    print_message("          %d ticks to %d readers\n", ticks, READERS);
    close(fd);
}

static void what_is_left_running_writes_on_after_its_pipe_was_given_away(void **state)
{
    struct command cmd = { .argv = { "sh", "-c",
                                     "(head -c 4M /dev/zero && echo whole >&2) & exit 0" },
                           .cwd = fx.dir,
                           .flags = SPAWN_FD_STDOUT | SPAWN_FD_STDERR,
                           .fd_count = 2 };
    int before = init_fd_count(), data[2], note[2];

    (void)state;
    assert_int_equal(pipe2(data, O_CLOEXEC), 0);
    assert_int_equal(pipe2(note, O_CLOEXEC), 0);
    cmd.fds[0] = data[1];
    cmd.fds[1] = note[1];
    expect_exit(spawn(&cmd).proc);
    close(data[1]);
    close(note[1]);
    send_on(fx.sock, BOX_DRAIN, 1, NULL, 0, NULL, 0, &data[0], 1);
    expect(MSG_DONE, NULL);
    close(data[0]); /* nobody but init reads it now */
    assert_int_equal(read(note[0], out, 100), 6);
    assert_memory_equal(out, "whole\n", 6);
    close(note[0]);
    assert_true(eventually(init_holds_only, &before));
}

static void only_the_read_end_of_a_pipe_is_drained(void **state)
{
    int fds[2], before = init_fd_count();

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    send_on(fx.sock, BOX_DRAIN, 1, NULL, 0, NULL, 0, &fds[1], 1);
    assert_int_equal(expect_error(), COVE_INVALID);
    send_on(fx.sock, BOX_DRAIN, 1, NULL, 0, NULL, 0, &fx.sock, 1);
    assert_int_equal(expect_error(), COVE_INVALID);
    assert_int_equal(init_fd_count(), before);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
#define PLAIN(t) cmocka_unit_test_setup_teardown(t, fixture_start, fixture_stop)
    const struct CMUnitTest tests[] = {
        PLAIN(stdin_is_handed_out_and_closed),
        PLAIN(a_terminal_has_a_size_that_can_be_changed),
        PLAIN(a_terminal_can_be_logged),
        PLAIN(input_is_written_by_init_as_far_as_there_is_room),
        PLAIN(input_for_a_terminal_is_written_too),
        PLAIN(output_is_kept_with_its_streams_and_offsets),
        PLAIN(one_tick_for_each_arming_and_a_last_one_at_the_end),
        PLAIN(a_process_waits_for_the_reader_that_holds_its_log),
        PLAIN(a_log_is_held_from_the_start_for_a_starter_that_says_so),
        PLAIN(init_keeps_a_deadline_by_itself),
        PLAIN(what_a_background_child_writes_later_is_still_kept),
        PLAIN(what_is_left_running_writes_on_after_its_pipe_was_given_away),
        PLAIN(only_the_read_end_of_a_pipe_is_drained),
        PLAIN(a_flood_is_not_slowed_by_many_armed_readers),
    };

    if (geteuid() != 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
