/* sandbox/client/replay.c: the latest bytes of streams that a client may pick up again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "cove/replay.h"
#include "cove/text.h"
#include "stepped.h"

static struct replays *all;

static int setup(void **state)
{
    (void)state;
    all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return all != MAP_FAILED ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return munmap(all, sizeof(*all));
}

static long read_at(const struct replay_ref *r, uint64_t at, char *ret, size_t max, bool *ret_ended)
{
    bool skipped;

    return replay_read(r, &at, ret, max, &skipped, ret_ended);
}

static void what_was_written_is_read_from_any_place(void **state)
{
    struct replay_ref w, r;
    char bytes[16] = "";
    bool ended;

    (void)state;
    assert_true(replay_begin(all, "t", "s/1", &w));
    assert_true(replay_write(&w, "abc", 3));
    assert_true(replay_write(&w, "def", 3));
    assert_true(replay_find(all, "t", "s/1", &r));
    assert_int_equal(read_at(&r, 2, bytes, sizeof(bytes), &ended), 4);
    assert_memory_equal(bytes, "cdef", 4);
    assert_false(ended);
    assert_int_equal(read_at(&r, 6, bytes, sizeof(bytes), &ended), 0);
    assert_false(ended);
    replay_end(&w);
    assert_int_equal(read_at(&r, 6, bytes, sizeof(bytes), &ended), 0);
    assert_true(ended);
    assert_int_equal(read_at(&r, 7, bytes, sizeof(bytes), &ended), -1);
}

static void a_stream_is_found_by_its_tenant_and_its_whole_name_alone(void **state)
{
    struct replay_ref w, r;

    (void)state;
    assert_true(replay_begin(all, "t", "s/1", &w));
    assert_false(replay_find(all, "u", "s/1", &r));
    assert_false(replay_find(all, "t", "s/", &r));
    assert_false(replay_find(all, "t", "s/12", &r));
}

static void a_ring_that_came_round_says_what_it_lost(void **state)
{
    static char much[REPLAY_BYTES];
    struct replay_ref w;
    uint64_t at = 0;
    char bytes[16];
    bool skipped, ended;

    (void)state;
    assert_true(replay_begin(all, "t", "s", &w));
    memset(much, 'x', sizeof(much));
    assert_true(replay_write(&w, "0123456789", 10));
    assert_true(replay_write(&w, much, sizeof(much) - 4));
    assert_int_equal(replay_read(&w, &at, bytes, 8, &skipped, &ended), 8);
    assert_true(skipped);
    assert_memory_equal(bytes, "6789xxxx", 8);
    assert_int_equal(at, 14);
    assert_false(replay_write(&w, much, sizeof(much) + 1));
}

static void a_tenant_has_its_share_and_streams_that_ended_make_room(void **state)
{
    struct replay_ref r[REPLAYS_PER_TENANT], more, other;
    char name[16];
    bool ended;

    (void)state;
    for (int i = 0; i < REPLAYS_PER_TENANT; i++) {
        snprintf(name, sizeof(name), "s/%d", i);
        assert_true(replay_begin(all, "t", name, &r[i]));
    }
    assert_false(replay_begin(all, "t", "more", &more));
    assert_true(replay_begin(all, "u", "other", &other));
    replay_end(&r[3]);
    assert_true(replay_begin(all, "t", "more", &more));
    assert_false(replay_find(all, "t", "s/3", &other));
    assert_false(replay_write(&r[3], "late", 4));
    assert_int_equal(read_at(&r[3], 0, name, sizeof(name), &ended), -1);
    assert_int_equal(replay_written(&more), 0);
}

static void no_ring_is_nothing_to_write_to(void **state)
{
    struct replay_ref none = { 0 };

    (void)state;
    assert_false(replay_write(&none, "x", 1));
    replay_prolong(&none);
    replay_end(&none);
    assert_int_equal(replay_seen_ms(&none), 0);
}

/* ------------------------------------------------------------------ two at once */

static void begin_one(void)
{
    struct replay_ref r;

    replay_begin(all, "a", "one", &r);
}

/* All rings belong to streams that go on, but one. */
static void fill_but(size_t spare)
{
    char tenant[16];
    struct replay_ref r;

    for (size_t i = 0; i < REPLAYS_MAX; i++) {
        snprintf(tenant, sizeof(tenant), "t%zu", i / REPLAYS_PER_TENANT);
        assert_true(replay_begin(all, tenant, "s", &r));
        if (r.index == spare)
            replay_end(&r);
    }
}

/* From the first change that the other one makes, nobody else may get the ring; before, whoever begins gets it.
 * What is tried here is undone before the other one's next instruction. */
static void try_at_every_step(void)
{
    static struct replay begun[REPLAYS_MAX], now[REPLAYS_MAX];
    unsigned steps = 0, taken = 0;
    pid_t pid;

    memcpy(begun, all->items, sizeof(begun));
    pid = start_stepped(begin_one);
    do {
        struct replay_ref r;
        bool changed;

        memcpy(now, all->items, sizeof(now));
        changed = memcmp(now, begun, sizeof(now)) != 0;
        if (replay_begin(all, "b", "other", &r) == changed)
            fail_msg("after %u instructions: %s", steps,
                     changed ? "two have one ring" : "nobody has it, and it is not free");
        memcpy(all->items, now, sizeof(now));
        steps++;
        taken += changed;
    } while (step(pid));
    print_message("%u instructions, %u after the ring was taken\n", steps, taken);
    assert_true(taken > 0 && taken < steps);
}

static void two_that_begin_at_once_do_not_get_the_ring_of_a_stream_that_has_ended(void **state)
{
    (void)state;
    fill_but(5);
    try_at_every_step();
}

static void two_that_begin_at_once_do_not_get_the_ring_whose_time_is_over(void **state)
{
    (void)state;
    fill_but(5);
    all->items[5].life = 3; /* it ended long ago */
    try_at_every_step();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_written_is_read_from_any_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stream_is_found_by_its_tenant_and_its_whole_name_alone,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_ring_that_came_round_says_what_it_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tenant_has_its_share_and_streams_that_ended_make_room,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(no_ring_is_nothing_to_write_to, setup, teardown),
        cmocka_unit_test_setup_teardown(
            two_that_begin_at_once_do_not_get_the_ring_of_a_stream_that_has_ended, setup, teardown),
        cmocka_unit_test_setup_teardown(
            two_that_begin_at_once_do_not_get_the_ring_whose_time_is_over, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
