/* sandbox/client/wire.c: an event-driven process asks a sandbox without ever waiting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/box_wire.h"
#include "cove/mem.h"

enum { TAG = 7 };

static int ours, inits; /* the two ends of a conversation */
static _Alignas(8) char buf[MSG_MAX_BYTES];

static int open_pair(void **state)
{
    int pair[2];

    (void)state;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -1;
    ours = pair[0];
    inits = pair[1];
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    cove_close(ours);
    cove_close(inits);
    return 0;
}

static void answer(uint32_t type, uint32_t tag, const void *body, size_t len, const int *fds,
                   size_t fd_count)
{
    assert_int_equal(msg_send(inits,
                              &(struct msg_out){ type, .tag = tag, .body = body, .body_len = len,
                                                 .fds = fds, .fd_count = fd_count },
                              0, NULL),
                     0);
}

static void a_port_is_asked_for_and_the_socket_taken(void **state)
{
    static const struct msg_rule port_rule[] = {
        { BOX_CONNECT, sizeof(struct box_connect), 0, 0, 0 },
        { 0 },
    };
    struct box_request r = box_request_port(8080);
    struct box_log_tick stray = { .proc = 1 };
    struct cove_err e = { 0 };
    struct msg m;
    int fd = -1;

    (void)state;
    assert_int_equal(box_answer_receive(ours, buf, sizeof(buf), &m, &e), -1);
    assert_int_equal(e.code, COVE_BUSY); /* nothing is there yet, and nobody waits */
    assert_int_equal(box_request_send(&r, ours, TAG, &e), 0);
    assert_int_equal(msg_recv(inits, buf, sizeof(buf), port_rule, 0, &m, NULL), 1);
    assert_int_equal(((const struct box_connect *)m.body)->port, 8080);
    assert_int_equal(m.head.tag, TAG);

    answer(BOX_LOG_TICK, 3, &stray, sizeof(stray), NULL, 0);
    answer(MSG_DONE, TAG, NULL, 0, &inits, 1);
    assert_int_equal(box_answer_receive(ours, buf, sizeof(buf), &m, &e), 0);
    assert_int_equal(box_answer_check(&r, TAG, &m, &e), 0); /* an event of before */
    assert_int_equal(box_answer_receive(ours, buf, sizeof(buf), &m, &e), 0);
    assert_int_equal(box_answer_check(&r, TAG, &m, &e), 1);
    assert_int_equal(box_answer_port(&m, &fd, &e), 0);
    assert_true(fd >= 0);
    close(fd);
}

static void an_error_is_the_callers_and_a_wrong_descriptor_is_refused(void **state)
{
    struct box_request r = box_request_port(8080);
    struct cove_err sent = { .code = COVE_NOT_FOUND, .msg = "nobody listens" }, e = { 0 };
    int pipes[2], fd = -1;
    struct msg m;

    (void)state;
    answer(MSG_ERROR, TAG, &sent, sizeof(sent), NULL, 0);
    assert_int_equal(box_answer_receive(ours, buf, sizeof(buf), &m, &e), 0);
    assert_int_equal(box_answer_check(&r, TAG, &m, &e), -1);
    assert_int_equal(e.code, COVE_NOT_FOUND);
    assert_string_equal(e.msg, "nobody listens");

    assert_int_equal(pipe(pipes), 0);
    answer(MSG_DONE, TAG, NULL, 0, pipes, 1);
    assert_int_equal(box_answer_receive(ours, buf, sizeof(buf), &m, &e), 0);
    assert_int_equal(box_answer_check(&r, TAG, &m, &e), 1);
    assert_int_equal(box_answer_port(&m, &fd, &e), -1);
    assert_int_equal(e.code, COVE_GONE);
    assert_int_equal(fd, -1);
    close(pipes[0]);
    close(pipes[1]);
}

static void a_full_queue_and_an_end_are_told_at_once(void **state)
{
    struct box_request r = box_request_port(1);
    struct cove_err e = { 0 };
    struct msg m;

    (void)state;
    while (box_request_send(&r, ours, TAG, &e) == 0)
        ;
    assert_int_equal(e.code, COVE_BUSY);
    inits = cove_close(inits);
    assert_int_equal(box_request_send(&r, ours, TAG, &e), -1);
    assert_int_equal(e.code, COVE_GONE);
    assert_int_equal(box_answer_receive(ours, buf, sizeof(buf), &m, &e), -1);
    assert_int_equal(e.code, COVE_GONE);
}

/* ------------------------------------------------------------------ the way there */

static const char id[] = "abcdefghijklmnopqrst";

static int listen_at(const char *path)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 0), 0);
    return fd;
}

static void a_sandbox_that_accepts_nobody_costs_no_time(void **state)
{
    char dir[] = "/tmp/cove-wire-XXXXXX", path[96];
    struct cove_err e = { 0 };
    int listener, socks[8], count = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/boxes", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(box_connect_now(dir, id, &socks[0], &e), -1);
    assert_int_equal(e.code, COVE_GONE);
    assert_int_equal(box_connect_now(dir, "../x", &socks[0], &e), -1);
    assert_int_equal(e.code, COVE_NOT_FOUND);
    snprintf(path, sizeof(path), "%s/boxes/%s", dir, id);
    listener = listen_at(path);
    while (count < 8 && box_connect_now(dir, id, &socks[count], &e) == 0)
        count++;
    assert_true(count > 0 && count < 8);
    assert_int_equal(e.code, COVE_BUSY);
    while (count > 0)
        close(socks[--count]);
    close(listener);
    unlink(path);
    snprintf(path, sizeof(path), "%s/boxes", dir);
    rmdir(path);
    rmdir(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_port_is_asked_for_and_the_socket_taken),
        TEST(an_error_is_the_callers_and_a_wrong_descriptor_is_refused),
        TEST(a_full_queue_and_an_end_are_told_at_once),
        cmocka_unit_test(a_sandbox_that_accepts_nobody_costs_no_time),
    };

    alarm(30);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
