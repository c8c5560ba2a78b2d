/* sandbox/keeper/expiry.c, life.c: when a sandbox ends, and what happens at its end. */
#include <stdio.h>
#include <string.h>

#include "keeper_fixture.h"
#include "sandbox/keeper/life.h"

static struct keeper_extend life_of(const struct keeper_box *box, uint64_t lifetime_ms,
                                    uint32_t flags)
{
    struct keeper_extend args = { .tenant = "acme", .lifetime_ms = lifetime_ms, .flags = flags };

    text_copy(args.id, sizeof(args.id), box->id);
    return args;
}

static struct box_info *info_of(struct fixture *f, const struct keeper_box *box)
{
    return &f->k.boxes[box->index].info;
}

static struct keeper_box claimed_for(struct fixture *f, uint64_t lifetime_ms, uint32_t flags)
{
    struct keeper_claim args = claim_of("acme", flags & CLAIM_OWN_PROJECT ? "" : "p1");
    struct keeper_box box = { 0 };

    args.lifetime_ms = lifetime_ms;
    args.flags = flags;
    fixture_claim(f, &args, -1);
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, &box, NULL), KEEPER_BOX);
    return box;
}

static void a_sandbox_ends_at_its_time_and_leaves_the_reason(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 5000, 0);
    struct box_info after;

    fake.now_ms += 4999;
    expiry_tick(&f->k);
    assert_int_equal(info_of(f, &box)->state, BOX_LIVE);
    fake.now_ms += 1;
    expiry_tick(&f->k);
    assert_int_equal(info_of(f, &box)->state, BOX_DYING);
    fixture_settle(f);
    state_box_read(f->k.state, box.index, &after);
    assert_int_equal(after.state, BOX_EMPTY);
    assert_int_equal(after.generation, box.generation);
    assert_int_equal(after.end_cause, END_EXPIRED);
    assert_int_equal(after.end_limit, 5000);
}

static void frozen_and_ageing_sandboxes_end_too(void **state)
{
    struct fixture *f = *state;
    struct keeper_box old = fixture_claimed(f, "acme", "p1"), new;
    struct keeper_extend args;
    struct cove_err e;

    fake.now_ms += f->k.config.reuse_ms + 1;
    new = fixture_claimed(f, "acme", "p1");
    args = life_of(&new, 0, 0);
    assert_int_equal(life_freeze(&f->k, &args, true, NULL, &e), 0);
    assert_int_equal(info_of(f, &old)->state, BOX_AGEING);
    assert_int_equal(info_of(f, &new)->state, BOX_FROZEN);
    fake.now_ms += f->k.config.lifetime_ms;
    expiry_tick(&f->k);
    assert_int_equal(info_of(f, &old)->state, BOX_DYING);
    assert_int_equal(info_of(f, &new)->state, BOX_DYING);
}

static void the_loop_is_woken_for_the_next_end(void **state)
{
    struct fixture *f = *state;

    claimed_for(f, 300, 0);
    assert_int_equal(expiry_tick(&f->k), fake.now_ms + 300);
}

static void a_life_can_be_made_longer_and_shorter(void **state)
{
    static const struct {
        uint64_t lifetime_ms;
        uint32_t flags;
        uint64_t want;
        const char *because;
    } cases[] = {
        { 20000, 0, 20000, "longer" },
        { 3000, 0, 3000, "shorter" },
        { 2000, EXTEND_ONLY_LONGER, 3000, "only longer: the later end stays" },
        { 9000, EXTEND_ONLY_LONGER, 9000, "only longer: it is" },
    };
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 10000, CLAIM_OWN_PROJECT);
    struct cove_err e;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct keeper_extend args = life_of(&box, cases[i].lifetime_ms, cases[i].flags);

        assert_int_equal(life_extend(&f->k, &args, &e), 0);
        if (info_of(f, &box)->dies_at_ms != fake.now_ms + cases[i].want)
            fail_msg("%s", cases[i].because);
        assert_int_equal(info_of(f, &box)->reuse_until_ms, info_of(f, &box)->dies_at_ms);
    }
}

static void a_life_is_neither_0_nor_beyond_all_bounds(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 10000, 0);
    struct keeper_extend none = life_of(&box, 0, 0), all = life_of(&box, UINT64_MAX, 0);
    struct keeper_extend more = life_of(&box, LIFETIME_MAX_MS + 1, 0);
    struct cove_err e;

    assert_int_equal(life_extend(&f->k, &none, &e), -1);
    assert_int_equal(life_extend(&f->k, &all, &e), -1);
    assert_int_equal(life_extend(&f->k, &more, &e), -1);
    assert_int_equal(life_freeze(&f->k, &all, true, NULL, &e), -1);
    assert_int_equal(info_of(f, &box)->dies_at_ms, fake.now_ms + 10000);
}

static void a_sandbox_may_be_frozen_at_its_end(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 5000, CLAIM_OWN_PROJECT | CLAIM_END_FREEZES), again;

    fake.now_ms += 5000;
    expiry_tick(&f->k);
    assert_int_equal(info_of(f, &box)->state, BOX_FROZEN);
    assert_int_equal(info_of(f, &box)->frozen_ms, fake.now_ms);
    assert_int_equal(info_of(f, &box)->dies_at_ms, fake.now_ms + f->k.config.paused_lifetime_ms);
    /* Whoever uses it gets it back, with the lifetime it was claimed with. */
    fake.now_ms += 60000;
    again = fixture_claimed(f, "acme", box.id);
    assert_string_equal(again.id, box.id);
    assert_int_equal(info_of(f, &box)->state, BOX_LIVE);
    assert_int_equal(info_of(f, &box)->frozen_ms, 0);
    assert_int_equal(info_of(f, &box)->dies_at_ms, fake.now_ms + 5000);
}

static void a_sandbox_that_was_frozen_at_its_end_does_not_stay_for_ever(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 5000, CLAIM_OWN_PROJECT | CLAIM_END_FREEZES);

    fake.now_ms += 5000;
    expiry_tick(&f->k);
    fake.now_ms += f->k.config.paused_lifetime_ms;
    expiry_tick(&f->k);
    assert_int_equal(info_of(f, &box)->state, BOX_DYING);
}

static void what_cannot_be_frozen_at_its_end_is_killed(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 5000, CLAIM_OWN_PROJECT | CLAIM_END_FREEZES);

    fake.freeze_fails = true;
    fake.now_ms += 5000;
    expiry_tick(&f->k);
    fake.now_ms += 501;
    expiry_tick(&f->k);
    assert_int_equal(info_of(f, &box)->state, BOX_DYING);
    assert_int_equal(info_of(f, &box)->end_cause, END_EXPIRED);
}

static struct keeper_box claimed_by(struct fixture *f, uint32_t dialect)
{
    struct keeper_claim args = claim_of("acme", dialect_name(dialect));
    struct keeper_box box = { 0 };

    args.lifetime_ms = 5000;
    args.dialect = dialect;
    fixture_claim(f, &args, -1);
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, &box, NULL), KEEPER_BOX);
    return box;
}

static void the_configuration_says_what_happens_at_the_end_unless_clients_do(void **state)
{
    struct fixture *f = *state;

    f->k.config.timeout_way = TIMEOUT_FREEZES;
    for (uint32_t d = DIALECT_NONE + 1; d < DIALECT_COUNT; d++) {
        struct keeper_box box = claimed_by(f, d);

        fake.now_ms += 5000;
        expiry_tick(&f->k);
        assert_int_equal(info_of(f, &box)->state,
                         dialect_has(d, DIALECT_CLIENT_DECIDES) ? BOX_DYING : BOX_FROZEN);
        death_begin(&f->k, box.index, END_KILLED, 0);
        fixture_settle(f);
    }
}

static void what_is_in_memory_only_is_not_saved_unless_the_operator_says_so(void **state)
{
    struct fixture *f = *state;

    f->k.config.save_frozen_ms = 1000;
    for (uint32_t d = DIALECT_NONE + 1; d < DIALECT_COUNT; d++) {
        struct keeper_box box = claimed_by(f, d);
        struct keeper_extend args = life_of(&box, 60000, 0);
        struct box *b = &f->k.boxes[box.index];
        struct cove_err e;

        assert_int_equal(life_freeze(&f->k, &args, true, NULL, &e), 0);
        fake.now_ms += 100;
        expiry_tick(&f->k);
        assert_int_equal(b->info.state, BOX_FROZEN);
        for (int allowed = 0; allowed < 2; allowed++) {
            f->k.config.save_in_memory = (uint64_t)allowed;
            b->save_at_ms = 0; /* as after a reload */
            expiry_due_ms(&f->k, b);
            assert_int_equal(b->save_at_ms == UINT64_MAX,
                             !allowed && dialect_has(d, DIALECT_KEEPS_IN_MEMORY));
        }
        death_begin(&f->k, box.index, END_KILLED, 0);
        fixture_settle(f);
    }
}

static void what_happens_at_the_end_can_be_changed(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 5000, CLAIM_OWN_PROJECT);
    struct keeper_extend freezes = life_of(&box, 5000, EXTEND_END_FREEZES),
                         kills = life_of(&box, 5000, EXTEND_END_KILLS);
    struct cove_err e;

    assert_int_equal(life_extend(&f->k, &freezes, &e), 0);
    assert_true(info_of(f, &box)->flags & BOX_END_FREEZES);
    assert_int_equal(life_extend(&f->k, &kills, &e), 0);
    assert_false(info_of(f, &box)->flags & BOX_END_FREEZES);
}

static void pausing_can_set_the_end_and_going_on_too(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 5000, CLAIM_OWN_PROJECT);
    struct keeper_extend pause = life_of(&box, 900000, 0), resume = life_of(&box, 7000, 0);
    struct cove_err e;

    assert_int_equal(life_freeze(&f->k, &pause, true, NULL, &e), 0);
    assert_int_equal(info_of(f, &box)->dies_at_ms, fake.now_ms + 900000);
    assert_int_equal(life_freeze(&f->k, &resume, false, NULL, &e), 0);
    assert_int_equal(info_of(f, &box)->dies_at_ms, fake.now_ms + 7000);
    assert_int_equal(fake.frozen, 1);
    assert_int_equal(fake.thawed, 1);
}

static void a_failed_freeze_leaves_the_sandbox_running(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 5000, 0);
    struct keeper_extend args = life_of(&box, 0, 0);
    struct cove_err e;

    fake.freeze_fails = true;
    assert_int_equal(life_freeze(&f->k, &args, true, NULL, &e), 0);
    fake.now_ms += 501;
    expiry_tick(&f->k);
    assert_int_equal(info_of(f, &box)->state, BOX_LIVE);
    assert_int_equal(fake.thawed, 1);
}

static void nobody_changes_the_life_of_another_tenant_s_sandbox(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 5000, 0);
    struct keeper_extend args = life_of(&box, 1, 0);
    struct cove_err e;

    text_copy(args.tenant, sizeof(args.tenant), "other");
    assert_int_equal(life_extend(&f->k, &args, &e), -1);
    assert_int_equal(life_freeze(&f->k, &args, true, NULL, &e), -1);
    assert_int_equal(info_of(f, &box)->dies_at_ms, fake.now_ms + 5000);
    assert_int_equal(fake.frozen, 0);
}

static void a_retirement_is_answered_when_the_last_one_is_dead(void **state)
{
    struct fixture *f = *state;
    struct keeper_retire args = { .tenant = "acme", .project = "p1" };
    struct waiter w = { .tag = 77 };

    fixture_claimed(f, "acme", "p1");
    fake.now_ms += f->k.config.reuse_ms + 1;
    fixture_claimed(f, "acme", "p1");
    fixture_claimed(f, "acme", "p2");
    life_retire(&f->k, &args, &w);
    assert_int_equal(fixture_answer(f, NULL, NULL), 0);
    fixture_settle(f);
    assert_int_equal(fixture_answer(f, NULL, NULL), MSG_DONE);
    assert_int_equal(fixture_count(f, BOX_LIVE), 1);
    assert_int_equal(fixture_count(f, BOX_EMPTY), FIXTURE_BOXES - 1);
}

static void a_slot_is_not_free_before_its_cgroup_is(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = claimed_for(f, 5000, 0);

    fake.cgroup_busy = true;
    death_begin(&f->k, box.index, END_KILLED, 0);
    death_on_exit(&f->k, box.index);
    for (int i = 0; i < 5; i++) {
        fake.now_ms += 1000;
        expiry_tick(&f->k);
        assert_int_equal(info_of(f, &box)->state, BOX_DYING);
    }
    fake.cgroup_busy = false;
    fixture_settle(f);
    assert_int_equal(info_of(f, &box)->state, BOX_EMPTY);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_sandbox_ends_at_its_time_and_leaves_the_reason),
        T(frozen_and_ageing_sandboxes_end_too),
        T(the_loop_is_woken_for_the_next_end),
        T(a_life_can_be_made_longer_and_shorter),
        T(a_life_is_neither_0_nor_beyond_all_bounds),
        T(a_sandbox_may_be_frozen_at_its_end),
        T(a_sandbox_that_was_frozen_at_its_end_does_not_stay_for_ever),
        T(what_cannot_be_frozen_at_its_end_is_killed),
        T(the_configuration_says_what_happens_at_the_end_unless_clients_do),
        T(what_is_in_memory_only_is_not_saved_unless_the_operator_says_so),
        T(what_happens_at_the_end_can_be_changed),
        T(pausing_can_set_the_end_and_going_on_too),
        T(a_failed_freeze_leaves_the_sandbox_running),
        T(nobody_changes_the_life_of_another_tenant_s_sandbox),
        T(a_retirement_is_answered_when_the_last_one_is_dead),
        T(a_slot_is_not_free_before_its_cgroup_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
