/* Processes of one tenant and of all: who has more than half gets no more (sandbox/keeper/process_shares.c). */
#include "cove/text.h"
#include "keeper_fixture.h"
#include "sandbox/keeper/quota.h"

enum { ALL = 1000 };

struct three { /* two sandboxes of acme's, one of other's */
    struct keeper_box first, second, other;
};

static struct three claim_three(struct fixture *f)
{
    struct three t;

    t.first = fixture_claimed(f, "acme", "p1");
    t.second = fixture_claimed(f, "acme", "p2");
    t.other = fixture_claimed(f, "other", "p1");
    fake_pids_of("")->most = ALL;
    return t;
}

static void run(struct fixture *f, const struct three *t, uint64_t first, uint64_t second,
                uint64_t other)
{
    fake_pids_of(t->first.id)->now = first;
    fake_pids_of(t->second.id)->now = second;
    fake_pids_of(t->other.id)->now = other;
    fake_pids_of("")->now = first + second + other;
    process_shares_tick(&f->k, fake.now_ms += 1000);
}

static uint32_t claim_more(struct fixture *f, const char *tenant, struct cove_err *e)
{
    struct keeper_claim args = claim_of(tenant, "more");

    fixture_claim(f, &args, -1);
    fixture_finish_builds(f);
    return fixture_answer(f, NULL, e);
}

static void a_tenant_with_more_than_half_gets_no_more_and_others_do(void **state)
{
    struct fixture *f = *state;
    struct three t = claim_three(f);
    struct cove_err e;

    run(f, &t, 400, 300, 100);
    assert_int_equal(fake_pids_of(t.first.id)->most, 400);
    assert_int_equal(fake_pids_of(t.second.id)->most, 300);
    assert_int_equal(fake_pids_of(t.other.id)->most, f->k.config.pids_max);
    assert_int_equal(fake_pids_of("")->most, ALL + ALL / 6);
    assert_int_equal(claim_more(f, "acme", &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_QUOTA);
    assert_int_equal(claim_more(f, "other", &e), KEEPER_BOX);
}

static void nobody_is_held_who_has_no_more_than_half(void **state)
{
    struct fixture *f = *state;
    struct three t = claim_three(f);
    struct cove_err e;

    run(f, &t, 250, 250, 500);
    assert_int_equal(fake_pids_of(t.first.id)->most, f->k.config.pids_max);
    assert_int_equal(fake_pids_of(t.other.id)->most, f->k.config.pids_max);
    assert_int_equal(fake_pids_of("")->most, ALL);
    assert_int_equal(claim_more(f, "acme", &e), KEEPER_BOX);
}

/* Reading a file for each of some thousand sandboxes every second would cost more than all else that the keeper does. */
static void while_there_are_few_nobody_is_counted(void **state)
{
    struct fixture *f = *state;
    struct three t = claim_three(f);
    unsigned before;

    run(f, &t, 1, 1, 1);
    before = fake.pids_counted;
    run(f, &t, 300, 199, 1);
    assert_int_equal(fake.pids_counted, before + 1);
}

static void a_tenant_is_let_go_after_a_minute_if_it_has_less(void **state)
{
    struct fixture *f = *state;
    struct three t = claim_three(f);
    struct cove_err e;

    run(f, &t, 400, 300, 100);
    fake.now_ms += 57000;
    run(f, &t, 10, 10, 100);
    assert_int_equal(fake_pids_of(t.first.id)->most, 400); /* not yet */
    fake.now_ms += 60000;
    run(f, &t, 400, 101, 100);
    assert_int_equal(fake_pids_of(t.first.id)->most, 400); /* it still has too many */
    run(f, &t, 10, 10, 100);
    assert_int_equal(fake_pids_of(t.first.id)->most, f->k.config.pids_max);
    assert_int_equal(fake_pids_of(t.second.id)->most, f->k.config.pids_max);
    assert_int_equal(fake_pids_of("")->most, ALL);
    assert_int_equal(claim_more(f, "acme", &e), KEEPER_BOX);
}

static void a_sandbox_that_was_being_built_is_held_as_well(void **state)
{
    struct fixture *f = *state;
    struct three t = claim_three(f);
    struct keeper_claim args = claim_of("acme", "late");
    struct keeper_box late = { 0 };

    fixture_claim(f, &args, -1);
    run(f, &t, 400, 300, 100);
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, &late, NULL), KEEPER_BOX);
    fake_pids_of(late.id)->now = 3;
    run(f, &t, 400, 300, 100);
    assert_int_equal(fake_pids_of(late.id)->most, 3);
}

static void the_next_keeper_lets_go_of_whom_the_one_before_held(void **state)
{
    struct fixture *f = *state;
    struct three t = claim_three(f);

    run(f, &t, 400, 300, 100);
    fixture_restart(f);
    run(f, &t, 10, 10, 100);
    assert_int_equal(fake_pids_of(t.first.id)->most, f->k.config.pids_max);
    assert_int_equal(fake_pids_of(t.second.id)->most, f->k.config.pids_max);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_tenant_with_more_than_half_gets_no_more_and_others_do),
        T(nobody_is_held_who_has_no_more_than_half),
        T(while_there_are_few_nobody_is_counted),
        T(a_tenant_is_let_go_after_a_minute_if_it_has_less),
        T(a_sandbox_that_was_being_built_is_held_as_well),
        T(the_next_keeper_lets_go_of_whom_the_one_before_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
