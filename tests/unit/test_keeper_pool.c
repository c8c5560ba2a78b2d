/* sandbox/keeper/pool.c: sandboxes made ahead. */
#include <stdio.h>
#include <string.h>

#include "keeper_fixture.h"
#include "sandbox/keeper/life.h"

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

static void fill_for_a_while(struct fixture *f)
{
    for (int i = 0; i < 3; i++) {
        fake.now_ms += 2000;
        fill(f);
    }
}

static void the_pool_takes_half_of_all_slots_at_most(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = FIXTURE_BOXES + 5;
    fill_for_a_while(f);
    assert_int_equal(fixture_count(f, BOX_WARM), FIXTURE_BOXES / 2);
}

static void a_full_table_leaves_no_room_for_the_pool_and_no_error(void **state)
{
    struct fixture *f = *state;
    char project[16];

    for (int i = 0; i < FIXTURE_BOXES - 2; i++) {
        snprintf(project, sizeof(project), "p%d", i);
        fixture_claimed(f, "acme", project);
    }
    f->k.config.pool = FIXTURE_BOXES;
    fill_for_a_while(f);
    assert_int_equal(fixture_count(f, BOX_WARM), 2);
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

/* ------------------------------------------------------------------ by demand */

static void claim_many(struct fixture *f, unsigned count, const char *template_name)
{
    static unsigned number;

    for (unsigned i = 0; i < count; i++) {
        struct keeper_claim args = claim_of("acme", "");

        snprintf(args.project, sizeof(args.project), "burst%u", number++);
        text_copy(args.template, sizeof(args.template), template_name);
        fixture_claim(f, &args, -1);
        fixture_finish_builds(f);
        assert_int_equal(fixture_answer(f, NULL, NULL), KEEPER_BOX);
    }
}

static void let_pass(struct fixture *f, unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++) {
        fake.now_ms += 1000;
        fill(f);
        fixture_settle(f);
    }
}

static void a_burst_makes_the_pool_grow_and_idleness_lets_it_shrink(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = 1;
    f->k.config.pool_max = 3;
    f->k.config.lifetime_ms = 3600000;
    claim_many(f, 4, "");
    let_pass(f, 1);
    assert_int_equal(fixture_count(f, BOX_WARM), 3);
    let_pass(f, 60);
    assert_int_equal(fixture_count(f, BOX_WARM), 1);
    assert_int_equal(fixture_count(f, BOX_LIVE), 4);
}

static void a_pool_of_0_stays_empty_whatever_is_asked_for(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool_max = 4;
    claim_many(f, 3, "");
    let_pass(f, 2);
    assert_int_equal(fixture_count(f, BOX_WARM), 0);
}

static void each_template_has_its_own_demand_and_the_default_its_own_share(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = 1;
    f->k.config.pool_max = 3;
    claim_many(f, 4, "busy");
    let_pass(f, 1);
    assert_int_equal(demand_spare(&f->k, "busy"), 2);
    assert_int_equal(demand_spare(&f->k, f->k.config.template), 1);
    let_pass(f, 60);
    assert_int_equal(demand_spare(&f->k, "busy"), 0);
    assert_int_equal(demand_spare(&f->k, f->k.config.template), 1);
}

static void a_template_that_is_gone_is_not_tried_for_ever(void **state)
{
    struct fixture *f = *state;

    f->k.config.pool = 1;
    f->k.config.pool_max = 4;
    for (int i = 0; i < 4; i++)
        demand_note(&f->k, "missing");
    let_pass(f, 3);
    assert_int_equal(demand_target(&f->k, "missing", fake.now_ms), 0);
    assert_int_equal(fixture_count(f, BOX_WARM), 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_pool_is_filled_and_not_beyond),
        T(one_sandbox_is_begun_at_a_time),
        T(after_a_claim_the_pool_waits_while_it_has_one_left),
        T(after_a_failure_the_pool_is_not_tried_in_a_tight_loop),
        T(the_pool_takes_half_of_all_slots_at_most),
        T(a_full_table_leaves_no_room_for_the_pool_and_no_error),
        T(a_sandbox_of_another_size_is_built_for_who_has_other_limits),
        T(after_new_limits_warm_sandboxes_of_the_old_size_go),
        T(nothing_is_begun_while_the_keeper_stops),
        T(a_burst_makes_the_pool_grow_and_idleness_lets_it_shrink),
        T(a_pool_of_0_stays_empty_whatever_is_asked_for),
        T(each_template_has_its_own_demand_and_the_default_its_own_share),
        T(a_template_that_is_gone_is_not_tried_for_ever),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
