/* fcgi/lines.c, sse.c, base64.c and places in a log: the pure parts of streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcgi/core.h"
#include "fcgi/lines.h"
#include "tests/unit/fcgi_request.h"

/* ------------------------------------------------------------------ lines */

struct told {
    struct buf text; /* each line followed by '|', a piece by '+' */
    size_t longest;
    int stop_after; /* 0: never */
};

static int note(void *arg, const char *text, size_t len, bool goes_on)
{
    struct told *t = arg;

    buf_add(&t->text, text, len);
    buf_add_char(&t->text, goes_on ? '+' : '|');
    t->longest = len > t->longest ? len : t->longest;
    return t->stop_after > 0 && --t->stop_after == 0;
}

static const struct {
    const char *chunks[4], *want, *because;
} splits[] = {
    { { "a\nb\n" }, "a|b|", "two lines in one chunk" },
    { { "a", "b", "\n" }, "ab|", "one line in three chunks" },
    { { "a\nb" }, "a|b|", "a last line without line feed" },
    { { "a\r\n", "b\r", "\n" },
      "a|b|",
      "a carriage return before the line feed, also across chunks" },
    { { "a\rb\n" }, "a\rb|", "one inside stays" },
    { { "\n\n" }, "||", "empty lines are lines" },
    { { "" }, "", "nothing" },
    { { "\xc3", "\xa4\n" }, "\xc3\xa4|", "a character across chunks" },
};

static void chunks_become_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(splits); i++) {
        struct told told = { 0 };
        struct lines lines;
        uint64_t bytes = 0;

        buf_init(&told.text, 1000);
        lines_init(&lines);
        for (size_t c = 0; c < 4 && splits[i].chunks[c]; c++) {
            assert_int_equal(
                lines_feed(&lines, splits[i].chunks[c], strlen(splits[i].chunks[c]), note, &told),
                0);
            bytes += strlen(splits[i].chunks[c]);
        }
        lines_end(&lines, note, &told);
        if (strcmp(told.text.data ? told.text.data : "", splits[i].want) != 0)
            fail_msg("%s: '%s'", splits[i].because, told.text.data);
        assert_int_equal(lines.offset, bytes);
        lines_done(&lines);
        buf_done(&told.text);
    }
}

/* However it is chunked, a long line comes in pieces that fit, and no character is divided. */
static void long_lines_are_cut_between_characters(void **state)
{
    static const size_t chunk_sizes[] = { 1, 1000, LINE_MAX_BYTES, 70000, 200000 };
    static char text[3 * 40000 + 2];

    (void)state;
    for (size_t i = 0; i < 40000; i++)
        memcpy(text + 3 * i, "\xe2\x82\xac", 3); /* a euro sign: three bytes */
    text[sizeof(text) - 2] = '\n';
    for (size_t c = 0; c < ARRAY_SIZE(chunk_sizes); c++) {
        struct told told = { 0 };
        struct lines lines;
        size_t pieces = 0;

        buf_init(&told.text, sizeof(text) + 100);
        lines_init(&lines);
        for (size_t at = 0; at < sizeof(text) - 1; at += chunk_sizes[c]) {
            size_t left = sizeof(text) - 1 - at;

            lines_feed(&lines, text + at, left < chunk_sizes[c] ? left : chunk_sizes[c], note,
                       &told);
        }
        assert_true(told.longest <= LINE_MAX_BYTES && told.longest > LINE_MAX_BYTES - 4);
        for (char *at = told.text.data; (at = strpbrk(at, "+|")); pieces++) {
            assert_true(at == told.text.data || (unsigned char)at[-1] == 0xac);
            memmove(at, at + 1, strlen(at));
        }
        assert_int_equal(pieces, 4); /* 120,000 bytes by 32,766 */
        assert_memory_equal(told.text.data, text, sizeof(text) - 2);
        assert_int_equal(lines.offset, sizeof(text) - 1);
        lines_done(&lines);
        buf_done(&told.text);
    }
}

static void a_line_of_exactly_the_bound_is_whole(void **state)
{
    static char text[LINE_MAX_BYTES + 1];
    struct told told = { 0 };
    struct lines lines;

    (void)state;
    memset(text, 'x', LINE_MAX_BYTES);
    text[LINE_MAX_BYTES] = '\n';
    for (size_t first = 0; first <= LINE_MAX_BYTES; first += LINE_MAX_BYTES / 2) {
        buf_init(&told.text, 2 * LINE_MAX_BYTES);
        lines_init(&lines);
        lines_feed(&lines, text, first, note, &told);
        lines_feed(&lines, text + first, sizeof(text) - first, note, &told);
        assert_int_equal(told.text.len, LINE_MAX_BYTES + 1);
        assert_int_equal(told.text.data[LINE_MAX_BYTES], '|');
        lines_done(&lines);
        buf_done(&told.text);
    }
}

static void whoever_says_stop_hears_no_more(void **state)
{
    struct told told = { .stop_after = 2 };
    struct lines lines;

    (void)state;
    buf_init(&told.text, 100);
    lines_init(&lines);
    assert_int_not_equal(lines_feed(&lines, "a\nb\nc\n", 6, note, &told), 0);
    assert_string_equal(told.text.data, "a|b|");
    lines_done(&lines);
    buf_done(&told.text);
}

/* ------------------------------------------------------------------ places in a log */

static const struct {
    const char *text;
    int rc;
    uint64_t out, err;
} places[] = {
    { "0-0", 0, 0, 0 },
    { "12-345", 0, 12, 345 },
    { "7", 0, 7, 0 },
    { "", -1, 0, 0 },
    { "-", -1, 0, 0 },
    { "1-", -1, 0, 0 },
    { "a-1", -1, 0, 0 },
    { "1-2-3", -1, 0, 0 },
    { "-1-2", -1, 0, 0 },
    { "99999999999999999999999999", -1, 0, 0 },
    { "18446744073709551615-18446744073709551615", 0, UINT64_MAX, UINT64_MAX },
};

static void places_are_two_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        struct log_place p = { { 1, 1 } };
        char text[LOG_PLACE_TEXT];
        struct cove_err e;

        if (log_place_parse(places[i].text, &p, &e) != places[i].rc)
            fail_msg("'%s'", places[i].text);
        if (places[i].rc < 0)
            continue;
        assert_true(p.offset[0] == places[i].out && p.offset[1] == places[i].err);
        log_place_format(&p, text);
        if (strchr(places[i].text, '-'))
            assert_string_equal(text, places[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_become_lines),
        cmocka_unit_test(long_lines_are_cut_between_characters),
        cmocka_unit_test(a_line_of_exactly_the_bound_is_whole),
        cmocka_unit_test(whoever_says_stop_hears_no_more),
        cmocka_unit_test(places_are_two_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
