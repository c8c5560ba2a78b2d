/* fcgi/stream.c and its framings: what leaves, what waits, and how a client learns that it was not all. */
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

#include "cove/json.h"
#include "fcgi/reply.h"
#include "fcgi/stream.h"
#include "tests/unit/fcgi_request.h"

struct event {
    const char *stream;
    struct json_text data;
};

static const struct json_field event_fields[] = {
    JSON_STR(struct event, stream, "stream", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct event, data, "data", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static const struct event event = { .stream = "stdout", .data = { "a\n\xff", 3 } };

#define EVENT_JSON "{\"stream\":\"stdout\",\"data\":\"a\\n\xef\xbf\xbd\"}"

struct fixture {
    struct fake_request fake;
    struct reply rep;
    struct stream stream;
    int nginx; /* the other end of the connection; -1: none, what is sent stays in the body */
};

static void begin(struct fixture *f, const struct framing *framing, bool connected)
{
    struct cove_err e;
    int ends[2] = { -1, -1 };

    fake_init(&f->fake, "POST", "/run_streaming", NULL, &e);
    if (connected)
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    f->fake.req.client_fd = ends[0];
    f->fake.req.fcgi_id = 1;
    f->nginx = ends[1];
    reply_init(&f->rep, 1000);
    stream_init(&f->stream, &f->fake.req, &f->rep, framing);
    stream_begin(&f->stream);
}

static void done(struct fixture *f)
{
    cove_close(f->fake.req.client_fd);
    cove_close(f->nginx);
    reply_done(&f->rep);
    request_done(&f->fake.req);
}

/* ------------------------------------------------------------------ framings */

static const struct {
    const struct framing *framing;
    struct frame frame;
    const char *want;
    size_t len;
} framings[] = {
    { &framing_sse,
      { .id = "7", .name = "output" },
      ": stream begins\n\nid: 7\nevent: output\ndata: " EVENT_JSON "\n\n",
      0 },
    { &framing_sse, { 0 }, ": stream begins\n\ndata: " EVENT_JSON "\n\n", 0 },
    { &framing_bytes, { 0 }, EVENT_JSON, 0 },
    { &framing_connect, { 0 }, "\0\0\0\0\x23" EVENT_JSON, 5 + sizeof(EVENT_JSON) - 1 },
    { &framing_connect, { .flags = 2 }, "\x02\0\0\0\x23" EVENT_JSON, 5 + sizeof(EVENT_JSON) - 1 },
};

static void each_framing_stands_around_its_message(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(framings); i++) {
        size_t len = framings[i].len ? framings[i].len : strlen(framings[i].want);
        struct fixture f;

        begin(&f, framings[i].framing, false);
        stream_event(&f.stream, &framings[i].frame, event_fields, &event);
        assert_int_equal(stream_end(&f.stream), 0);
        assert_int_equal(f.rep.body.len, len);
        assert_memory_equal(f.rep.body.data, framings[i].want, len);
        assert_true(f.rep.streamed && f.rep.ended);
        done(&f);
    }
}

static void the_length_of_a_large_envelope_is_big_endian(void **state)
{
    struct fixture f;
    struct buf *out;

    (void)state;
    begin(&f, &framing_connect, false);
    out = stream_open_frame(&f.stream, &(struct frame){ 0 });
    for (int i = 0; i < 0x10203; i++)
        buf_add_char(out, 'x');
    stream_close_frame(&f.stream);
    assert_memory_equal(f.rep.body.data, "\0\0\1\2\3x", 6);
    done(&f);
}

/* ------------------------------------------------------------------ records on the wire */

/* The payload of whole records of stdout; what is left when one is none of them is shown in *ret_rest. */
static size_t payload_of(const unsigned char *bytes, size_t len, size_t *ret_rest)
{
    size_t at = 0, total = 0;

    while (len - at >= 8 && bytes[at] == 1 && bytes[at + 1] == 6) {
        size_t n = (size_t)bytes[at + 4] << 8 | bytes[at + 5];

        if (len - at < 8 + n)
            break;
        total += n;
        at += 8 + n;
    }
    *ret_rest = len - at;
    return total;
}

static unsigned char *read_all(int fd, size_t *ret_len)
{
    unsigned char *bytes = malloc(4 << 20);
    size_t len = 0;
    ssize_t n;

    while ((n = recv(fd, bytes + len, (4 << 20) - len, MSG_DONTWAIT)) > 0)
        len += (size_t)n;
    *ret_len = len;
    return bytes;
}

static void add_bytes(struct fixture *f, size_t count)
{
    struct buf *out = stream_open_frame(&f->stream, &(struct frame){ 0 });

    for (size_t i = 0; out && i < count; i++)
        buf_add_char(out, 'x');
    stream_close_frame(&f->stream);
}

/* More than the socket holds, so that a record is on its way and the rest waits. */
static void fill(struct fixture *f)
{
    add_bytes(f, 600 * 1024);
    assert_int_equal(stream_send(&f->stream), 0);
    assert_int_equal(stream_backlog(&f->stream), STREAM_FULL);
}

static void a_slow_client_makes_the_source_wait_and_loses_nothing(void **state)
{
    size_t len, rest, total = 0;
    struct fixture f;

    (void)state;
    begin(&f, &framing_bytes, true);
    assert_int_equal(stream_backlog(&f.stream), STREAM_CLEAR);
    fill(&f);
    for (int i = 0; i < 1000 && stream_backlog(&f.stream) != STREAM_CLEAR; i++) {
        unsigned char *bytes = read_all(f.nginx, &len);

        total += len;
        free(bytes);
        assert_int_equal(stream_send(&f.stream), 0);
    }
    assert_int_equal(stream_backlog(&f.stream), STREAM_CLEAR);
    free(read_all(f.nginx, &len));
    total += len;
    rest = (600 * 1024 + 65527) / 65528; /* how many records that makes */
    assert_int_equal(total, 600 * 1024 + 8 * rest);
    done(&f);
}

static void a_cut_is_no_record_and_stands_behind_a_whole_one(void **state)
{
    size_t len, rest;
    unsigned char *bytes;
    struct fixture f;

    (void)state;
    begin(&f, &framing_bytes, true);
    fill(&f);
    assert_true(f.rep.wire.record_left > 0); /* a record is half on its way */
    stream_cut(&f.stream);
    bytes = read_all(f.nginx, &len);
    assert_true(payload_of(bytes, len, &rest) > 0);
    assert_int_equal(rest, 8);
    assert_memory_equal(bytes + len - 8, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    assert_int_equal(recv(f.nginx, bytes, 1, MSG_DONTWAIT), 0); /* and the connection is closed */
    free(bytes);
    done(&f);
}

static void a_stream_that_is_left_without_an_end_is_cut(void **state)
{
    size_t len, rest;
    unsigned char *bytes;
    struct fixture f;

    (void)state;
    begin(&f, &framing_sse, true);
    stream_event(&f.stream, &(struct frame){ 0 }, event_fields, &event);
    stream_send(&f.stream);
    stream_cut_unended(&f.fake.req, &f.rep);
    bytes = read_all(f.nginx, &len);
    payload_of(bytes, len, &rest);
    assert_int_equal(rest, 8);
    free(bytes);
    done(&f);
}

static void a_proper_end_is_not_cut(void **state)
{
    size_t len, rest;
    unsigned char *bytes;
    struct fixture f;

    (void)state;
    begin(&f, &framing_sse, true);
    stream_event(&f.stream, &(struct frame){ 0 }, event_fields, &event);
    assert_int_equal(stream_end(&f.stream), 0);
    stream_cut_unended(&f.fake.req, &f.rep);
    bytes = read_all(f.nginx, &len);
    payload_of(bytes, len, &rest);
    assert_int_equal(rest, 0);
    assert_int_equal(recv(f.nginx, bytes, 1, MSG_DONTWAIT), -1); /* libfcgi will close it */
    free(bytes);
    done(&f);
}

/* ------------------------------------------------------------------ silence */

static void silence_is_filled_by_heartbeats(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, &framing_sse, false);
    assert_int_equal(stream_tick(&f.stream), 0); /* too early */
    assert_string_equal(f.rep.body.data, ": stream begins\n\n");
    f.stream.idle_ms = 0;
    assert_int_equal(stream_wait_ms(&f.stream), 0);
    assert_int_equal(stream_tick(&f.stream), 0);
    assert_string_equal(f.rep.body.data, ": stream begins\n\n: still here\n\n");
    done(&f);
}

static void beat(struct stream *s, void *arg)
{
    stream_event(s, &(struct frame){ .name = arg }, event_fields, &event);
}

static void a_dialect_may_have_its_own_heartbeat(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, &framing_connect, false);
    f.stream.idle_ms = 0;
    assert_int_equal(stream_wait_ms(&f.stream), -1); /* Connect itself has none */
    f.stream.heartbeat = beat;
    assert_int_equal(stream_tick(&f.stream), 0);
    assert_int_equal(f.rep.body.len, 5 + sizeof(EVENT_JSON) - 1);
    done(&f);
}

static void a_client_that_takes_nothing_is_given_up(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, &framing_sse, true);
    fill(&f);
    assert_int_equal(stream_tick(&f.stream), 0); /* not yet */
    f.stream.stall_ms = 0;
    assert_int_not_equal(stream_tick(&f.stream), 0);
    assert_true(f.stream.gone);
    assert_null(stream_open_frame(&f.stream, &(struct frame){ 0 }));
    done(&f);
}

static void a_source_may_outlive_its_client(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, &framing_sse, true);
    f.stream.keep = true;
    assert_int_equal(stream_lost(&f.stream), 0);
    stream_event(&f.stream, &(struct frame){ 0 }, event_fields, &event);
    assert_int_equal(stream_send(&f.stream), 0);
    assert_int_equal(stream_tick(&f.stream), 0);
    assert_int_equal(stream_backlog(&f.stream), STREAM_CLEAR);
    assert_int_not_equal(stream_end(&f.stream), 0); /* but nobody got its end */
    done(&f);
}

static void a_client_that_hung_up_ends_its_source(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, &framing_sse, true);
    f.nginx = cove_close(f.nginx);
    add_bytes(&f, 10);
    assert_int_not_equal(stream_send(&f.stream), 0);
    done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_framing_stands_around_its_message),
        cmocka_unit_test(the_length_of_a_large_envelope_is_big_endian),
        cmocka_unit_test(a_slow_client_makes_the_source_wait_and_loses_nothing),
        cmocka_unit_test(a_cut_is_no_record_and_stands_behind_a_whole_one),
        cmocka_unit_test(a_stream_that_is_left_without_an_end_is_cut),
        cmocka_unit_test(a_proper_end_is_not_cut),
        cmocka_unit_test(silence_is_filled_by_heartbeats),
        cmocka_unit_test(a_dialect_may_have_its_own_heartbeat),
        cmocka_unit_test(a_client_that_takes_nothing_is_given_up),
        cmocka_unit_test(a_source_may_outlive_its_client),
        cmocka_unit_test(a_client_that_hung_up_ends_its_source),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
