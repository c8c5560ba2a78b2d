/* sandbox/client/samples.c: what a sandbox has used, over a life of any length. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/samples.h"

enum { SLOTS = 4, START_MS = 1000000 };

static char dir[] = "/tmp/cove-samples-XXXXXX";
static char path[64];
static int fd;

static int open_samples(void **state)
{
    (void)state;
    strcpy(dir + sizeof(dir) - 7, "XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/samples", dir);
    return samples_open(path, getgid(), SLOTS, &fd, NULL);
}

static int close_samples(void **state)
{
    (void)state;
    close(fd);
    unlink(path);
    return rmdir(dir);
}

/* The n-th look at a sandbox that uses half a cpu. */
static void look(uint32_t slot, uint32_t generation, uint64_t n)
{
    struct sample_look at = {
        .unix_ms = START_MS + n * SAMPLE_EVERY_MS,
        .cpu_us = n * SAMPLE_EVERY_MS * 500,
        .memory_bytes = n,
        .disk_bytes = 2 * n,
        .received_bytes = 7000 + n * SAMPLE_EVERY_MS * 3, /* 3,000 bytes a second */
        .sent_bytes = n * SAMPLE_EVERY_MS,
    };

    assert_int_equal(samples_add(fd, slot, generation, &at), 0);
}

static void samples_come_back_as_they_were_taken(void **state)
{
    struct sample_ring r;

    (void)state;
    for (uint64_t n = 0; n < 3; n++)
        look(1, 7, n);
    assert_int_equal(samples_read(path, 1, 7, &r, NULL), 0);
    assert_int_equal(r.count, 3);
    assert_int_equal(r.samples[0].cpu_permille, 0); /* nothing to compare with */
    assert_int_equal(r.samples[2].cpu_permille, 500);
    assert_int_equal(r.samples[2].memory_bytes, 2);
    assert_int_equal(r.samples[2].disk_bytes, 4);
    assert_int_equal(r.samples[0].received_bps, 0);
    assert_int_equal(r.samples[2].received_bps, 3000);
    assert_int_equal(r.samples[2].sent_bps, 1000);
}

static void a_file_of_another_version_begins_anew(void **state)
{
    struct sample_ring r;
    int again;

    (void)state;
    look(1, 7, 0);
    assert_int_equal(samples_open(path, getgid(), SLOTS, &again, NULL), 0);
    close(again);
    assert_int_equal(samples_read(path, 1, 7, &r, NULL), 0);
    assert_int_equal(r.count, 1);
    assert_int_equal(ftruncate(fd, SLOTS * 100000), 0);
    assert_int_equal(samples_open(path, getgid(), SLOTS, &again, NULL), 0);
    close(again);
    assert_int_equal(samples_read(path, 1, 7, &r, NULL), 0);
    assert_int_equal(r.count, 0);
}

static void a_slot_that_is_used_again_shows_nothing_of_before(void **state)
{
    struct sample_ring r;

    (void)state;
    look(1, 7, 0);
    assert_int_equal(samples_read(path, 1, 8, &r, NULL), 0);
    assert_int_equal(r.count, 0);
    look(1, 8, 0);
    assert_int_equal(samples_read(path, 1, 8, &r, NULL), 0);
    assert_int_equal(r.count, 1);
    assert_int_equal(samples_read(path, 2, 8, &r, NULL), 0);
    assert_int_equal(r.count, 0);
}

static void a_long_life_is_covered_from_beginning_to_end(void **state)
{
    const uint64_t looks = 50 * SAMPLES_MAX;
    struct sample_ring r;

    (void)state;
    for (uint64_t n = 0; n < looks; n++)
        look(0, 1, n);
    assert_int_equal(samples_read(path, 0, 1, &r, NULL), 0);
    assert_in_range(r.count, SAMPLES_MAX / 2, SAMPLES_MAX);
    assert_in_range(r.samples[0].memory_bytes, 0, looks / 50);
    assert_in_range(r.samples[r.count - 1].memory_bytes, looks - looks / 50, looks);
    for (uint32_t i = 1; i < r.count; i++) {
        assert_true(r.samples[i].unix_ms > r.samples[i - 1].unix_ms);
        assert_int_equal(r.samples[i].cpu_permille, 500);
        assert_int_equal(r.samples[i].received_bps, 3000);
    }
}

static void a_spoilt_head_is_begun_anew(void **state)
{
    struct sample_ring r = { .generation = 1, .count = 1000000, .every = 0 };

    (void)state;
    assert_int_equal(pwrite(fd, &r, sizeof(r), 0), sizeof(r));
    look(0, 1, 5);
    assert_int_equal(samples_read(path, 0, 1, &r, NULL), 0);
    assert_int_equal(r.count, 1);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, open_samples, close_samples)
    const struct CMUnitTest tests[] = {
        T(samples_come_back_as_they_were_taken),
        T(a_file_of_another_version_begins_anew),
        T(a_slot_that_is_used_again_shows_nothing_of_before),
        T(a_long_life_is_covered_from_beginning_to_end),
        T(a_spoilt_head_is_begun_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
