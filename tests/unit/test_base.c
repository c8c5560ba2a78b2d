/* base/: buffers, text, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cove/base64.h"
#include "cove/buf.h"
#include "cove/err.h"
#include "cove/mem.h"
#include "cove/text.h"

static void a_buffer_never_passes_its_ceiling(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 10);
    assert_int_equal(buf_add_str(&b, "12345678"), 0);
    assert_int_equal(buf_add_str(&b, "90"), 0);
    assert_int_equal(buf_add_char(&b, 'x'), -1);
    assert_true(b.overflow);
    assert_string_equal(b.data, "1234567890");
    assert_int_equal(buf_addf(&b, "%d", 1), -1);
    assert_null(buf_reserve(&b, 1));
    buf_clear(&b);
    assert_int_equal(buf_addf(&b, "%s", "abcdefghij"), 0);
    assert_false(b.overflow);
    buf_done(&b);
}

static const struct {
    const char *bytes;
    size_t len;
    const char *json, *because;
} json_cases[] = {
    { "plain", 5, "\"plain\"", "nothing to escape" },
    { "a\"b\\c", 5, "\"a\\\"b\\\\c\"", "quote and backslash" },
    { "\n\r\t\x01", 4, "\"\\n\\r\\t\\u0001\"", "controls" },
    { "a\0b", 3, "\"a\\u0000b\"", "NUL is a character like others" },
    { "\xc3\xa9", 2, "\"\xc3\xa9\"", "valid UTF-8 stays" },
    { "\xff", 1, "\"\xef\xbf\xbd\"", "a stray byte becomes U+FFFD" },
    { "\xc3", 1, "\"\xef\xbf\xbd\"", "a sequence cut short" },
    { "\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"", "a surrogate" },
    { "\xc0\xaf", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"", "an overlong slash" },
    { "\xf0\x9f\x9a\xa8", 4, "\"\xf0\x9f\x9a\xa8\"", "an emoji" },
};

static void any_bytes_become_valid_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(json_cases); i++) {
        struct buf b;

        buf_init(&b, 100);
        assert_int_equal(buf_add_json_str(&b, json_cases[i].bytes, json_cases[i].len), 0);
        if (strcmp(b.data, json_cases[i].json) != 0)
            fail_msg("%s: got %s", json_cases[i].because, b.data);
        buf_done(&b);
    }
}

static bool is_plain(int c)
{
    return c >= ' ' && c < 127 && c != '"' && c != '\\';
}

/* Eight bytes are looked at together: each of them counts, wherever it stands. */
static void any_byte_ends_a_plain_run_wherever_it_stands(void **state)
{
    char text[32];

    (void)state;
    for (int c = 0; c < 256; c++)
        for (size_t at = 0; at < sizeof(text); at++) {
            size_t n;

            memset(text, 'x', sizeof(text));
            text[at] = (char)c;
            n = text_plain_run(text, sizeof(text));
            if (is_plain(c))
                assert_int_equal(n, sizeof(text));
            else
                assert_int_equal(n, at / 8 * 8);
            assert_int_equal(text_is_utf8(text, sizeof(text)), c < 128);
        }
}

static void a_json_string_that_does_not_fit_leaves_nothing_behind(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 8);
    buf_add_str(&b, "ab");
    assert_int_equal(buf_add_json_str(&b, "123456789", 9), -1);
    assert_string_equal(b.data, "ab");
    buf_done(&b);
}

static const struct {
    const char *text;
    int ok;
    uint64_t value;
} byte_cases[] = {
    { "0", 1, 0 },
    { "512", 1, 512 },
    { "1K", 1, 1024 },
    { "2 MiB", 1, 2 << 20 },
    { "1g", 1, 1ULL << 30 },
    { "", 0, 0 },
    { "-1", 0, 0 },
    { "1X", 0, 0 },
    { "1.5G", 0, 0 },
    { "99999999999999999999", 0, 0 },
    { "18446744073709551615K", 0, 0 },
};

static void sizes_parse_or_say_why_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(byte_cases); i++) {
        struct cove_err e = { 0 };
        uint64_t value = 77;
        int rc = text_parse_bytes(byte_cases[i].text, &value, &e);

        assert_int_equal(rc, byte_cases[i].ok ? 0 : -1);
        assert_int_equal(value, byte_cases[i].ok ? byte_cases[i].value : 77);
        if (rc < 0)
            assert_int_not_equal(e.msg[0], 0);
    }
}

static void times_need_a_unit(void **state)
{
    uint64_t ms = 0;

    (void)state;
    assert_int_equal(text_parse_ms("55m", &ms, NULL), 0);
    assert_int_equal(ms, 55 * 60000);
    assert_int_equal(text_parse_ms("250ms", &ms, NULL), 0);
    assert_int_equal(ms, 250);
    assert_int_equal(text_parse_ms("60", &ms, NULL), -1);
}

static void figures_read_well(void **state)
{
    char out[32];

    (void)state;
    text_format_bytes(512ULL << 20, out);
    assert_string_equal(out, "512 MiB");
    text_format_bytes(1536, out);
    assert_string_equal(out, "1.5 KiB");
    text_format_ms(60000, out);
    assert_string_equal(out, "60 s");
    text_format_ms(1500, out);
    assert_string_equal(out, "1.5 s");
    text_format_time(1767323045678ULL, out);
    assert_string_equal(out, "2026-01-02T03:04:05.678Z");
}

static void ids_are_dns_labels_and_differ(void **state)
{
    char a[COVE_ID_LEN + 1], b[COVE_ID_LEN + 1], uuid[COVE_UUID_LEN + 1];

    (void)state;
    text_new_id(a);
    text_new_id(b);
    assert_true(text_is_id(a));
    assert_string_not_equal(a, b);
    assert_false(text_is_id("short"));
    assert_false(text_is_id("ABCDEFGHIJKLMNOPQRST"));
    assert_false(text_is_id("abcdefghijklmnopqrstu"));
    text_new_uuid(uuid);
    assert_int_equal(strlen(uuid), COVE_UUID_LEN);
    assert_int_equal(uuid[14], '4');
}

static void white_space_around_a_text_is_cut_off(void **state)
{
    static const char *const texts[][2] = {
        { " \t a b \r\n", "a b" }, { "a", "a" }, { " \n\t ", "" }, { "", "" }
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        char text[16];

        text_copy(text, sizeof(text), texts[i][0]);
        assert_string_equal(text_trim(text), texts[i][1]);
    }
}

static uint64_t hash_two(const char *a, const char *b)
{
    return text_hash_part(text_hash_part(TEXT_HASH_START, a), b);
}

static void strings_are_hashed_with_a_border_between_them(void **state)
{
    (void)state;
    assert_true(text_hash(TEXT_HASH_START, "foobar") == UINT64_C(0x85944171f73967e8));
    assert_true(hash_two("ab", "c") != hash_two("a", "bc"));
    assert_true(hash_two("abc", "") != hash_two("", "abc"));
    assert_true(text_hash_part(TEXT_HASH_START, "abc") != hash_two("abc", ""));
    assert_true(hash_two("ab", "c") == hash_two("ab", "c"));
}

static void an_error_says_where_and_why(void **state)
{
    struct cove_err e = { 0 };

    (void)state;
    assert_int_equal(cove_fail(&e, COVE_INVALID, "timeout: %d is below 1", 0), -1);
    cove_context(&e, "box '%s'", "x");
    assert_string_equal(e.msg, "box 'x': timeout: 0 is below 1");
    assert_int_equal(e.code, COVE_INVALID);
}

static void an_error_message_is_cut_at_a_whole_character(void **state)
{
    struct cove_err e = { 0 };
    char longish[400];

    (void)state;
    memset(longish, 'x', sizeof(longish));
    longish[237] = '\xf0'; /* the emoji straddles the end of msg */
    memcpy(longish + 237, "\xf0\x9f\x9a\xa8", 4);
    longish[399] = '\0';
    cove_fail(&e, COVE_INVALID, "%s", longish);
    assert_true(text_is_utf8(e.msg, strlen(e.msg)));
    assert_int_equal(strlen(e.msg), 237);
}

static void an_error_from_another_process_is_only_bytes(void **state)
{
    struct cove_err e;

    (void)state;
    memset(&e, 0xff, sizeof(e));
    cove_err_sanitize(&e);
    assert_int_equal(e.code, COVE_INTERNAL);
    assert_int_equal(e.errnum, 0);
    assert_true(text_is_utf8(e.msg, strlen(e.msg)));
}

static void an_arena_is_counted_in_its_budget_and_all_above_it(void **state)
{
    struct budget all = { .max = 100000 }, own = { .above = &all };
    struct arena a = { 0 };
    size_t before;

    (void)state;
    arena_alloc(&a, 10);
    before = a.bytes;
    assert_true(before >= 10);
    arena_within(&a, &own); /* what it had before counts too */
    assert_int_equal(own.used, before);
    assert_int_equal(all.used, before);
    assert_false(a.starved);
    arena_alloc(&a, 200000);
    assert_true(a.starved);
    assert_true(all.used >= 200000); /* overdrawn: whoever asks next is refused */
    assert_false(budget_take(&all, 1));
    arena_done(&a);
    assert_int_equal(own.used, 0);
    assert_int_equal(all.used, 0);
}

static void an_arena_gives_zeroed_aligned_memory(void **state)
{
    struct arena a = { 0 };
    char *big;

    (void)state;
    assert_string_equal(arena_printf(&a, "%d-%s", 7, "x"), "7-x");
    big = arena_alloc(&a, 100000);
    for (size_t i = 0; i < 100000; i++)
        assert_int_equal(big[i], 0);
    assert_int_equal((uintptr_t)arena_alloc(&a, 1) % 16, 0);
    arena_done(&a);
    assert_null(a.blocks);
}

/* ------------------------------------------------------------------ base64 */

static const struct {
    const char *text, *bytes; /* bytes NULL: refused */
} codes[] = {
    { "", "" },        { "YQ==", "a" },        { "YWI=", "ab" },
    { "YWJj", "abc" }, { "YWJjZA==", "abcd" }, { "YQ", NULL },
    { "YQ=", NULL },   { "Y===", NULL },       { "YQ==YQ==", NULL },
    { "Y Q=", NULL },  { "YW\nJj", NULL },     { "=", NULL },
};

static void base64_is_taken_strictly(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        char bytes[16], again[16] = "";
        size_t len = 0;
        int rc = base64_decode(codes[i].text, strlen(codes[i].text), bytes, &len);

        if ((rc == 0) != (codes[i].bytes != NULL))
            fail_msg("'%s'", codes[i].text);
        if (rc < 0)
            continue;
        assert_int_equal(len, strlen(codes[i].bytes));
        assert_memory_equal(bytes, codes[i].bytes, len);
        base64_encode(bytes, len, again);
        assert_string_equal(again, codes[i].text);
    }
}

static void every_byte_survives_base64(void **state)
{
    unsigned char all[256], back[256];
    char text[BASE64_LEN(256)];
    size_t len;

    (void)state;
    for (int i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    base64_encode(all, sizeof(all), text);
    assert_int_equal(base64_decode(text, sizeof(text), back, &len), 0);
    assert_int_equal(len, sizeof(all));
    assert_memory_equal(back, all, len);
}

static void likeness_counts_what_must_be_changed(void **state)
{
    static const struct {
        const char *a, *b;
        unsigned distance;
    } rows[] = {
        { "status", "status", 0 }, { "satus", "status", 1 }, { "stauts", "status", 1 },
        { "", "ls", 2 },           { "lss", "ls", 1 },       { "kill", "exec", 4 },
    };
    char longer[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(text_distance(rows[i].a, rows[i].b), rows[i].distance);
        assert_int_equal(text_distance(rows[i].b, rows[i].a), rows[i].distance);
    }
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_true(text_distance(longer, longer) > 1000); /* too long to be looked at */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(likeness_counts_what_must_be_changed),
        cmocka_unit_test(a_buffer_never_passes_its_ceiling),
        cmocka_unit_test(any_bytes_become_valid_json),
        cmocka_unit_test(any_byte_ends_a_plain_run_wherever_it_stands),
        cmocka_unit_test(a_json_string_that_does_not_fit_leaves_nothing_behind),
        cmocka_unit_test(sizes_parse_or_say_why_not),
        cmocka_unit_test(times_need_a_unit),
        cmocka_unit_test(figures_read_well),
        cmocka_unit_test(ids_are_dns_labels_and_differ),
        cmocka_unit_test(white_space_around_a_text_is_cut_off),
        cmocka_unit_test(strings_are_hashed_with_a_border_between_them),
        cmocka_unit_test(an_error_says_where_and_why),
        cmocka_unit_test(an_error_message_is_cut_at_a_whole_character),
        cmocka_unit_test(an_error_from_another_process_is_only_bytes),
        cmocka_unit_test(an_arena_gives_zeroed_aligned_memory),
        cmocka_unit_test(an_arena_is_counted_in_its_budget_and_all_above_it),
        cmocka_unit_test(base64_is_taken_strictly),
        cmocka_unit_test(every_byte_survives_base64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
