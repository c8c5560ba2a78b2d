/* sandbox/client/notes.c: words that one worker leaves for another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cove/notes.h"
#include "cove/text.h"

enum { LONG_MS = 60000 };

static struct notes *n;

static int setup(void **state)
{
    (void)state;
    n = calloc(1, sizeof(*n));
    return n ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free(n);
    return 0;
}

static void a_note_is_found_by_kind_session_and_text_and_by_nothing_else(void **state)
{
    (void)state;
    assert_int_equal(notes_put(n, "cancelled", "t", "s1", "7", LONG_MS, NULL), 0);
    assert_true(notes_has(n, "cancelled", "s1", "7"));
    assert_false(notes_has(n, "cancelled", "s1", "8"));
    assert_false(notes_has(n, "cancelled", "s2", "7"));
    assert_false(notes_has(n, "ended", "s1", "7"));
    assert_false(notes_has(n, "cancelleds", "1", "7"));
}

static void a_note_is_gone_when_it_is_dropped_or_its_time_is_over(void **state)
{
    uint64_t until = clock_boot_ms() + 5000;

    (void)state;
    notes_put(n, "k", "t", "s", "dropped", LONG_MS, NULL);
    notes_drop(n, "k", "s", "dropped");
    assert_false(notes_has(n, "k", "s", "dropped"));
    notes_put(n, "k", "t", "s", "short", 1, NULL);
    while (notes_has(n, "k", "s", "short"))
        assert_true(clock_boot_ms() < until);
}

static void every_change_is_seen_in_the_turn(void **state)
{
    uint64_t before = notes_turn(n);

    (void)state;
    notes_put(n, "k", "t", "s", "a", LONG_MS, NULL);
    assert_true(notes_turn(n) > before);
    before = notes_turn(n);
    notes_drop(n, "k", "s", "a");
    assert_true(notes_turn(n) > before);
}

static void a_tenant_fills_its_share_and_not_the_table(void **state)
{
    struct cove_err e;
    char text[16];

    (void)state;
    for (int i = 0; i < NOTES_PER_TENANT; i++) {
        snprintf(text, sizeof(text), "%d", i);
        assert_int_equal(notes_put(n, "k", "greedy", "s", text, LONG_MS, &e), 0);
    }
    assert_int_equal(notes_put(n, "k", "greedy", "s", "more", LONG_MS, &e), -1);
    assert_int_equal(e.code, COVE_LIMIT);
    assert_int_equal(notes_put(n, "k", "greedy", "s", "0", LONG_MS, &e),
                     0); /* it is there already */
    assert_int_equal(notes_put(n, "k", "other", "s", "more", LONG_MS, &e), 0);
}

static void a_text_that_is_too_long_is_refused(void **state)
{
    char text[NOTE_TEXT_MAX + 1];
    struct cove_err e;

    (void)state;
    memset(text, 'x', NOTE_TEXT_MAX);
    text[NOTE_TEXT_MAX] = '\0';
    assert_int_equal(notes_put(n, "k", "t", "s", text, LONG_MS, &e), -1);
    text[NOTE_TEXT_MAX - 1] = '\0';
    assert_int_equal(notes_put(n, "k", "t", "s", text, LONG_MS, &e), 0);
    assert_true(notes_has(n, "k", "s", text));
}

static void join(void *arg, const char *text)
{
    strcat(arg, text);
}

static void all_notes_of_a_kind_are_told(void **state)
{
    char all[16] = "";

    (void)state;
    notes_put(n, "k", "t", "s", "a", LONG_MS, NULL);
    notes_put(n, "k", "t", "s", "b", LONG_MS, NULL);
    notes_put(n, "k", "t", "other", "c", LONG_MS, NULL);
    notes_each(n, "k", "s", LONG_MS, join, all);
    assert_string_equal(all, "ab");
}

/* A worker that was taken over may write anything into the table. */
static void rubbish_in_the_table_is_no_note(void **state)
{
    (void)state;
    notes_put(n, "k", "t", "s", "real", LONG_MS, NULL);
    memset(n->items[0].text, 'x', NOTE_TEXT_MAX);
    assert_false(notes_has(n, "k", "s", "real"));
    memset(n->items[0].text, '\0', NOTE_TEXT_MAX);
    memcpy(n->items[0].text, "forged", 7);
    assert_false(notes_has(n, "k", "s", "forged"));
    memset(n, 0xff, sizeof(*n));
    assert_false(notes_has(n, "k", "s", "real"));
    assert_int_equal(notes_put(n, "k", "t", "s", "real", LONG_MS, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_note_is_found_by_kind_session_and_text_and_by_nothing_else, setup, teardown),
        cmocka_unit_test_setup_teardown(a_note_is_gone_when_it_is_dropped_or_its_time_is_over,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(every_change_is_seen_in_the_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tenant_fills_its_share_and_not_the_table, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_text_that_is_too_long_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(all_notes_of_a_kind_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(rubbish_in_the_table_is_no_note, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
