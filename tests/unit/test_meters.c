/* sandbox/client/meters.c: pace and histograms, among several processes. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/meters.h"

static char dir[] = "/tmp/cove-meters-XXXXXX";
static char path[64];
static struct meters *m;

static int open_meters(void **state)
{
    (void)state;
    strcpy(dir + sizeof(dir) - 7, "XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/meters", dir);
    assert_int_equal(meters_make(path, getgid(), NULL), 0);
    return meters_attach(path, &m, NULL);
}

static int close_meters(void **state)
{
    (void)state;
    meters_close(m);
    unlink(path);
    return rmdir(dir);
}

static unsigned admitted(const char *who, uint64_t per_second, unsigned calls, uint64_t now_us)
{
    unsigned count = 0;

    for (unsigned i = 0; i < calls; i++)
        count += meters_admit(m, "tenant", who, per_second, now_us) == 0;
    return count;
}

static void a_seconds_worth_comes_at_once_and_then_the_rate_holds(void **state)
{
    uint64_t start = 1000000000;
    unsigned later = 0;

    (void)state;
    assert_int_equal(admitted("acme", 10, 100, start), 10);
    for (uint64_t ms = 1; ms <= 5000; ms++)
        later += admitted("acme", 10, 3, start + ms * 1000);
    assert_in_range(later, 49, 51);
}

static void one_caller_does_not_slow_another(void **state)
{
    (void)state;
    assert_int_equal(admitted("acme", 5, 100, 1000000000), 5);
    assert_int_equal(admitted("globex", 5, 100, 1000000000), 5);
    assert_int_equal(meters_admit(m, "key", "acme", 5, 1000000000), 0);
}

static void the_wait_is_told_and_is_enough(void **state)
{
    uint64_t now = 1000000000, wait;

    (void)state;
    assert_int_equal(admitted("acme", 1, 2, now), 1);
    wait = meters_admit(m, "tenant", "acme", 1, now);
    assert_in_range(wait, 1, 1001);
    assert_int_equal(meters_admit(m, "tenant", "acme", 1, now + wait * 1000), 0);
}

static void processes_share_one_pace(void **state)
{
    unsigned total = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            _exit((int)admitted("acme", 50, 40, 1000000000));
    for (int i = 0; i < 4; i++) {
        int status;

        wait(&status);
        total += (unsigned)WEXITSTATUS(status);
    }
    assert_int_equal(total, 50);
}

static void more_callers_than_slots_still_pass(void **state)
{
    char who[32];

    (void)state;
    for (int i = 0; i < 20000; i++) {
        snprintf(who, sizeof(who), "tenant-%d", i);
        assert_int_equal(meters_admit(m, "tenant", who, 1, 1000000000), 0);
    }
}

static void requests_are_counted_by_dialect_status_and_time(void **state)
{
    struct meter_histogram h;

    (void)state;
    meters_request(m, 1, 200, 0);
    meters_request(m, 1, 200, 7);
    meters_request(m, 1, 429, 99999999);
    meters_request(m, 99, 9999, 1); /* nonsense is counted where it does no harm */
    assert_int_equal(meters_replies(m, 1, 200), 2);
    assert_int_equal(meters_replies(m, 1, 429), 1);
    assert_int_equal(meters_replies(m, 0, 0), 1);
    meters_histogram(m, 1, &h);
    assert_int_equal(h.buckets[0], 1);
    assert_int_equal(h.buckets[3], 1); /* 5 < 7 <= 10 */
    assert_int_equal(h.buckets[METER_BUCKETS], 1);
    assert_int_equal(h.sum_ms, 100000006);
}

static const struct {
    off_t length;
    uint64_t head[3];
    const char *because;
} spoilt[] = {
    { 0, { 0 }, "cut to nothing" },
    { 100, { 0 }, "cut short" },
    { 1 << 20, { 0 }, "made longer" },
    { -1, { 0, 0, 0 }, "an empty head" },
    { -1, { UINT64_MAX, UINT64_MAX, UINT64_MAX }, "a head of nonsense" },
};

static void spoil(off_t length, const uint64_t head[3])
{
    int fd = open(path, O_RDWR);

    assert_true(fd >= 0);
    if (length >= 0)
        assert_int_equal(ftruncate(fd, length), 0);
    else
        assert_int_equal(pwrite(fd, head, 3 * sizeof(*head), 0), 3 * sizeof(*head));
    close(fd);
}

static void a_file_that_a_worker_spoilt_is_mended_by_the_next_worker(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
        struct meters *again;

        spoil(spoilt[i].length, spoilt[i].head);
        if (meters_attach(path, &again, NULL) < 0)
            fail_msg("%s: nobody can attach any more", spoilt[i].because);
        meters_request(again, METER_DIALECTS - 1, METER_STATUS_MAX - 1, 1);
        assert_int_equal(meters_admit(again, "tenant", spoilt[i].because, 1, 1000000000), 0);
        meters_close(again);
    }
}

static void a_next_keeper_goes_on_counting_and_another_version_starts_anew(void **state)
{
    struct meters *again;

    (void)state;
    meters_request(m, 1, 200, 1);
    assert_int_equal(meters_make(path, getgid(), NULL), 0);
    assert_int_equal(meters_attach(path, &again, NULL), 0);
    assert_int_equal(meters_replies(again, 1, 200), 1);
    meters_close(again);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(meters_make(path, getgid(), NULL), 0);
    assert_int_equal(meters_attach(path, &again, NULL), 0);
    assert_int_equal(meters_replies(again, 1, 200), 0);
    meters_close(again);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_meters, close_meters)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_seconds_worth_comes_at_once_and_then_the_rate_holds),
        TEST(one_caller_does_not_slow_another),
        TEST(the_wait_is_told_and_is_enough),
        TEST(processes_share_one_pace),
        TEST(more_callers_than_slots_still_pass),
        TEST(requests_are_counted_by_dialect_status_and_time),
        TEST(a_next_keeper_goes_on_counting_and_another_version_starts_anew),
        TEST(a_file_that_a_worker_spoilt_is_mended_by_the_next_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
