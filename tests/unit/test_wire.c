/* fcgi/wire.c: records as FastCGI has them, however little the socket takes at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/buf.h"
#include "fcgi/wire.h"

enum { REQUEST = 258, BYTES = 1000000 };

struct pair_of_sockets {
    int ours, theirs;
    struct buf got; /* records as they came */
};

static int open_pair(void **state)
{
    static struct pair_of_sockets p;
    int ends[2], small = 4096;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    p = (struct pair_of_sockets){ .ours = ends[0], .theirs = ends[1] };
    buf_init(&p.got, 4 * BYTES);
    *state = &p;
    return 0;
}

static int close_pair(void **state)
{
    struct pair_of_sockets *p = *state;

    buf_done(&p->got);
    close(p->ours);
    close(p->theirs);
    return 0;
}

static void take(struct pair_of_sockets *p, size_t max)
{
    char *at = buf_reserve(&p->got, max);
    ssize_t n = recv(p->theirs, at, max, MSG_DONTWAIT);

    if (n > 0)
        p->got.len += (size_t)n;
}

/* The payloads of all records one after the other; fails on anything that is no whole stdout
 * record. */
static size_t unpack(const struct pair_of_sockets *p, char *out)
{
    const unsigned char *at = (const unsigned char *)p->got.data, *end = at + p->got.len;
    size_t total = 0;

    while (at < end) {
        size_t len = (size_t)at[4] << 8 | at[5];

        assert_true(end - at >= 8 && len > 0 && (size_t)(end - at - 8) >= len);
        assert_int_equal(at[0], 1);
        assert_int_equal(at[1], 6);
        assert_int_equal(at[2] << 8 | at[3], REQUEST);
        assert_int_equal(at[6], 0);
        memcpy(out + total, at + 8, len);
        total += len;
        at += 8 + len;
    }
    return total;
}

static char *some_bytes(void)
{
    char *bytes = malloc(BYTES);

    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    return bytes;
}

static void what_does_not_fit_at_once_follows_and_records_stay_whole(void **state)
{
    struct pair_of_sockets *p = *state;
    char *bytes = some_bytes(), *out = malloc(BYTES);
    size_t sent = 0, taken, full = 0;
    struct wire w;
    int rc = 0;

    wire_init(&w, p->ours, REQUEST);
    for (size_t step = 1; rc == 0; step = step * 3 % 5000 + 1) {
        rc = wire_send(&w, bytes + sent, BYTES - sent, false, &taken);
        assert_true(rc >= 0);
        sent += taken;
        full += rc == 0;
        take(p, step);
    }
    for (size_t before = 1; before != p->got.len;) {
        before = p->got.len;
        take(p, BYTES);
    }
    assert_true(full > 10);
    assert_int_equal(sent, BYTES);
    assert_int_equal(unpack(p, out), BYTES);
    assert_memory_equal(out, bytes, BYTES);
    free(bytes);
    free(out);
}

static void a_reader_that_has_left_is_told_at_once(void **state)
{
    struct pair_of_sockets *p = *state;
    struct wire w;
    size_t taken;

    wire_init(&w, p->ours, REQUEST);
    shutdown(p->theirs, SHUT_RDWR);
    assert_int_equal(wire_send(&w, "x", 1, false, &taken), -1);
    assert_int_equal(wire_send(&w, "x", 1, true, &taken), -1);
}

static void patience_ends_with_the_sockets_own_timeout(void **state)
{
    struct pair_of_sockets *p = *state;
    const struct timeval patience = { .tv_usec = 20000 };
    char *bytes = some_bytes();
    struct wire w;
    size_t taken;

    wire_init(&w, p->ours, REQUEST);
    setsockopt(p->ours, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    assert_int_equal(wire_send(&w, bytes, BYTES, true, &taken), -1);
    assert_true(taken < BYTES);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_does_not_fit_at_once_follows_and_records_stay_whole,
                                        open_pair, close_pair),
        cmocka_unit_test_setup_teardown(a_reader_that_has_left_is_told_at_once, open_pair,
                                        close_pair),
        cmocka_unit_test_setup_teardown(patience_ends_with_the_sockets_own_timeout, open_pair,
                                        close_pair),
    };

    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
