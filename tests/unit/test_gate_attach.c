/*
 * helpers/gate/attach.c: what the gate says to an init about one process, and in which order. The viewers are
 * stand-ins that read what the test says; init is the other end of a socket pair.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/box_wire.h"
#include "cove/mem.h"
#include "helpers/gate/attach.h"

enum { PROC = 7 };

static struct {
    struct gate gate;
    struct relay relay;
    struct box_traffic usage;
    struct tenant_share share;
    struct viewer *viewer;
    int init;           /* init's end */
    uint64_t reads_to;  /* where the viewer has read to when it is next asked to */
    bool catches_up;    /* and is that all there is? */
    bool heard_drained; /* it was asked to send when nothing more was to come */
} fx;

static const struct viewer_kind kind = { .name = "lines", .holds = true };

/* ------------------------------------------------------------------ stand-ins */

int __wrap_box_connect_now(const char *run_dir, const char *id, int *ret_sock, struct cove_err *e);
int __wrap_box_connect_now(const char *run_dir, const char *id, int *ret_sock, struct cove_err *e)
{
    int ends[2];

    (void)run_dir;
    (void)id;
    (void)e;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
                     0);
    *ret_sock = ends[0];
    fx.init = ends[1];
    return 0;
}

struct viewer *viewer_new(struct relay *r, const struct viewer_kind *k,
                          const struct viewer_options *options)
{
    fx.viewer = calloc(1, sizeof(*fx.viewer));
    assert_non_null(fx.viewer);
    fx.viewer->relay = r;
    fx.viewer->kind = k;
    fx.viewer->options = *options;
    return fx.viewer;
}

void viewer_pump(struct viewer *v)
{
    if (v->attachment->ring < 0)
        return;
    v->begun = true;
    v->at.reader.pos = fx.reads_to;
    v->caught_up = fx.catches_up;
    fx.heard_drained |= v->attachment->drained;
}

int viewer_greet(struct viewer *v)
{
    (void)v;
    return 0;
}

void viewer_close(struct viewer *v, unsigned code, const char *reason)
{
    (void)v;
    fail_msg("closed with %u: %s", code, reason);
}

void viewer_account(struct viewer *v, bool active)
{
    (void)v;
    (void)active;
}

void relay_close(struct relay *r)
{
    (void)r;
}

void websocket_done(struct websocket *ws)
{
    (void)ws;
}

void websocket_pause(struct websocket *ws, bool paused)
{
    ws->paused = paused;
}

void websocket_flush(struct websocket *ws)
{
    (void)ws;
}

void websocket_close_now(struct websocket *ws, unsigned code, const char *reason)
{
    (void)ws;
    (void)code;
    (void)reason;
}

/* ------------------------------------------------------------------ what init hears and says */

static int begin(void **state)
{
    struct viewer_options options = { 0 };
    struct cove_err e;

    (void)state;
    memset(&fx, 0, sizeof(fx));
    assert_int_equal(loop_init(&fx.gate.loop, &e), 0);
    fx.relay.gate = &fx.gate;
    fx.relay.usage = &fx.usage;
    fx.usage.share = &fx.share;
    fx.catches_up = true;
    attach(&fx.relay, &kind, PROC, &options);
    return 0;
}

static int end(void **state)
{
    (void)state;
    viewer_free(fx.viewer); /* the last one: the attachment goes with it */
    assert_int_equal(atomic_load(&fx.share.socket_bytes.used), 0);
    close(fx.init);
    loop_done(&fx.gate.loop);
    return 0;
}

/* The next message that the gate has sent; its body in a static buffer. NULL: there is none. */
static const void *heard(uint32_t *ret_type)
{
    static const struct msg_rule rules[] = {
        { BOX_LOG, sizeof(struct box_proc_ref), 100, 0, 0 },
        { BOX_WAIT, sizeof(struct box_proc_ref), 100, 0, 0 },
        { BOX_LOG_ARM, sizeof(struct box_log_arm), 0, 0, 0 },
        { BOX_INPUT, sizeof(struct box_input), BOX_INPUT_MAX, 0, 0 },
        { 0 },
    };
    static _Alignas(8) char buf[8192];
    struct cove_err e;
    struct msg m;

    if (msg_recv(fx.init, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, &e) != 1)
        return NULL;
    *ret_type = m.head.type;
    return m.body;
}

static const void *hear(uint32_t type)
{
    uint32_t got = 0;
    const void *body = heard(&got);

    assert_non_null(body);
    assert_int_equal(got, type);
    return body;
}

static void hear_nothing(void)
{
    uint32_t type;

    assert_null(heard(&type));
}

static void say(uint32_t type, const void *body, size_t len, const int *fd)
{
    struct cove_err e;

    assert_int_equal(msg_send(fx.init,
                              &(struct msg_out){ type, .tag = 1, .body = body, .body_len = len,
                                                 .fds = fd, .fd_count = fd ? 1 : 0 },
                              MSG_DONTWAIT, &e),
                     0);
    loop_turn(&fx.gate.loop, 0);
}

static void say_opened(void)
{
    int fd = memfd_create("ring", MFD_CLOEXEC);

    assert_true(fd >= 0);
    say(BOX_LOG_OPENED, &(struct box_log_opened){ .proc = PROC, .running = 1 },
        sizeof(struct box_log_opened), &fd);
    close(fd);
}

static void say_tick(uint64_t log_end, bool running)
{
    say(BOX_LOG_TICK, &(struct box_log_tick){ .proc = PROC, .running = running, .end = log_end },
        sizeof(struct box_log_tick), NULL);
}

/* ------------------------------------------------------------------ tests */

static void init_is_told_to_keep_the_output_before_the_input_arrives(void **state)
{
    const struct box_log_arm *arm;

    (void)state;
    attachment_input(fx.viewer->attachment, "go", 2, "\n", 1); /* before init has answered */
    hear(BOX_LOG);
    hear_nothing();
    say_opened();
    hear(BOX_WAIT);
    arm = hear(BOX_LOG_ARM);
    assert_int_equal(arm->flags & LOG_ARM_HOLD, LOG_ARM_HOLD);
    assert_int_equal(arm->held, 0);
    hear(BOX_INPUT);
    hear_nothing();
}

static void what_had_no_room_when_the_process_ended_is_asked_for(void **state)
{
    const struct box_log_arm *arm;

    (void)state;
    hear(BOX_LOG);
    fx.reads_to = 0;
    fx.catches_up = false;
    say_opened();
    hear(BOX_WAIT);
    hear(BOX_LOG_ARM);
    say_tick(60000, true); /* the ring is full, and the client has read next to nothing */
    arm = hear(BOX_LOG_ARM);
    assert_int_equal(arm->held, 0);
    /* The process has ended. Init had no room when it was asked, but by now the client has read it all. */
    fx.reads_to = 60000;
    fx.catches_up = true;
    say_tick(60000, false);
    assert_false(fx.heard_drained);
    arm = hear(BOX_LOG_ARM);
    assert_int_equal(arm->held, 60000);
    fx.reads_to = 90000;
    say_tick(90000, false); /* there was more */
    assert_false(fx.heard_drained);
    arm = hear(BOX_LOG_ARM);
    assert_int_equal(arm->held, 90000);
    say_tick(90000, false); /* and now there is not */
    assert_true(fx.heard_drained);
    hear_nothing();
}

/* Input for processes that do not read is counted, and given back when it was taken or nobody is there any more. */
static void input_that_waits_is_paid_from_the_tenants_part(void **state)
{
    struct box_taken taken = { .proc = PROC, .bytes = 5000 };

    (void)state;
    hear(BOX_LOG);
    say_opened();
    for (size_t i = 0; i < 5000; i++)
        attachment_input(fx.viewer->attachment, "x", 1, "", 0);
    assert_in_range(atomic_load(&fx.share.socket_bytes.used), 5000, 16384);
    say(BOX_TAKEN, &taken, sizeof(taken), NULL);
    assert_int_equal(fx.viewer->attachment->input.len, 4999); /* one was on its way */
    attachment_input(fx.viewer->attachment, "x", 1, "", 0);
}

/* The client keeps the beginning of a line that has no end yet: it has got all there is all the same. */
static void a_last_line_without_an_end_is_the_end(void **state)
{
    (void)state;
    hear(BOX_LOG);
    say_opened();
    hear(BOX_WAIT);
    hear(BOX_LOG_ARM);
    fx.reads_to = 40;
    say_tick(80, false);
    hear(BOX_LOG_ARM);
    assert_false(fx.heard_drained);
    say_tick(80, false);
    assert_true(fx.heard_drained);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(init_is_told_to_keep_the_output_before_the_input_arrives,
                                        begin, end),
        cmocka_unit_test_setup_teardown(what_had_no_room_when_the_process_ended_is_asked_for, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_last_line_without_an_end_is_the_end, begin, end),
        cmocka_unit_test_setup_teardown(input_that_waits_is_paid_from_the_tenants_part, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
