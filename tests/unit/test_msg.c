/* base/msg.c: what is a message, and what gets its sender cut off. */
#include "config.h" /* _GNU_SOURCE */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/msg_box.h"

static const struct msg_rule rules[] = {
    { BOX_PING, 0, 0, 0, 0 },
    { BOX_WAIT, sizeof(struct box_proc_ref), 64, 0, 0 },
    { BOX_SPAWN, sizeof(struct box_spawn), 1000, 0, 4 },
    { BOX_WATCH, sizeof(struct box_watch), 0, 1, 1 },
    { 0 },
};

static int pair[2];
static _Alignas(8) char buf[MSG_MAX_BYTES];

static int open_pair(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int close_pair(void **state)
{
    (void)state;
    pair[0] = cove_close(pair[0]);
    pair[1] = cove_close(pair[1]);
    return 0;
}

static int open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

static int receive(struct msg *m, struct cove_err *e)
{
    return msg_recv(pair[1], buf, sizeof(buf), rules, MSG_DONTWAIT, m, e);
}

static void body_tail_and_tag_arrive_as_they_left(void **state)
{
    struct box_proc_ref ref = { .proc = 7 };
    struct cove_err e;
    struct msg m;

    (void)state;
    assert_int_equal(msg_send(pair[0],
                              &(struct msg_out){ BOX_WAIT, .tag = 42, MSG_BODY(ref),
                                                 .tail = "label", .tail_len = 6 },
                              0, &e),
                     0);
    assert_int_equal(receive(&m, &e), 1);
    assert_int_equal(m.head.type, BOX_WAIT);
    assert_int_equal(m.head.tag, 42);
    assert_int_equal(m.body_len, sizeof(ref) + 6);
    assert_memory_equal(m.body, &ref, sizeof(ref));
    assert_string_equal((const char *)m.body + sizeof(ref), "label");
    assert_int_equal(m.fd_count, 0);
}

static void a_message_without_body_has_none(void **state)
{
    struct cove_err e;
    struct msg m;

    (void)state;
    assert_int_equal(msg_send(pair[0], &(struct msg_out){ BOX_PING, .tag = 1 }, 0, &e), 0);
    assert_int_equal(receive(&m, &e), 1);
    assert_null(m.body);
    assert_int_equal(m.body_len, 0);
}

static void descriptors_ride_along_in_order_and_close_on_exec(void **state)
{
    struct box_spawn body = { 0 };
    int fds[4], before = open_fds();
    struct cove_err e;
    struct msg m;
    char c;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(pipe(fds + 2), 0);
    assert_int_equal(msg_send(pair[0],
                              &(struct msg_out){ BOX_SPAWN, .tag = 1, MSG_BODY(body), .fds = fds,
                                                 .fd_count = 4 },
                              0, &e),
                     0);
    assert_int_equal(receive(&m, &e), 1);
    assert_int_equal(m.fd_count, 4);
    for (int i = 0; i < 4; i++)
        assert_true(fcntl(m.fds[i], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(m.fds[3], "x", 1), 1);
    assert_int_equal(read(fds[2], &c, 1), 1);
    msg_close_fds(&m);
    assert_int_equal(m.fd_count, 0);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    assert_int_equal(open_fds(), before);
}

/* Packets as someone else might write them. len: what is sent; size: what the head says. */
static const struct {
    const char *because;
    uint32_t magic, type, size;
    size_t len, fds;
} refused[] = {
    { "wrong magic", MSG_MAGIC + 1, BOX_PING, 16, 16, 0 },
    { "shorter than a head", MSG_MAGIC, BOX_PING, 8, 8, 0 },
    { "one byte", MSG_MAGIC, BOX_PING, 1, 1, 0 },
    { "says it is longer than it is", MSG_MAGIC, BOX_PING, 17, 16, 0 },
    { "says it is shorter than it is", MSG_MAGIC, BOX_WAIT, 16, 24, 0 },
    { "a type nobody knows", MSG_MAGIC, 9999, 16, 16, 0 },
    { "type 0, the end of the table", MSG_MAGIC, 0, 16, 16, 0 },
    { "a type of the other direction", MSG_MAGIC, BOX_EXITED, 16, 16, 0 },
    { "a body where none belongs", MSG_MAGIC, BOX_PING, 24, 24, 0 },
    { "half a body", MSG_MAGIC, BOX_WAIT, 20, 20, 0 },
    { "a tail beyond its ceiling", MSG_MAGIC, BOX_WAIT, 24 + 65, 24 + 65, 0 },
    { "a descriptor where none belongs", MSG_MAGIC, BOX_PING, 16, 16, 1 },
    { "a descriptor missing", MSG_MAGIC, BOX_WATCH, 24, 24, 0 },
    { "one descriptor too many", MSG_MAGIC, BOX_WATCH, 24, 24, 2 },
    { "more descriptors than any message has", MSG_MAGIC, BOX_SPAWN, 16 + 48, 16 + 48, 5 },
    { "a hundred descriptors", MSG_MAGIC, BOX_SPAWN, 16 + 48, 16 + 48, 100 },
};

static void send_raw(const void *bytes, size_t len, size_t fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(100 * sizeof(int))];
    } space = { 0 };
    struct iovec part = { (void *)bytes, len };
    struct msghdr mh = { .msg_iov = &part, .msg_iovlen = 1 };
    int fds[100];

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = pair[0];
    if (fd_count > 0) {
        mh.msg_control = space.bytes;
        mh.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        *CMSG_FIRSTHDR(&mh) = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                                                .cmsg_type = SCM_RIGHTS,
                                                .cmsg_len = CMSG_LEN(fd_count * sizeof(int)) };
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&mh)), fds, fd_count * sizeof(int));
    }
    assert_int_equal(sendmsg(pair[0], &mh, 0), len);
}

static void what_no_rule_allows_is_refused_and_leaks_nothing(void **state)
{
    int before = open_fds();

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct {
            struct msg_head head;
            char rest[200];
        } packet = { .head = { refused[i].magic, refused[i].type, refused[i].size, 1 } };
        struct cove_err e = { 0 };
        struct msg m;

        send_raw(&packet, refused[i].len, refused[i].fds);
        if (receive(&m, &e) != -1 || e.code != COVE_INVALID)
            fail_msg("%s: was taken", refused[i].because);
        if (open_fds() != before)
            fail_msg("%s: left a descriptor open", refused[i].because);
    }
}

static void an_empty_packet_ends_the_conversation_and_leaks_nothing(void **state)
{
    int before = open_fds();
    struct cove_err e;
    struct msg m;

    (void)state;
    send_raw("", 0, 3);
    assert_int_equal(receive(&m, &e), 0);
    assert_int_equal(open_fds(), before);
}

static void a_packet_longer_than_the_buffer_is_refused(void **state)
{
    struct box_spawn body = { 0 };
    struct cove_err e;
    struct msg m;

    (void)state;
    assert_int_equal(msg_send(pair[0],
                              &(struct msg_out){ BOX_SPAWN, .tag = 1, MSG_BODY(body), .tail = buf,
                                                 .tail_len = 900 },
                              0, &e),
                     0);
    assert_int_equal(msg_recv(pair[1], buf, 100, rules, 0, &m, &e), -1);
    assert_int_equal(e.code, COVE_INVALID);
}

static void nothing_there_is_busy_and_a_closed_peer_is_the_end(void **state)
{
    struct cove_err e;
    struct msg m;

    (void)state;
    assert_int_equal(receive(&m, &e), -1);
    assert_int_equal(e.code, COVE_BUSY);
    pair[0] = cove_close(pair[0]);
    assert_int_equal(receive(&m, &e), 0);
    assert_int_equal(msg_send(pair[1], &(struct msg_out){ BOX_PING, .tag = 1 }, 0, &e), -1);
    assert_int_equal(e.code, COVE_GONE);
}

static void a_peer_that_closes_without_reading_is_the_end_too(void **state)
{
    struct cove_err e;
    struct msg m;

    (void)state;
    assert_int_equal(msg_send(pair[1], &(struct msg_out){ BOX_PING, .tag = 1 }, 0, &e), 0);
    pair[0] = cove_close(pair[0]);
    assert_int_equal(receive(&m, &e), 0);
}

static void a_full_queue_is_busy_and_not_a_wait(void **state)
{
    struct box_spawn body = { 0 };
    struct cove_err e = { 0 };
    int sent = 0;

    (void)state;
    while (sent < 100000 && msg_send(pair[0],
                                     &(struct msg_out){ BOX_SPAWN, .tag = 1, MSG_BODY(body),
                                                        .tail = buf, .tail_len = 900 },
                                     MSG_DONTWAIT, &e) == 0)
        sent++;
    assert_in_range(sent, 1, 99999);
    assert_int_equal(e.code, COVE_BUSY);
}

static void what_is_too_large_is_not_sent(void **state)
{
    int fds[MSG_MAX_FDS + 1] = { 0 };
    struct cove_err e;
    struct msg m;

    (void)state;
    assert_int_equal(msg_send(pair[0],
                              &(struct msg_out){ BOX_PING, .tag = 1, .body = buf,
                                                 .body_len = MSG_MAX_BYTES - 15 },
                              0, &e),
                     -1);
    assert_int_equal(e.code, COVE_TOO_LARGE);
    assert_int_equal(
        msg_send(pair[0],
                 &(struct msg_out){ BOX_PING, .tag = 1, .fds = fds, .fd_count = ARRAY_SIZE(fds) },
                 0, &e),
        -1);
    assert_int_equal(e.code, COVE_INTERNAL);
    assert_int_equal(receive(&m, &e), -1);
    assert_int_equal(e.code, COVE_BUSY);
}

static void strings_are_walked_until_the_one_without_an_end(void **state)
{
    static const char tail[] = { 'a', 'b', 0, 0, 'c', 0, 'd', 'e' };
    const char *at = tail, *end = tail + sizeof(tail);

    (void)state;
    assert_string_equal(msg_next_str(&at, end), "ab");
    assert_string_equal(msg_next_str(&at, end), "");
    assert_string_equal(msg_next_str(&at, end), "c");
    assert_null(msg_next_str(&at, end));
    assert_null(msg_next_str(&at, end));
    at = NULL;
    assert_null(msg_next_str(&at, NULL)); /* as with a message that has no body */
}

int main(void)
{
#define WITH_PAIR(t) cmocka_unit_test_setup_teardown(t, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        WITH_PAIR(body_tail_and_tag_arrive_as_they_left),
        WITH_PAIR(a_message_without_body_has_none),
        WITH_PAIR(descriptors_ride_along_in_order_and_close_on_exec),
        WITH_PAIR(what_no_rule_allows_is_refused_and_leaks_nothing),
        WITH_PAIR(an_empty_packet_ends_the_conversation_and_leaks_nothing),
        WITH_PAIR(a_packet_longer_than_the_buffer_is_refused),
        WITH_PAIR(nothing_there_is_busy_and_a_closed_peer_is_the_end),
        WITH_PAIR(a_peer_that_closes_without_reading_is_the_end_too),
        WITH_PAIR(a_full_queue_is_busy_and_not_a_wait),
        WITH_PAIR(what_is_too_large_is_not_sent),
        cmocka_unit_test(strings_are_walked_until_the_one_without_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
