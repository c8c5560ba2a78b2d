/* sandbox/keeper/ended.c: records of sandboxes that are no more. */
#include <stdio.h>
#include <string.h>

#include "keeper_fixture.h"
#include "sandbox/keeper/life.h"

enum { TENANT_MAX = 1024 };

static int setup(void **state)
{
    struct cove_err e;

    fixture_setup(state);
    return ended_open(&((struct fixture *)*state)->k, &e);
}

static int teardown(void **state)
{
    free(((struct fixture *)*state)->k.ended);
    return fixture_teardown(state);
}

static struct box_info box_of(const char *tenant, unsigned n, uint32_t keep_s)
{
    struct box_info b = { .state = BOX_LIVE, .keep_ended_s = keep_s, .flags = BOX_OWN_PROJECT };

    snprintf(b.id, sizeof(b.id), "%.1s%019u", tenant, n);
    snprintf(b.tenant, sizeof(b.tenant), "%s", tenant);
    snprintf(b.project, sizeof(b.project), "%s", b.id);
    return b;
}

static void a_record_is_kept_for_its_time_and_goes_then(void **state)
{
    struct fixture *f = *state;
    struct box_info kept = box_of("acme", 1, 60), none = box_of("acme", 2, 0);

    assert_true(ended_put(&f->k, &kept, END_EXPIRED));
    assert_false(ended_put(&f->k, &none, END_EXPIRED));
    fake.now_ms += 59000;
    ended_tick(&f->k, fake.now_ms);
    assert_true(ended_knows(&f->k, kept.id));
    fake.now_ms += 1001;
    ended_tick(&f->k, fake.now_ms);
    assert_false(ended_knows(&f->k, kept.id));
}

static const struct {
    enum end_cause cause;
    bool own, kept;
    const char *because;
} cases[] = {
    { END_EXPIRED, true, true, "its time was over" },
    { END_GONE, true, true, "its init died" },
    { END_KILLED, true, false, "deleted is unknown" },
    { END_KILLED, false, true, "a name that stands for one sandbox stays taken" },
    { END_SAVED, false, false, "a saved one is not at its end" },
    { END_SERVER, false, false, "so is the server, and with it the table" },
};

static void of_which_ends_there_is_a_record(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct box_info b = box_of("acme", i, 60);

        b.flags = cases[i].own ? BOX_OWN_PROJECT : 0;
        if (ended_put(&f->k, &b, cases[i].cause) != cases[i].kept)
            fail_msg("%s", cases[i].because);
        assert_int_equal(ended_knows(&f->k, b.id), cases[i].kept);
    }
}

static void a_tenant_has_its_share_of_records_and_loses_its_own_oldest(void **state)
{
    struct fixture *f = *state;
    struct box_info other = box_of("other", 0, 1), first = box_of("acme", 0, 60);

    assert_true(ended_put(&f->k, &other, END_EXPIRED));
    for (unsigned i = 0; i < TENANT_MAX + 10; i++) {
        struct box_info b = box_of("acme", i, 60);

        fake.now_ms++;
        assert_true(ended_put(&f->k, &b, END_EXPIRED));
        if (i == TENANT_MAX - 1)
            assert_true(ended_knows(&f->k, first.id));
    }
    assert_false(ended_knows(&f->k, first.id));
    assert_true(ended_knows(&f->k, other.id));
    assert_true(ended_knows(&f->k, box_of("acme", TENANT_MAX + 9, 0).id));
}

static void the_name_of_an_ended_sandbox_leads_to_no_second_one(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "once"), stranger = claim_of("other", "once");
    struct keeper_retire retire = { 0 };
    struct keeper_box box = { 0 };
    struct cove_err e = { 0 };

    args.keep_ended_s = 86400;
    fixture_claim(f, &args, -1);
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, &box, NULL), KEEPER_BOX);
    snprintf(retire.tenant, sizeof(retire.tenant), "acme");
    snprintf(retire.id, sizeof(retire.id), "%s", box.id);
    life_retire(&f->k, &retire, &(struct waiter){ .tag = 1 });
    fixture_claim(f, &args, -1); /* it is dying */
    assert_int_equal(fixture_answer(f, NULL, &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_CONFLICT);
    fixture_settle(f);
    while (fixture_answer(f, NULL, NULL))
        ;
    fixture_claim(f, &args, -1); /* it is gone */
    assert_int_equal(fixture_answer(f, NULL, &e), MSG_ERROR);
    fixture_claim(f, &stranger, -1); /* another tenant's name is another name */
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, &box, NULL), KEEPER_BOX);
    fake.now_ms += 86400001;
    ended_tick(&f->k, fake.now_ms);
    fixture_claim(f, &args, -1);
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, &box, NULL), KEEPER_BOX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_record_is_kept_for_its_time_and_goes_then, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(of_which_ends_there_is_a_record, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tenant_has_its_share_of_records_and_loses_its_own_oldest,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_name_of_an_ended_sandbox_leads_to_no_second_one, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
