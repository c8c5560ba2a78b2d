/* Sessions of the web console: what a cookie must be to open one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "fcgi/console_session.h"

static const unsigned char secret[TOKEN_SECRET_BYTES] = "0123456789abcdef0123456789abcde";
static const unsigned char another[TOKEN_SECRET_BYTES] = "0123456789abcdef0123456789abcdf";

enum { NOW_S = 1000 };

static void make(const char *tenant, const char *key, uint64_t until_s,
                 char cookie[CONSOLE_COOKIE_MAX])
{
    struct console_session s = { .until_s = until_s };

    strcpy(s.tenant, tenant);
    strcpy(s.key, key);
    console_session_make(secret, &s, cookie);
}

static void a_session_reads_as_it_was_made(void **state)
{
    static const struct {
        const char *tenant, *key;
    } cases[] = { { "default", "04c3f7beb004f14b" },
                  { "a.b.c", "" },
                  { "a.b", "04c3f7beb004f14b" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char cookie[CONSOLE_COOKIE_MAX];
        struct console_session s;

        make(cases[i].tenant, cases[i].key, NOW_S + 1, cookie);
        assert_true(console_session_read(secret, cookie, NOW_S, &s));
        assert_string_equal(s.tenant, cases[i].tenant);
        assert_string_equal(s.key, cases[i].key);
        assert_int_equal(s.until_s, NOW_S + 1);
    }
}

static void the_longest_names_fit_into_a_cookie(void **state)
{
    char tenant[COVE_TENANT_MAX] = "", cookie[CONSOLE_COOKIE_MAX];
    struct console_session s;

    (void)state;
    memset(tenant, 't', sizeof(tenant) - 1);
    make(tenant, "0123456789abcdef", UINT64_MAX, cookie);
    assert_true(console_session_read(secret, cookie, NOW_S, &s));
    assert_string_equal(s.tenant, tenant);
}

static void no_character_of_a_session_can_be_changed(void **state)
{
    char cookie[CONSOLE_COOKIE_MAX];
    struct console_session s;

    (void)state;
    make("default", "04c3f7beb004f14b", NOW_S + 1, cookie);
    for (size_t i = 0; cookie[i]; i++) {
        cookie[i] ^= 1;
        assert_false(console_session_read(secret, cookie, NOW_S, &s));
        cookie[i] ^= 1;
    }
    assert_true(console_session_read(secret, cookie, NOW_S, &s));
}

static void a_session_ends(void **state)
{
    char cookie[CONSOLE_COOKIE_MAX];
    struct console_session s;

    (void)state;
    make("default", "", NOW_S, cookie);
    assert_false(console_session_read(secret, cookie, NOW_S, &s));
    assert_true(console_session_read(secret, cookie, NOW_S - 1, &s));
}

static void a_session_of_another_server_is_none(void **state)
{
    char cookie[CONSOLE_COOKIE_MAX];
    struct console_session s;

    (void)state;
    make("default", "", NOW_S + 1, cookie);
    assert_false(console_session_read(another, cookie, NOW_S, &s));
}

static void what_is_no_cookie_of_ours_is_refused(void **state)
{
    static const char *const cases[] = { "", ".", "...", "1.2.3.4", "9999999999.-.default.", "x" };
    char longer[2 * CONSOLE_COOKIE_MAX];
    struct console_session s;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_false(console_session_read(secret, cases[i], NOW_S, &s));
    memset(longer, '.', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_false(console_session_read(secret, longer, NOW_S, &s));
}

/* Otherwise a page that saw a token could make a session of it, or the other way round. */
static void the_token_for_changes_is_another_secret_than_the_session(void **state)
{
    char cookie[CONSOLE_COOKIE_MAX], token[TOKEN_LEN + 1];

    (void)state;
    make("default", "", NOW_S + 1, cookie);
    console_session_token(secret, cookie, token);
    assert_null(strstr(cookie, token));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_reads_as_it_was_made),
        cmocka_unit_test(the_longest_names_fit_into_a_cookie),
        cmocka_unit_test(no_character_of_a_session_can_be_changed),
        cmocka_unit_test(a_session_ends),
        cmocka_unit_test(a_session_of_another_server_is_none),
        cmocka_unit_test(what_is_no_cookie_of_ours_is_refused),
        cmocka_unit_test(the_token_for_changes_is_another_secret_than_the_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
