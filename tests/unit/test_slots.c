/* fcgi/slots.c: who may wait for a request, with two workers that share one file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fcgi/shares.h"
#include "fcgi/slots.h"

static char dir[] = "/tmp/cove-slots-XXXXXX";
static char path[64], path2[80];
static struct state *keeper, *shared;
static struct slots a, b;

static int two_workers_with_two_slots(void **state)
{
    bool kept;

    (void)state;
    strcpy(dir + sizeof(dir) - 7, "XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/state", dir);
    snprintf(path2, sizeof(path2), "%s.workers", path);
    assert_int_equal(state_open(path, getgid(), 4, 2, 4, &keeper, &kept, NULL), 0);
    assert_int_equal(state_attach(path, &shared, NULL), 0);
    state_worker_claim(shared, 0, 1);
    state_worker_claim(shared, 1, 2);
    slots_init(&a, shared, 0, 2, 1);
    slots_init(&b, shared, 1, 2, 0);
    return 0;
}

static int close_state(void **state)
{
    (void)state;
    state_close(shared);
    state_close(keeper);
    unlink(path);
    unlink(path2);
    return rmdir(dir);
}

static void take(struct slots *s, int count)
{
    for (int i = 0; i < count; i++) {
        bool promised = slots_ask(s) == SLOT_PROMISED;

        assert_true(promised);
        assert_true(slots_take(s, &promised));
    }
}

static void a_full_worker_leaves_the_door_to_one_that_has_room(void **state)
{
    (void)state;
    take(&a, 2);
    assert_int_equal(slots_ask(&a), SLOT_LATER);
    assert_int_equal(slots_ask(&b), SLOT_PROMISED);
}

static void when_all_are_full_anybody_may_wait_and_nobody_may_take(void **state)
{
    bool promised = false;

    (void)state;
    take(&a, 2);
    take(&b, 2);
    assert_int_equal(slots_ask(&a), SLOT_NONE);
    assert_int_equal(slots_ask(&b), SLOT_NONE);
    assert_false(slots_take(&a, &promised));
    slots_release(&b);
    assert_int_equal(slots_ask(&a), SLOT_LATER);
    assert_true(slots_take(&b, &promised)); /* without a promise: it came while all were full */
}

static void a_promise_is_room_until_it_is_used(void **state)
{
    bool promised;

    (void)state;
    take(&a, 2);
    take(&b, 1);
    promised = slots_ask(&b) == SLOT_PROMISED;
    assert_true(promised);
    assert_int_equal(slots_ask(&b), SLOT_LATER); /* its sibling may yet turn out to be short */
    assert_int_equal(slots_ask(&a), SLOT_LATER);
    slots_withdraw(&b, &promised);
    assert_false(promised);
    assert_int_equal(slots_ask(&b), SLOT_PROMISED);
}

static void a_worker_that_closes_or_dies_has_no_room(void **state)
{
    (void)state;
    take(&a, 2);
    slots_close(&b);
    assert_int_equal(slots_ask(&a), SLOT_NONE);
    slots_init(&b, shared, 1, STATE_ROOM_CLOSED + 1, 0); /* as if it had never closed */
    assert_int_equal(slots_ask(&a), SLOT_LATER);
    state_worker_release(keeper, 1);
    assert_int_equal(slots_ask(&a), SLOT_NONE);
}

static void the_turn_grows_when_room_comes_or_goes_and_not_between(void **state)
{
    uint32_t turn = slots_turn(&a);

    (void)state;
    take(&a, 1);
    assert_int_equal(slots_turn(&b), turn);
    take(&a, 1);
    assert_int_equal(slots_turn(&b), turn + 1);
    slots_release(&a);
    assert_int_equal(slots_turn(&b), turn + 2);
    slots_release(&a);
    assert_int_equal(slots_turn(&b), turn + 2);
}

/* Who waits for an init holds neither the last thread nor, while there is another way, a long slot. */
static void brief_slots_come_first_and_long_ones_after(void **state)
{
    bool promised = slots_ask(&a) == SLOT_PROMISED;
    enum slot_kind first = slots_take_brief(&a, &promised);

    (void)state;
    assert_int_equal(first, SLOT_KIND_BRIEF);
    assert_false(promised);
    assert_int_equal(slots_take_brief(&a, &promised), SLOT_KIND_LONG);
    assert_int_equal(slots_take_brief(&a, &promised), SLOT_KIND_LONG);
    assert_int_equal(slots_take_brief(&a, &promised), SLOT_KIND_NONE);
    slots_release_kind(&a, SLOT_KIND_NONE);
    assert_int_equal(slots_take_brief(&a, &promised), SLOT_KIND_NONE);
    slots_release_kind(&a, first);
    assert_int_equal(slots_take_brief(&a, &promised), SLOT_KIND_BRIEF);
    slots_release_kind(&a, SLOT_KIND_LONG);
    assert_true(slots_take(&a, &promised));
}

static void nobody_holds_more_than_a_share(void **state)
{
    struct shares shares;

    (void)state;
    assert_int_equal(shares_init(&shares, 6, 5, 50, NULL), 0); /* half of five, rounded up: three */
    for (int i = 0; i < 3; i++)
        assert_true(shares_take(&shares, "greedy", true, NULL));
    assert_false(shares_take(&shares, "greedy", true, NULL));
    assert_true(shares_take(&shares, "greedy", false, NULL)); /* in a brief slot */
    shares_release(&shares, "greedy", false);
    assert_true(shares_take(&shares, "other", true, NULL));
    shares_release(&shares, "greedy", true);
    assert_true(shares_take(&shares, "greedy", true, NULL));
    assert_false(shares_take(&shares, "greedy", true, NULL));
    for (int i = 0; i < 3; i++)
        shares_release(&shares, "greedy", true);
    assert_true(shares_take(&shares, "third", true, NULL));
    shares_done(&shares);
}

static void nobody_takes_more_than_half_while_another_holds_some(void **state)
{
    struct shares shares;

    (void)state;
    assert_int_equal(shares_init(&shares, 12, 10, 90, NULL), 0);
    shares_halve_among(&shares, 10);
    for (int i = 0; i < 9; i++) /* alone: nine of ten */
        assert_true(shares_take(&shares, "greedy", true, NULL));
    assert_false(shares_take(&shares, "greedy", true, NULL));
    assert_true(shares_take(&shares, "other", true, NULL));
    for (int i = 9; i > 5; i--) { /* what it gives back it does not get again */
        shares_release(&shares, "greedy", true);
        assert_false(shares_take(&shares, "greedy", true, NULL));
    }
    shares_release(&shares, "greedy", true);
    assert_true(shares_take(&shares, "greedy", true, NULL)); /* the fifth */
    for (int i = 0; i < 4; i++)
        assert_true(shares_take(&shares, "other", true, NULL));
    assert_false(shares_take(&shares, "other", true, NULL));
    assert_true(shares_take(&shares, "brief", false, NULL)); /* holds none */
    for (int i = 0; i < 5; i++)
        shares_release(&shares, "other", true);
    assert_true(shares_take(&shares, "greedy", true, NULL)); /* alone again: the sixth */
    shares_done(&shares);
}

static void bytes_are_paid_to_the_share_and_to_all(void **state)
{
    struct budget all = { .max = 100000 }, *mine, *theirs;
    struct buf first, second;
    struct shares shares;

    (void)state;
    assert_int_equal(shares_init(&shares, 4, 4, 100, NULL), 0);
    shares.all = &all;
    shares.bytes_max = 70000;
    assert_true(shares_take(&shares, "mine", true, &mine) &&
                shares_take(&shares, "theirs", true, &theirs));
    buf_init_within(&first, 65000, mine);
    buf_init_within(&second, 65000, theirs);
    assert_non_null(buf_reserve(&first, 60000));
    assert_null(buf_reserve(&second, 60000)); /* within the share, but all have no room */
    assert_true(second.starved && second.overflow);
    buf_done(&first);
    buf_clear(&second);
    assert_non_null(buf_reserve(&second, 60000)); /* what was given back can be had */
    buf_init_within(&first, 65000, theirs);
    assert_null(buf_reserve(&first, 30000)); /* all have room, the share has not */
    assert_true(first.starved);
    buf_done(&first);
    buf_done(&second);
    assert_int_equal(atomic_load(&all.used), 0);
    shares_release(&shares, "mine", true);
    shares_release(&shares, "theirs", true);
    shares_done(&shares);
}

static void a_share_of_nothing_is_no_limit(void **state)
{
    struct shares shares;

    (void)state;
    assert_int_equal(shares_init(&shares, 1, 1, 0, NULL), 0);
    for (int i = 0; i < 10; i++)
        assert_true(shares_take(&shares, "anybody", true, NULL) &&
                    shares_take(NULL, "anybody", true, NULL));
    shares_done(&shares);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, two_workers_with_two_slots, close_state)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(brief_slots_come_first_and_long_ones_after),
        cmocka_unit_test(nobody_holds_more_than_a_share),
        cmocka_unit_test(nobody_takes_more_than_half_while_another_holds_some),
        cmocka_unit_test(a_share_of_nothing_is_no_limit),
        cmocka_unit_test(bytes_are_paid_to_the_share_and_to_all),
        TEST(a_full_worker_leaves_the_door_to_one_that_has_room),
        TEST(when_all_are_full_anybody_may_wait_and_nobody_may_take),
        TEST(a_promise_is_room_until_it_is_used),
        TEST(a_worker_that_closes_or_dies_has_no_room),
        TEST(the_turn_grows_when_room_comes_or_goes_and_not_between),
    };

    return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
