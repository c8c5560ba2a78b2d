/* fcgi/run.c: one command from spawn to its end, against an init that this test plays itself. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <fcntl.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/core.h"

enum { PROC = 7, OUTPUT_MAX = 1000, TIMEOUT_MS = 150, LONG_MS = 20000 };

/* ------------------------------------------------------------------ the fake init */

struct fake_init {
    int sock;      /* init's side */
    int client_fd; /* the side of nginx that hangs up, for whoever wants to close it */
    int out, err;  /* the command's stdout and stderr, after spawned() */
    uint32_t tag;
    struct box_signal order; /* the last kill, after killed() */
    size_t drained;          /* pipe ends that were handed back to be read on */
};

static const struct msg_rule rules[] = {
    { BOX_SPAWN, sizeof(struct box_spawn), MSG_MAX_BYTES, 2, 3 },
    { BOX_SIGNAL, sizeof(struct box_signal), 4096, 0, 0 },
    { BOX_DRAIN, 0, 0, 1, 2 },
    { 0 },
};

static char fake_buf[MSG_MAX_BYTES];

/* Take the spawn request and say that it runs. */
static void spawned(struct fake_init *f)
{
    struct box_spawned answer = { .proc = PROC, .pid = 42 };
    struct msg m;
    struct cove_err e;

    if (msg_recv(f->sock, fake_buf, sizeof(fake_buf), rules, 0, &m, &e) != 1 ||
        m.head.type != BOX_SPAWN)
        abort();
    f->out = m.fds[0];
    f->err = m.fds[1];
    f->tag = m.head.tag;
    msg_send(f->sock, &(struct msg_out){ BOX_SPAWNED, .tag = f->tag, MSG_BODY(answer) }, 0, &e);
}

static void say(struct fake_init *f, const char *out, const char *err)
{
    if (write(f->out, out, strlen(out)) < 0 || write(f->err, err, strlen(err)) < 0)
        abort();
}

static void close_output(struct fake_init *f)
{
    f->out = cove_close(f->out);
    f->err = cove_close(f->err);
}

static void exited(struct fake_init *f, struct cove_end end)
{
    struct box_exited message = { .proc = PROC, .pid = 42, .end = end };

    msg_send(f->sock, &(struct msg_out){ BOX_EXITED, .tag = f->tag, MSG_BODY(message) }, 0, NULL);
}

/* Wait for the order to kill, and obey as init does: the answer, then the end with the cause it was
 * given. */
static void killed(struct fake_init *f)
{
    struct cove_end end = { .signal = SIGKILL };
    struct msg m;
    struct cove_err e;

    if (msg_recv(f->sock, fake_buf, sizeof(fake_buf), rules, 0, &m, &e) != 1)
        return;
    memcpy(&f->order, m.body, sizeof(f->order));
    end.cause = f->order.cause;
    end.limit = f->order.limit;
    msg_send(f->sock, &(struct msg_out){ MSG_DONE, .tag = m.head.tag }, 0, &e);
    exited(f, end);
}

/* ------------------------------------------------------------------ what it may do */

static void writes_and_exits(struct fake_init *f)
{
    spawned(f);
    say(f, "hello\n", "oops\n");
    close_output(f);
    exited(f, (struct cove_end){ .exit_code = 3 });
}

static void exits_first_and_is_read_later(struct fake_init *f)
{
    spawned(f);
    say(f, "hello\n", "oops\n");
    exited(f, (struct cove_end){ .exit_code = 3 });
    usleep(50000); /* a child left behind holds the pipes; nobody waits for it */
}

static void leaves_a_child_that_never_stops_writing(struct fake_init *f)
{
    struct msg m;

    spawned(f);
    say(f, "hello\n", "oops\n");
    exited(f, (struct cove_end){ .exit_code = 3 });
    fcntl(f->out, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 200; i++) { /* all of it is below OUTPUT_MAX */
        if (write(f->out, "xxxx", 4) < 0)
            break; /* nobody reads now, but init will */
        usleep(1000);
    }
    if (msg_recv(f->sock, fake_buf, sizeof(fake_buf), rules, 0, &m, NULL) == 1 &&
        m.head.type == BOX_DRAIN) {
        f->drained = m.fd_count;
        msg_close_fds(&m);
    }
}

static void sleeps_for_ever(struct fake_init *f)
{
    spawned(f);
    say(f, "begun\n", "");
    killed(f);
}

static void writes_without_end(struct fake_init *f)
{
    char lots[300];

    memset(lots, 'y', sizeof(lots));
    spawned(f);
    for (int i = 0; i < 4; i++)
        if (write(f->out, lots, sizeof(lots)) < 0)
            abort();
    killed(f);
}

static void has_a_client_that_leaves(struct fake_init *f)
{
    spawned(f);
    f->client_fd = cove_close(f->client_fd);
    killed(f);
}

static void vanishes(struct fake_init *f)
{
    spawned(f);
    say(f, "last words\n", "");
}

static void talks_nonsense(struct fake_init *f)
{
    char garbage[64];

    spawned(f);
    memset(garbage, 0xAA, sizeof(garbage));
    if (send(f->sock, garbage, sizeof(garbage), 0) < 0)
        abort();
    usleep(50000);
}

static void speaks_of_another_process(struct fake_init *f)
{
    struct box_exited other = { .proc = PROC + 1, .end = { .exit_code = 9 } };

    spawned(f);
    msg_send(f->sock, &(struct msg_out){ BOX_EXITED, .tag = f->tag, MSG_BODY(other) }, 0, NULL);
    usleep(20000);
    exited(f, (struct cove_end){ .exit_code = 3 });
}

static void disobeys_a_kill(struct fake_init *f)
{
    struct msg m;
    struct cove_err e;

    spawned(f);
    msg_recv(f->sock, fake_buf, sizeof(fake_buf), rules, 0, &m, &e);
    msg_recv(f->sock, fake_buf, sizeof(fake_buf), rules, 0, &m, &e); /* until we are given up */
}

static void ends_by_itself_at_the_deadline(struct fake_init *f)
{
    struct msg m;
    struct cove_err e;

    spawned(f);
    msg_recv(f->sock, fake_buf, sizeof(fake_buf), rules, 0, &m, &e);
    exited(f, (struct cove_end){ .exit_code = 0 });
}

static void is_killed_by_its_memory_limit(struct fake_init *f)
{
    spawned(f);
    exited(f, (struct cove_end){ .signal = SIGKILL, .cause = END_MEMORY, .limit = 512 << 20 });
}

static void reports_an_end_that_makes_no_sense(struct fake_init *f)
{
    spawned(f);
    exited(f, (struct cove_end){ .exit_code = 3, .signal = 0, .cause = 12345 });
}

static void refuses_to_spawn(struct fake_init *f)
{
    struct cove_err answer = { .code = COVE_NOT_FOUND, .msg = "cwd: no such directory" };
    struct msg m;
    struct cove_err e;

    if (msg_recv(f->sock, fake_buf, sizeof(fake_buf), rules, 0, &m, &e) == 1) {
        msg_send(f->sock, &(struct msg_out){ MSG_ERROR, .tag = m.head.tag, MSG_BODY(answer) }, 0,
                 &e);
        msg_close_fds(&m);
    }
}

/* ------------------------------------------------------------------ running against it */

struct collected {
    struct buf text[2];
    bool in_order;
};

static int collect(void *arg, enum run_stream stream, uint64_t offset, const char *bytes,
                   size_t len)
{
    struct collected *c = arg;

    c->in_order = c->in_order && offset == c->text[stream].len;
    return buf_add(&c->text[stream], bytes, len);
}

static const struct {
    void (*init)(struct fake_init *f);
    int rc;
    struct cove_end end; /* exit_code, signal, cause and limit count */
    const char *out;     /* NULL: not looked at */
    size_t output_bytes;
    bool distrust;
    const char *because;
} cases[] = {
    { writes_and_exits, 0, { .exit_code = 3 }, "hello\n", 11, false, "the plain case" },
    { exits_first_and_is_read_later,
      0,
      { .exit_code = 3 },
      "hello\n",
      11,
      false,
      "what was written before the end is read after it" },
    { leaves_a_child_that_never_stops_writing,
      0,
      { .exit_code = 3 },
      NULL,
      0,
      false,
      "the reply does not wait for the background" },
    { sleeps_for_ever,
      0,
      { .signal = SIGKILL, .cause = END_DEADLINE, .limit = TIMEOUT_MS },
      "begun\n",
      6,
      false,
      "deadline, with the output so far" },
    { writes_without_end,
      0,
      { .signal = SIGKILL, .cause = END_OUTPUT, .limit = OUTPUT_MAX },
      NULL,
      OUTPUT_MAX,
      false,
      "exactly the limit is kept" },
    { has_a_client_that_leaves,
      0,
      { .signal = SIGKILL, .cause = END_CLIENT },
      "",
      0,
      false,
      "nobody waits for it any more" },
    { vanishes,
      0,
      { .signal = SIGKILL, .cause = END_GONE },
      "last words\n",
      11,
      false,
      "gone, but its words are kept" },
    { talks_nonsense, 0, { .signal = SIGKILL, .cause = END_GONE }, "", 0, true, "not our init" },
    { speaks_of_another_process, 0, { .exit_code = 3 }, "", 0, false, "only our own end counts" },
    { disobeys_a_kill,
      0,
      { .signal = SIGKILL, .cause = END_GONE },
      "",
      0,
      true,
      "given up in time" },
    { ends_by_itself_at_the_deadline,
      0,
      { .exit_code = 0 },
      "",
      0,
      false,
      "then it was its own end" },
    { is_killed_by_its_memory_limit,
      0,
      { .signal = SIGKILL, .cause = END_MEMORY, .limit = 512 << 20 },
      "",
      0,
      false,
      "init's word on the cause" },
    { reports_an_end_that_makes_no_sense,
      0,
      { .exit_code = 3 },
      "",
      0,
      false,
      "brought into range" },
    { refuses_to_spawn, -1, { 0 }, "", 0, false, "never started" },
};

struct stage {
    struct fake_init init;
    void (*play)(struct fake_init *f);
    struct box_conn conn;
    int client_fd; /* our side */
    pthread_t thread;
};

static void *play(void *arg)
{
    struct stage *s = arg;

    s->init.out = s->init.err = -1;
    s->play(&s->init);
    close_output(&s->init);
    s->init.sock = cove_close(s->init.sock);
    return NULL;
}

static void stage_init(struct stage *s, void (*how)(struct fake_init *f))
{
    int box[2], client[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, box), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, client), 0);
    *s = (struct stage){ .play = how, .conn = { .sock = box[0] }, .client_fd = client[0] };
    s->init.sock = box[1];
    s->init.client_fd = client[1];
    assert_int_equal(pthread_create(&s->thread, NULL, play, s), 0);
}

static void stage_done(struct stage *s)
{
    box_close(&s->conn);
    pthread_join(s->thread, NULL);
    cove_close(s->client_fd);
    cove_close(s->init.client_fd);
}

/* Only those that are about the deadline reach it, however slow this machine is today. */
static uint64_t timeout_for(void (*init)(struct fake_init *f))
{
    return init == sleeps_for_ever || init == disobeys_a_kill ||
                   init == ends_by_itself_at_the_deadline
               ? TIMEOUT_MS
               : LONG_MS;
}

static void run_case(size_t i)
{
    static const char *const argv[] = { "bash", "-c", "true", NULL };
    struct collected got = { .in_order = true };
    struct run_result result;
    struct cove_err e = { 0 };
    struct stage stage;
    int rc;

    buf_init(&got.text[0], 100000);
    buf_init(&got.text[1], 100000);
    stage_init(&stage, cases[i].init);
    struct run_args args = {
        .argv = argv,
        .timeout_ms = timeout_for(cases[i].init),
        .output_max_bytes = OUTPUT_MAX,
        .filter_fd = -1,
        .client_fd = stage.client_fd,
        .sink = collect,
        .sink_arg = &got,
    };

    rc = run_command(&stage.conn, &args, &result, &e);
    stage_done(&stage);
    if (cases[i].init == leaves_a_child_that_never_stops_writing)
        assert_int_equal(stage.init.drained, 2);
    if (rc != cases[i].rc || result.distrust != cases[i].distrust || !got.in_order)
        fail_msg("%s: rc %d (%s), distrust %d, in order %d", cases[i].because, rc, e.msg,
                 result.distrust, got.in_order);
    if (result.end.exit_code != cases[i].end.exit_code ||
        result.end.signal != cases[i].end.signal || result.end.cause != cases[i].end.cause ||
        result.end.limit != cases[i].end.limit)
        fail_msg("%s: exit %d, signal %d, cause %u, limit %llu", cases[i].because,
                 result.end.exit_code, result.end.signal, result.end.cause,
                 (unsigned long long)result.end.limit);
    if (cases[i].out && (result.output_bytes != cases[i].output_bytes ||
                         strcmp(got.text[0].data ? got.text[0].data : "", cases[i].out) != 0))
        fail_msg("%s: '%s', %llu bytes", cases[i].because, got.text[0].data,
                 (unsigned long long)result.output_bytes);
    buf_done(&got.text[0]);
    buf_done(&got.text[1]);
}

/* ------------------------------------------------------------------ what init still owes afterwards */

/* Runs a command on a connection where all earlier requests were settled, or were not. */
static bool settles(void (*init)(struct fake_init *f), bool before)
{
    static const char *const argv[] = { "bash", "-c", "true", NULL };
    struct collected got = { .in_order = true };
    struct run_result result;
    struct cove_err e;
    struct stage stage;
    bool after;

    buf_init(&got.text[0], 100000);
    buf_init(&got.text[1], 100000);
    stage_init(&stage, init);
    stage.conn.tag = 5;
    stage.conn.settled = before ? 5 : 4;
    run_command(&stage.conn,
                &(struct run_args){
                    .argv = argv,
                    .timeout_ms = timeout_for(init),
                    .output_max_bytes = OUTPUT_MAX,
                    .filter_fd = -1,
                    .client_fd = stage.client_fd,
                    .sink = collect,
                    .sink_arg = &got,
                },
                &result, &e);
    after = box_is_settled(&stage.conn);
    stage_done(&stage);
    buf_done(&got.text[0]);
    buf_done(&got.text[1]);
    return after;
}

static void only_a_command_that_ended_and_left_nothing_settles_a_connection(void **state)
{
    static const struct {
        void (*init)(struct fake_init *f);
        bool before, after;
        const char *because;
    } ends[] = {
        { writes_and_exits, true, true, "its end is the last word" },
        { writes_and_exits, false, false, "an earlier request was not settled" },
        { is_killed_by_its_memory_limit, true, true, "we have not killed it" },
        { leaves_a_child_that_never_stops_writing, true, false, "init answers to the drain" },
        { sleeps_for_ever, true, false, "init answers to the kill" },
        { vanishes, true, false, "there is nobody any more" },
        { talks_nonsense, true, false, "not our init" },
        { refuses_to_spawn, true, false, "rare, so not looked at" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (settles(ends[i].init, ends[i].before) != ends[i].after)
            fail_msg("%zu: %s", i, ends[i].because);
}

/* ------------------------------------------------------------------ output, of both streams */

/* Run against `init` with `used` bytes of the limit gone already. */
static void run_output(void (*init)(struct fake_init *f), uint64_t used, struct collected *got,
                       struct run_result *ret)
{
    static const char *const argv[] = { "bash", "-c", "true", NULL };
    struct cove_err e = { 0 };
    struct stage stage;

    *got = (struct collected){ .in_order = true };
    buf_init(&got->text[0], 100000);
    buf_init(&got->text[1], 100000);
    stage_init(&stage, init);
    struct run_args args = {
        .argv = argv,
        .timeout_ms = LONG_MS,
        .output_max_bytes = OUTPUT_MAX,
        .output_used = used,
        .sink_bytes = 2, /* so that most is still in the pipes when the end is told */
        .filter_fd = -1,
        .client_fd = stage.client_fd,
        .sink = collect,
        .sink_arg = got,
    };
    if (run_command(&stage.conn, &args, ret, &e) < 0)
        fail_msg("%s", e.msg);
    stage_done(&stage);
}

static void collected_done(struct collected *got)
{
    buf_done(&got->text[0]);
    buf_done(&got->text[1]);
}

static void writes_errors_without_end(struct fake_init *f)
{
    char lots[300];

    memset(lots, 'y', sizeof(lots));
    spawned(f);
    for (int i = 0; i < 4; i++)
        if (write(f->err, lots, sizeof(lots)) < 0)
            abort();
    killed(f);
}

static void errors_count_against_the_limit_too(void **state)
{
    struct collected got;
    struct run_result result;

    (void)state;
    run_output(writes_errors_without_end, 0, &got, &result);
    assert_int_equal(result.end.cause, END_OUTPUT);
    assert_int_equal(result.end.limit, OUTPUT_MAX);
    assert_int_equal(got.text[RUN_STDERR].len, OUTPUT_MAX);
    collected_done(&got);
}

static void errors_written_before_the_end_are_read_after_it(void **state)
{
    struct collected got;
    struct run_result result;

    (void)state;
    run_output(exits_first_and_is_read_later, 0, &got, &result);
    assert_string_equal(got.text[RUN_STDERR].data, "oops\n");
    assert_string_equal(got.text[RUN_STDOUT].data, "hello\n");
    collected_done(&got);
}

static void what_earlier_commands_wrote_counts(void **state)
{
    struct collected got;
    struct run_result result;

    (void)state;
    run_output(writes_without_end, OUTPUT_MAX - 250, &got, &result);
    assert_int_equal(result.end.cause, END_OUTPUT);
    assert_int_equal(got.text[RUN_STDOUT].len, 250);
    collected_done(&got);
}

static int blocking_ends; /* of pipes of ours that a command could keep us waiting at */

/* The far end of `theirs` is in this very process: the one that has the same inode and reads. */
static void look_at_our_end(int theirs)
{
    struct stat want, st;
    int found = 0;

    fstat(theirs, &want);
    for (int fd = 3; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFL);

        if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY || fstat(fd, &st) < 0 ||
            st.st_ino != want.st_ino || st.st_dev != want.st_dev)
            continue;
        found++;
        blocking_ends += !(flags & O_NONBLOCK);
    }
    if (!found)
        abort();
}

static void looks_at_our_ends(struct fake_init *f)
{
    spawned(f);
    look_at_our_end(f->out);
    look_at_our_end(f->err);
    exited(f, (struct cove_end){ .exit_code = 0 });
}

static void our_ends_of_the_pipes_do_not_block(void **state)
{
    struct collected got;
    struct run_result result;

    (void)state;
    run_output(looks_at_our_ends, 0, &got, &result);
    assert_int_equal(blocking_ends, 0);
    collected_done(&got);
}

static void every_end_is_reported_as_what_it_was(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        run_case(i);
}

/* An init that says nothing at all after the kill costs the deadline and two seconds, not a thread. */
static void a_silent_init_is_given_up_soon(void **state)
{
    uint64_t start = clock_boot_ms(), took;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (cases[i].init == disobeys_a_kill)
            run_case(i);
    took = clock_boot_ms() - start;
    assert_in_range(took, 2000, 2000 + TIMEOUT_MS + 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_end_is_reported_as_what_it_was),
        cmocka_unit_test(errors_count_against_the_limit_too),
        cmocka_unit_test(errors_written_before_the_end_are_read_after_it),
        cmocka_unit_test(what_earlier_commands_wrote_counts),
        cmocka_unit_test(our_ends_of_the_pipes_do_not_block),
        cmocka_unit_test(a_silent_init_is_given_up_soon),
        cmocka_unit_test(only_a_command_that_ended_and_left_nothing_settles_a_connection),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
