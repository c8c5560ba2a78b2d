/*
 * helpers/gate/websocket.c: frames as any client could send them. A user that sends every message back stands for terminals and
 * lines; the client is the other end of a socket pair. The tables follow the chapters of Autobahn's suite, in our own words.
 */
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

#include "cove/budget.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/websocket.h"

enum {
    FIN = 0x80,
    MORE = 0,
    TEXT = 1,
    BINARY = 2,
    CLOSE = 8,
    PING = 9,
    PONG = 10,
    NO_CODE = 1005, /* a close frame without a code */
    MALFORMED = -2, /* 1002, or no code, which is all libwslay says where bytes are no frame */
    CUT = -1,       /* no close frame, the connection ended */
    MESSAGE_MAX = 70000,
    SEND_ROOM = 1 << 20,
    LONG_MS = 3600 * 1000,
    PATIENCE_MS = 30000,
};

static struct {
    struct loop loop;
    struct websocket ws;
    struct budget budget;
    int client;
    bool gone;
} fx;

/* ------------------------------------------------------------------ the server's side */

static void echo(struct websocket *ws, bool text, const char *bytes, size_t len)
{
    websocket_send(ws, text, bytes, len);
}

static void no_room(struct websocket *ws)
{
    (void)ws;
}

static ssize_t nothing_to_pull(struct websocket *ws, char *buf, size_t len, int *ret_last)
{
    (void)ws;
    (void)buf;
    (void)len;
    (void)ret_last;
    return -1;
}

static void gone(struct websocket *ws)
{
    websocket_done(ws);
    fx.gone = true;
}

static const struct websocket_user user = { .message_max = MESSAGE_MAX,
                                            .message = echo,
                                            .room = no_room,
                                            .pull = nothing_to_pull,
                                            .gone = gone };

static void begin(uint64_t ping_ms)
{
    int ends[2], room = SEND_ROOM;

    fx.gone = false;
    fx.budget = (struct budget){ 0 };
    assert_int_equal(loop_init(&fx.loop, NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    for (int i = 0; i < 2; i++)
        setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    fx.client = ends[1];
    assert_int_equal(websocket_init(&fx.ws, &user, &fx.loop, ends[0], &fx.budget, ping_ms), 0);
}

static void end(void)
{
    if (!fx.gone)
        websocket_done(&fx.ws);
    assert_int_equal(fx.budget.used, 0);
    close(fx.client);
    loop_done(&fx.loop);
}

/* ------------------------------------------------------------------ the client's side */

struct piece { /* one frame: its first byte, and its payload */
    uint8_t first;
    const char *bytes;
    size_t len;
};

#define PIECE(first, text)                                                                         \
    {                                                                                              \
        (first), (text), sizeof(text) - 1                                                          \
    }

static void put(const void *bytes, size_t len)
{
    assert_int_equal(send(fx.client, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* The bytes of one frame; returns how many. */
static size_t frame(uint8_t *out, uint8_t first, const char *bytes, size_t len, bool masked)
{
    static const uint8_t mask[4] = { 0x37, 0xfa, 0x21, 0x3d };
    size_t at = 0;

    out[at++] = first;
    out[at++] = (uint8_t)((masked ? 0x80 : 0) | (len < 126 ? len : len < 65536 ? 126 : 127));
    if (len >= 126)
        for (int i = len < 65536 ? 1 : 7; i >= 0; i--)
            out[at++] = (uint8_t)(len >> (8 * i));
    if (masked)
        for (int i = 0; i < 4; i++)
            out[at++] = mask[i];
    for (size_t i = 0; i < len; i++)
        out[at++] = (uint8_t)((uint8_t)bytes[i] ^ (masked ? mask[i % 4] : 0));
    return at;
}

static void send_frame(uint8_t first, const char *bytes, size_t len)
{
    static uint8_t out[MESSAGE_MAX + 64];

    put(out, frame(out, first, bytes, len, true));
}

struct reply {
    int opcode; /* CUT: there was no frame */
    size_t len;
    char bytes[MESSAGE_MAX + 64];
};

/* The next `len` bytes that the server sends; false: it has closed the connection. */
static bool take(void *to, size_t len)
{
    uint64_t until_ms = clock_boot_ms() + PATIENCE_MS;
    size_t have = 0;

    while (have < len) {
        ssize_t n = recv(fx.client, (char *)to + have, len - have, MSG_DONTWAIT);

        if (n == 0)
            return false;
        if (n > 0) {
            have += (size_t)n;
            continue;
        }
        assert_true(clock_boot_ms() < until_ms);
        loop_turn(&fx.loop, 10);
    }
    return true;
}

static const struct reply *next_reply(void)
{
    static struct reply r;
    uint8_t head[2], longer[8];
    int more;

    r = (struct reply){ .opcode = CUT };
    if (!take(head, 2))
        return &r;
    assert_int_equal(head[0] & 0x70, 0); /* no reserved bit */
    assert_int_equal(head[1] & 0x80, 0); /* a server masks nothing */
    r.opcode = head[0] & 15;
    r.len = head[1] & 127;
    more = r.len == 126 ? 2 : r.len == 127 ? 8 : 0;
    if (more) {
        assert_true(take(longer, (size_t)more));
        r.len = 0;
        for (int i = 0; i < more; i++)
            r.len = r.len << 8 | longer[i];
    }
    assert_true(r.len < sizeof(r.bytes));
    assert_true(take(r.bytes, r.len));
    return &r;
}

static void expect(int opcode, const char *bytes, size_t len)
{
    const struct reply *r = next_reply();

    assert_int_equal(r->opcode, opcode);
    assert_int_equal(r->len, len);
    assert_memory_equal(r->bytes, bytes, len);
}

static int close_code(const struct reply *r)
{
    if (r->opcode != CLOSE)
        return r->opcode;
    return r->len < 2 ? NO_CODE : (uint8_t)r->bytes[0] << 8 | (uint8_t)r->bytes[1];
}

/* The next thing that comes is a close with this code, and after it the connection ends. */
static void expect_close(int code, const char *because)
{
    int got = close_code(next_reply());

    if (code == MALFORMED && (got == 1002 || got == NO_CODE))
        code = got;
    if (got != code)
        print_error("%s: closed with %d instead of %d\n", because, got, code);
    assert_int_equal(got, code);
    shutdown(fx.client, SHUT_WR);
    assert_int_equal(next_reply()->opcode, CUT);
}

/* ------------------------------------------------------------------ 1, 9: messages of all lengths */

static const size_t lengths[] = { 0, 1, 125, 126, 127, 128, 65535, 65536, MESSAGE_MAX };

static void messages_of_every_length_come_back(void **state)
{
    static char bytes[MESSAGE_MAX];

    (void)state;
    memset(bytes, '*', sizeof(bytes));
    begin(LONG_MS);
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
        for (int opcode = TEXT; opcode <= BINARY; opcode++) {
            send_frame((uint8_t)(FIN | opcode), bytes, lengths[i]);
            expect(opcode, bytes, lengths[i]);
        }
    end();
}

static void it_does_not_matter_how_bytes_are_cut(void **state)
{
    uint8_t out[256];
    char bytes[150];
    size_t len;

    (void)state;
    memset(bytes, '*', sizeof(bytes));
    begin(LONG_MS);
    len = frame(out, FIN | TEXT, bytes, sizeof(bytes), true);
    for (size_t i = 0; i < len; i++) {
        put(out + i, 1);
        loop_turn(&fx.loop, 0);
    }
    expect(TEXT, bytes, sizeof(bytes));
    end();
}

static void a_message_that_is_too_long_is_1009(void **state)
{
    static char bytes[MESSAGE_MAX + 1];

    (void)state;
    begin(LONG_MS);
    send_frame(FIN | BINARY, bytes, sizeof(bytes));
    expect_close(1009, "one byte too much");
    end();
    begin(LONG_MS);
    send_frame(BINARY, bytes, MESSAGE_MAX);
    send_frame(FIN | MORE, bytes, 1);
    expect_close(1009, "one byte too much, in the second fragment");
    end();
}

static void a_message_has_up_to_1024_fragments(void **state)
{
    static char bytes[1024];

    (void)state;
    memset(bytes, '*', sizeof(bytes));
    for (int fragments = 1024; fragments <= 1025; fragments++) {
        begin(LONG_MS);
        for (int i = 0; i < fragments; i++)
            send_frame((uint8_t)((i == fragments - 1 ? FIN : 0) | (i ? MORE : TEXT)), "*", 1);
        if (fragments == 1024)
            expect(TEXT, bytes, sizeof(bytes));
        else
            expect_close(WEBSOCKET_POLICY, "1025 fragments");
        end();
    }
}

static void a_message_beyond_the_budget_of_all_is_1013(void **state)
{
    (void)state;
    begin(LONG_MS);
    fx.budget.max = 10;
    send_frame(BINARY, "0123456789", 10);
    send_frame(FIN | MORE, "0", 1);
    expect_close(WEBSOCKET_BUSY, "no memory");
    end();
}

/* ------------------------------------------------------------------ 2: pings and pongs */

static void a_ping_comes_back_as_a_pong(void **state)
{
    static const struct piece pings[] = { PIECE(FIN | PING, ""), PIECE(FIN | PING, "text"),
                                          PIECE(FIN | PING, "\x00\xff\xfe\xfd\xfc") };
    char longest[125];

    (void)state;
    memset(longest, 0xfe, sizeof(longest));
    begin(LONG_MS);
    for (size_t i = 0; i < ARRAY_SIZE(pings); i++) {
        send_frame(pings[i].first, pings[i].bytes, pings[i].len);
        expect(PONG, pings[i].bytes, pings[i].len);
    }
    send_frame(FIN | PING, longest, sizeof(longest));
    expect(PONG, longest, sizeof(longest));
    for (int i = 0; i < 10; i++)
        send_frame(FIN | PING, "again", 5);
    for (int i = 0; i < 10; i++)
        expect(PONG, "again", 5);
    end();
}

static void a_pong_that_nobody_asked_for_is_passed_over(void **state)
{
    (void)state;
    begin(LONG_MS);
    send_frame(FIN | PONG, "", 0);
    send_frame(FIN | PONG, "unsolicited", 11);
    send_frame(FIN | PING, "ping", 4);
    expect(PONG, "ping", 4);
    end();
}

/* ------------------------------------------------------------------ 3, 4, 5: what is no frame, and fragments */

static void reserved_bits_and_opcodes_are_refused(void **state)
{
    static const uint8_t used[] = { TEXT, BINARY, CLOSE, PING, PONG };

    (void)state;
    for (unsigned bits = 1; bits < 8; bits++)
        for (size_t i = 0; i < ARRAY_SIZE(used); i++) {
            begin(LONG_MS);
            send_frame((uint8_t)(FIN | bits << 4 | used[i]), "", 0);
            expect_close(MALFORMED, "a reserved bit");
            end();
        }
    for (uint8_t opcode = 3; opcode < 16; opcode++) {
        if (opcode >= CLOSE && opcode <= PONG)
            continue;
        begin(LONG_MS);
        send_frame(FIN | TEXT, "before", 6);
        expect(TEXT, "before", 6);
        send_frame((uint8_t)(FIN | opcode), "x", 1);
        send_frame(FIN | PING, "", 0);
        expect_close(MALFORMED, "a reserved opcode");
        end();
    }
}

/* Control frames are short and whole, frames are masked, and fragments belong to a message. */
static void frames_against_the_rules_are_refused(void **state)
{
    static const char long_one[126];
    static const struct {
        struct piece pieces[3];
        size_t count;
        const char *because;
    } cases[] = {
        { { { FIN | PING, long_one, 126 } }, 1, "a ping of 126 bytes" },
        { { { FIN | PONG, long_one, 126 } }, 1, "a pong of 126 bytes" },
        { { { FIN | CLOSE, long_one, 126 } }, 1, "a close of 126 bytes" },
        { { PIECE(PING, "a"), PIECE(FIN | MORE, "b") }, 2, "a ping in two fragments" },
        { { PIECE(PONG, "a"), PIECE(FIN | MORE, "b") }, 2, "a pong in two fragments" },
        { { PIECE(CLOSE, "\x03\xe8") }, 1, "a close that is not the last fragment" },
        { { PIECE(FIN | MORE, "a") }, 1, "a continuation of nothing" },
        { { PIECE(MORE, "a"), PIECE(FIN | MORE, "b") }, 2, "continuations of nothing" },
        { { PIECE(TEXT, "a"), PIECE(FIN | TEXT, "b") }, 2, "a message within a message" },
        { { PIECE(BINARY, "a"), PIECE(BINARY, "b") }, 2, "a fragment of a second message" },
    };
    uint8_t out[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        begin(LONG_MS);
        for (size_t k = 0; k < cases[i].count; k++)
            send_frame(cases[i].pieces[k].first, cases[i].pieces[k].bytes, cases[i].pieces[k].len);
        expect_close(MALFORMED, cases[i].because);
        end();
    }
    begin(LONG_MS);
    put(out, frame(out, FIN | TEXT, "a", 1, false));
    expect_close(MALFORMED, "a frame that is not masked");
    end();
}

static void fragments_are_one_message_also_around_pings(void **state)
{
    (void)state;
    begin(LONG_MS);
    send_frame(TEXT, "one ", 4);
    send_frame(FIN | PING, "1", 1);
    send_frame(MORE, "", 0);
    send_frame(MORE, "two ", 4);
    send_frame(FIN | PING, "2", 1);
    expect(PONG, "1", 1);
    expect(PONG, "2", 1);
    send_frame(FIN | MORE, "three", 5);
    expect(TEXT, "one two three", 13);
    send_frame(BINARY, "", 0);
    send_frame(FIN | MORE, "", 0);
    expect(BINARY, "", 0);
    end();
}

/* ------------------------------------------------------------------ 6: UTF-8 */

static const char *const good_texts[] = {
    "",
    "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5",     /* words of two and three bytes a letter */
    "\x01\x7f",                                         /* the first and last of one byte */
    "\xc2\x80\xdf\xbf",                                 /* of two */
    "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf", /* of three, around the surrogates */
    "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",                 /* of four */
    "\xef\xbf\xbd\xef\xbf\xbe", /* the replacement character, a noncharacter */
};
static const struct {
    const char *bytes, *because;
} bad_texts[] = {
    { "\x80", "a continuation alone" },
    { "\xbf\xbf", "two of them" },
    { "\xc0\x80", "nought in two bytes" },
    { "\xc1\xbf", "a letter in two bytes" },
    { "\xe0\x80\x80", "nought in three bytes" },
    { "\xe0\x9f\xbf", "three bytes where two do" },
    { "\xf0\x8f\xbf\xbf", "four bytes where three do" },
    { "\xed\xa0\x80", "the first surrogate" },
    { "\xed\xbf\xbf", "the last surrogate" },
    { "\xed\xa0\xbd\xed\xb8\x80", "a pair of surrogates" },
    { "\xf4\x90\x80\x80", "above the last character" },
    { "\xf8\x88\x80\x80\x80", "five bytes" },
    { "\xfc\x84\x80\x80\x80\x80", "six bytes" },
    { "\xfe", "a byte that no text has" },
    { "\xff", "another one" },
    { "a\xc3", "an end within two bytes" },
    { "a\xe2\x82", "an end within three bytes" },
    { "a\xf0\x9f\x98", "an end within four bytes" },
    { "\xce\xba\xe1\xbd\xb9\xed\xa0\x80z", "a surrogate between letters" },
};

/* `at`: how many bytes are in the first fragment. */
static void send_split(const char *text, size_t at)
{
    send_frame(TEXT, text, at);
    send_frame(FIN | MORE, text + at, strlen(text) - at);
}

static void text_may_be_split_anywhere(void **state)
{
    (void)state;
    begin(LONG_MS);
    for (size_t i = 0; i < ARRAY_SIZE(good_texts); i++) {
        send_frame(FIN | TEXT, good_texts[i], strlen(good_texts[i]));
        expect(TEXT, good_texts[i], strlen(good_texts[i]));
        for (size_t at = 0; at <= strlen(good_texts[i]); at++) {
            send_split(good_texts[i], at);
            expect(TEXT, good_texts[i], strlen(good_texts[i]));
        }
    }
    end();
}

static void what_is_not_utf8_is_1007_wherever_it_is_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad_texts); i++) {
        begin(LONG_MS);
        send_frame(FIN | TEXT, bad_texts[i].bytes, strlen(bad_texts[i].bytes));
        expect_close(1007, bad_texts[i].because);
        end();
        for (size_t at = 0; at <= strlen(bad_texts[i].bytes); at++) {
            begin(LONG_MS);
            send_split(bad_texts[i].bytes, at);
            expect_close(1007, bad_texts[i].because);
            end();
        }
        begin(LONG_MS);
        send_frame(FIN | BINARY, bad_texts[i].bytes, strlen(bad_texts[i].bytes));
        expect(BINARY, bad_texts[i].bytes, strlen(bad_texts[i].bytes));
        end();
    }
}

/* ------------------------------------------------------------------ 7: closing */

static void send_code(unsigned code)
{
    const char bytes[2] = { (char)(code >> 8), (char)code };

    send_frame(FIN | CLOSE, bytes, sizeof(bytes));
}

static void a_close_is_answered_with_its_code(void **state)
{
    static const unsigned codes[] = { 1000, 1001, 1002, 1003, 1007, 1008, 1009,
                                      1010, 1011, 3000, 3999, 4000, 4999 };
    char reason[125] = "\x03\xe8";

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        begin(LONG_MS);
        send_code(codes[i]);
        expect_close((int)codes[i], "a code that may travel");
        end();
    }
    begin(LONG_MS);
    send_frame(FIN | CLOSE, "", 0);
    expect_close(NO_CODE, "no code");
    end();
    begin(LONG_MS);
    memset(reason + 2, '*', sizeof(reason) - 2);
    send_frame(FIN | CLOSE, reason, sizeof(reason));
    expect_close(1000, "the longest reason");
    end();
}

static void a_close_that_must_not_travel_is_1002(void **state)
{
    static const unsigned codes[] = { 0,    1,    999,  1004, 1005, 1006, 1015,
                                      1016, 1100, 2000, 2999, 5000, 65535 };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        begin(LONG_MS);
        send_code(codes[i]);
        expect_close(1002, "a code that must not travel");
        end();
    }
    begin(LONG_MS);
    send_frame(FIN | CLOSE, "\x03", 1);
    expect_close(MALFORMED, "half a code");
    end();
    begin(LONG_MS);
    send_frame(FIN | CLOSE, "\x03\xe8\xce\xba\xed\xa0\x80", 7);
    expect_close(1007, "a reason that is not UTF-8");
    end();
}

static void after_a_close_nothing_is_answered(void **state)
{
    static const uint8_t later[] = { FIN | TEXT, FIN | PING, FIN | CLOSE };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(later); i++) {
        begin(LONG_MS);
        send_code(1000);
        send_frame(later[i], "", 0);
        expect_close(1000, "the first close");
        end();
    }
    begin(LONG_MS);
    send_frame(TEXT, "half a message", 14);
    send_code(1000);
    expect_close(1000, "a close within a message");
    end();
}

/* ------------------------------------------------------------------ our own pings */

static void whoever_answers_pings_stays(void **state)
{
    (void)state;
    begin(40);
    for (int i = 0; i < 40; i++) { /* longer than silence is borne */
        expect(PING, "", 0);
        send_frame(FIN | PONG, "", 0);
    }
    assert_false(fx.gone);
    end();
}

static void whoever_never_answers_a_ping_is_cut(void **state)
{
    uint64_t until_ms;

    (void)state;
    begin(40);
    expect(PING, "", 0);
    expect(PING, "", 0);
    until_ms = clock_boot_ms() + PATIENCE_MS;
    while (!fx.gone && clock_boot_ms() < until_ms)
        loop_turn(&fx.loop, 100);
    assert_true(fx.gone);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_every_length_come_back),
        cmocka_unit_test(it_does_not_matter_how_bytes_are_cut),
        cmocka_unit_test(a_message_that_is_too_long_is_1009),
        cmocka_unit_test(a_message_has_up_to_1024_fragments),
        cmocka_unit_test(a_message_beyond_the_budget_of_all_is_1013),
        cmocka_unit_test(a_ping_comes_back_as_a_pong),
        cmocka_unit_test(a_pong_that_nobody_asked_for_is_passed_over),
        cmocka_unit_test(reserved_bits_and_opcodes_are_refused),
        cmocka_unit_test(frames_against_the_rules_are_refused),
        cmocka_unit_test(fragments_are_one_message_also_around_pings),
        cmocka_unit_test(text_may_be_split_anywhere),
        cmocka_unit_test(what_is_not_utf8_is_1007_wherever_it_is_split),
        cmocka_unit_test(a_close_is_answered_with_its_code),
        cmocka_unit_test(a_close_that_must_not_travel_is_1002),
        cmocka_unit_test(after_a_close_nothing_is_answered),
        cmocka_unit_test(whoever_answers_pings_stays),
        cmocka_unit_test(whoever_never_answers_a_ping_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
