/* base/end.c: how a command ended, in words and as one number. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cove/end.h"
#include "cove/mem.h"

static const struct {
    struct cove_end end;
    int exit_code;
    const char *words;
} cases[] = {
    { { .exit_code = 0 }, 0, "" },
    { { .exit_code = 3 }, 3, "exit code 3" },
    { { .signal = SIGKILL }, 137, "killed by signal 9 (SIGKILL)" },
    { { .signal = SIGSEGV }, 139, "killed by signal 11 (SIGSEGV)" },
    { { .signal = 40 }, 168, "killed by signal 40" },
    { { .signal = 9, .cause = END_DEADLINE, .limit = 60000 }, 124, "deadline (60 s) reached" },
    { { .signal = 9, .cause = END_DEADLINE, .limit = 250 }, 124, "deadline (250 ms) reached" },
    { { .signal = 9, .cause = END_MEMORY, .limit = 512 << 20 },
      137,
      "memory limit (512 MiB) reached" },
    { { .exit_code = 254, .cause = END_PIDS, .limit = 64 }, 254, "process limit (64) reached" },
    { { .exit_code = 1, .cause = END_PIDS }, 1, "process limit reached" },
    { { .exit_code = 1, .cause = END_DISK, .limit = 1 << 30 }, 1, "disk limit (1 GiB) reached" },
    { { .signal = 9, .cause = END_OUTPUT, .limit = 1024 }, 137, "output limit (1 KiB) reached" },
    { { .signal = 9, .cause = END_POLICY, .limit = 1000 },
      137,
      "limit of refusals by the policy (1000) reached" },
    { { .signal = 9, .cause = END_CLIENT }, 137, "killed because the client went away" },
    { { .signal = 9, .cause = END_SERVER }, 137, "killed because the server restarts" },
    { { .signal = 15, .cause = END_KILLED }, 143, "killed on request" },
    { { .signal = 9, .cause = END_GONE }, 137, "the sandbox ended" },
    { { .signal = 9, .cause = END_EXPIRED, .limit = 3600000 },
      137,
      "lifetime of the sandbox (3600 s) reached" },
    { { .exit_code = 7, .cause = 4711 }, 7, "exit code 7" },
};

static void every_end_has_one_number_and_one_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char words[80];

        end_describe(&cases[i].end, words, sizeof(words));
        assert_string_equal(words, cases[i].words);
        assert_int_equal(end_exit_code(&cases[i].end), cases[i].exit_code);
    }
}

static void a_description_that_does_not_fit_is_cut_not_overrun(void **state)
{
    struct cove_end end = { .signal = 9, .cause = END_MEMORY, .limit = 512 << 20 };
    char words[8] = "xxxxxxx";

    (void)state;
    end_describe(&end, words, 7);
    assert_string_equal(words, "memory");
}

static void every_cause_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (uint32_t a = 0; a < END_CAUSE_COUNT; a++)
        for (uint32_t b = 0; b < a; b++)
            assert_string_not_equal(end_cause_name(a), end_cause_name(b));
    assert_string_equal(end_cause_name(END_MEMORY), "memory");
    assert_string_equal(end_cause_name(UINT32_MAX), "own");
}

static void what_a_sandbox_says_about_an_end_is_brought_into_range(void **state)
{
    struct cove_end end = { .exit_code = -1,
                            .signal = 12345,
                            .cause = 99,
                            .started_unix_ms = UINT64_MAX,
                            .ended_unix_ms = 5 };

    (void)state;
    end_sanitize(&end);
    assert_int_equal(end.cause, END_OWN);
    assert_int_equal(end.signal, SIGKILL);
    assert_int_equal(end.exit_code, 0);
    assert_true(end.started_unix_ms <= 253402300799999); /* still a year of four digits */
    assert_true(end.ended_unix_ms >= end.started_unix_ms);

    end = (struct cove_end){ .exit_code = 256 + 3 };
    end_sanitize(&end);
    assert_int_equal(end.exit_code, 3);
}

static void an_honest_record_passes_unchanged(void **state)
{
    struct cove_end end = { .exit_code = 3,
                            .cause = END_PIDS,
                            .denied = 2,
                            .limit = 64,
                            .started_unix_ms = 1700000000000,
                            .ended_unix_ms = 1700000000005 };
    struct cove_end before = end;

    (void)state;
    end_sanitize(&end);
    assert_memory_equal(&end, &before, sizeof(end));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_end_has_one_number_and_one_sentence),
        cmocka_unit_test(a_description_that_does_not_fit_is_cut_not_overrun),
        cmocka_unit_test(every_cause_has_a_name_of_its_own),
        cmocka_unit_test(what_a_sandbox_says_about_an_end_is_brought_into_range),
        cmocka_unit_test(an_honest_record_passes_unchanged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
