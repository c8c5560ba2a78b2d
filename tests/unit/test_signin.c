/* helpers/auth/backoff.c and fcgi/basic.c: who waits, and what is a password at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "fcgi/basic.h"
#include "helpers/auth/backoff.h"

static struct backoff b;

static int clear(void **state)
{
    (void)state;
    memset(&b, 0, sizeof(b));
    return 0;
}

static void three_tries_are_free_then_each_costs_twice_as_much(void **state)
{
    static const uint64_t waits[] = { 0, 0, 0, 1000, 2000, 4000, 8000 };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
        backoff_failed(&b, "eve", 5000);
        assert_int_equal(backoff_wait(&b, "eve", 5000), waits[i]);
    }
    assert_int_equal(backoff_wait(&b, "eve", 13000), 0);
    for (int i = 0; i < 100; i++)
        backoff_failed(&b, "eve", 5000);
    assert_int_equal(backoff_wait(&b, "eve", 5000), BACKOFF_MAX_MS);
}

static void others_do_not_wait_and_success_forgives(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        backoff_failed(&b, "eve", 0);
    assert_int_equal(backoff_wait(&b, "alice", 1), 0);
    backoff_succeeded(&b, "eve");
    assert_int_equal(backoff_wait(&b, "eve", 1), 0);
}

static void a_flood_of_names_does_not_free_the_one_who_waits(void **state)
{
    char who[32];

    (void)state;
    for (int i = 0; i < 12; i++)
        backoff_failed(&b, "eve", 0);
    for (int i = 0; i < 3 * BACKOFF_SLOTS; i++) {
        snprintf(who, sizeof(who), "user%d", i);
        backoff_failed(&b, who, 1);
    }
    assert_true(backoff_wait(&b, "eve", 2) > 0);
}

static const struct {
    const char *header, *user, *password, *because; /* user NULL: none */
} headers[] = {
    { "Basic YWxpY2U6c2VjcmV0", "alice", "secret", "alice:secret" },
    { "basic YWxpY2U6c2VjcmV0", "alice", "secret", "schemes have no case" },
    { "Basic YWxpY2U6YTpi", "alice", "a:b", "a password may hold colons" },
    { "Basic YWxpY2U6cMOkc3M=", "alice", "p\xc3\xa4ss", "and more than ASCII" },
    { "Basic YWxpY2U6c2VjcmV0=", NULL, NULL, "bad padding" },
    { "Basic YWxpY2U6c2Vjcm V0", NULL, NULL, "a blank in it" },
    { "Basic !!!!", NULL, NULL, "not base64" },
    { "Basic ====", NULL, NULL, "nothing but padding" },
    { "Basic ", NULL, NULL, "empty" },
    { "Basic YWxpY2U=", NULL, NULL, "no colon" },
    { "Basic YWxpY2U6", NULL, NULL, "an empty password" },
    { "Basic OnNlY3JldA==", NULL, NULL, "no name" },
    { "Basic YWxpAGNlOnNlY3JldA==", NULL, NULL, "a NUL in it" },
    { "Basic Li4vYTpi", NULL, NULL, "../a is no name" },
    { "Basic LXg6Yg==", NULL, NULL, "-x could be an option somewhere" },
    { "Bearer YWxpY2U6c2VjcmV0", NULL, NULL, "another scheme" },
};

static void a_header_is_a_name_and_a_password_or_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
        struct basic got = { 0 };
        bool ok = basic_decode(headers[i].header, &got);

        if (ok != (headers[i].user != NULL) || (ok && strcmp(got.user, headers[i].user) != 0) ||
            (ok && strcmp(got.password, headers[i].password) != 0))
            fail_msg("%s: %d '%s' '%s'", headers[i].because, ok, got.user, got.password);
    }
}

static void a_header_of_any_length_is_survived(void **state)
{
    static char header[100000];

    (void)state;
    for (size_t len = 0; len < sizeof(header); len = len * 3 + 1) {
        struct basic got;

        snprintf(header, sizeof(header), "Basic ");
        memset(header + 6, 'Q', len < sizeof(header) - 7 ? len : sizeof(header) - 7);
        header[6 + (len < sizeof(header) - 7 ? len : sizeof(header) - 7)] = '\0';
        assert_false(basic_decode(header, &got));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(three_tries_are_free_then_each_costs_twice_as_much, clear),
        cmocka_unit_test_setup(others_do_not_wait_and_success_forgives, clear),
        cmocka_unit_test_setup(a_flood_of_names_does_not_free_the_one_who_waits, clear),
        cmocka_unit_test(a_header_is_a_name_and_a_password_or_nothing),
        cmocka_unit_test(a_header_of_any_length_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
