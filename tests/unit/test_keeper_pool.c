/* sandbox/keeper/pool.c: sandboxes made ahead. */
#include <string.h>

#include "keeper_fixture.h"

/* As the loop does it: one at a time, until the pool wants no more. */
static void fill(struct fixture *f)
{
    for (int i = 0; i < 4 * FIXTURE_BOXES; i++) {
        expiry_tick(&f->k);
        fixture_finish_builds(f);
    }
}

static void the_pool_is_filled_and_not_beyond(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = 3;
    fill(f);
    assert_int_equal(fixture_count(f, BOX_WARM), 3);
    assert_int_equal(fake.built, 3);
}

static void one_sandbox_is_begun_at_a_time(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = 3;
    expiry_tick(&f->k);
    assert_int_equal(fake.built, 1);
}

/* Building takes a cpu: not just when the new sandbox runs its first command. */
static void after_a_claim_the_pool_waits_while_it_has_one_left(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = 2;
    fill(f);
    fixture_claimed(f, "acme", "p1");
    fill(f);
    assert_int_equal(fake.built, 2);
    fake.now_ms += 1000;
    fill(f);
    assert_int_equal(fake.built, 3);
}

static void after_a_failure_the_pool_is_not_tried_in_a_tight_loop(void **state)
{
    struct fixture *f = *state;
    unsigned tries;

    f->k.config.pool = 1;
    fake.builds_fail = true;
    fill(f);
    tries = fake.built;
    assert_int_equal(tries, 1);
    fixture_settle(f);
    fake.builds_fail = false;
    fake.now_ms += 1001;
    fill(f);
    assert_int_equal(fixture_count(f, BOX_WARM), 1);
}

static void a_full_table_leaves_no_room_for_the_pool_and_no_error(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = FIXTURE_BOXES + 5;
    for (int i = 0; i < 3; i++) {
        fake.now_ms += 2000;
        fill(f);
    }
    assert_int_equal(fixture_count(f, BOX_WARM), FIXTURE_BOXES);
}

static void a_sandbox_of_another_size_is_built_for_who_has_other_limits(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box;

    f->k.config.pool = 1;
    fill(f);
    f->k.config.tenant_disk_bytes = f->k.config.disk_max_bytes / 2;
    box = fixture_claimed(f, "acme", "p1");
    assert_int_equal(fake.built, 2);
    assert_int_equal(f->k.boxes[box.index].limits.disk_max_bytes, f->k.config.tenant_disk_bytes);
    assert_int_equal(fixture_count(f, BOX_WARM), 1);
}

static void after_new_limits_warm_sandboxes_of_the_old_size_go(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = 2;
    fill(f);
    f->k.config.disk_max_bytes *= 2;
    pool_review(&f->k);
    assert_int_equal(fixture_count(f, BOX_DYING), 2);
    fixture_settle(f);
    fake.now_ms += 1000;
    fill(f);
    assert_int_equal(fixture_count(f, BOX_WARM), 2);
}

static void nothing_is_begun_while_the_keeper_stops(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = 2;
    f->k.stopping = true;
    fill(f);
    assert_int_equal(fake.built, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_pool_is_filled_and_not_beyond),
        T(one_sandbox_is_begun_at_a_time),
        T(after_a_claim_the_pool_waits_while_it_has_one_left),
        T(after_a_failure_the_pool_is_not_tried_in_a_tight_loop),
        T(a_full_table_leaves_no_room_for_the_pool_and_no_error),
        T(a_sandbox_of_another_size_is_built_for_who_has_other_limits),
        T(after_new_limits_warm_sandboxes_of_the_old_size_go),
        T(nothing_is_begun_while_the_keeper_stops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
