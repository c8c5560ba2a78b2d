/* sandbox/keeper/boxes.c: how sandboxes are found, and death.c: how many of them are swept at once. */
#include <stdio.h>
#include <string.h>

#include "keeper_fixture.h"
#include "sandbox/keeper/life.h"

static void a_sandbox_is_found_by_id_project_and_tenant_until_its_slot_is_free(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = fixture_claimed(f, "acme", "p1");
    struct keeper_retire args = { .tenant = "acme", .project = "p1" };
    struct waiter w = { .tag = 7 };
    uint32_t i;

    assert_ptr_equal(boxes_by_id(&f->k, box.id), &f->k.boxes[box.index]);
    assert_ptr_equal(boxes_of_tenant(&f->k, "acme"), &f->k.boxes[box.index]);
    assert_int_equal(boxes_find_current(&f->k, "acme", "p1", &i), 0);
    assert_int_equal(i, box.index);
    assert_int_equal(boxes_find_current(&f->k, "acme", "p2", &i), -1);
    assert_int_equal(boxes_find_owned(&f->k, "other", box.id, &i, NULL), -1);
    life_retire(&f->k, &args, &w);
    assert_int_equal(boxes_find_owned(&f->k, "acme", box.id, &i, NULL), -1);
    fixture_settle(f);
    assert_null(boxes_by_id(&f->k, box.id));
    assert_null(boxes_of_project(&f->k, "acme", "p1"));
    assert_null(boxes_of_tenant(&f->k, "acme"));
}

static void every_slot_is_in_one_list_and_counted_there(const struct fixture *f)
{
    unsigned seen = 0;

    for (int place = 0; place < PLACES; place++) {
        const struct box *b;
        unsigned here = 0;

        TAILQ_FOREACH(b, &f->k.found.places[place], in_place)
        {
            assert_int_equal(b->place, place);
            here++;
        }
        assert_int_equal(here, f->k.found.counts[place]);
        seen += here;
    }
    assert_int_equal(seen, FIXTURE_BOXES);
}

static void lists_stay_right_through_lives_and_a_restart(void **state)
{
    struct fixture *f = *state;
    char project[16];

    f->k.config.pool = 2;
    for (int round = 0; round < 5; round++) {
        struct keeper_retire args = { .tenant = "acme" };
        struct waiter w = { .tag = 7 };

        for (int i = 0; i < 4; i++) {
            snprintf(project, sizeof(project), "p%d", i);
            fixture_claimed(f, "acme", project);
            expiry_tick(&f->k);
            every_slot_is_in_one_list_and_counted_there(f);
        }
        fixture_finish_builds(f);
        for (int i = 0; i < 4; i += 2) {
            snprintf(args.project, sizeof(args.project), "p%d", i);
            life_retire(&f->k, &args, &w);
        }
        every_slot_is_in_one_list_and_counted_there(f);
        fixture_settle(f);
        if (round == 2)
            fixture_restart(f);
        every_slot_is_in_one_list_and_counted_there(f);
        while (fixture_answer(f, NULL, NULL))
            ;
    }
    assert_int_equal(f->k.found.counts[PLACE_OWNED], 2);
}

static void the_slot_that_is_free_for_the_longest_time_is_used_first(void **state)
{
    struct fixture *f = *state;
    struct keeper_retire args = { .tenant = "acme", .project = "p" };
    struct waiter w = { .tag = 7 };
    struct keeper_box first = fixture_claimed(f, "acme", "p"), next;

    life_retire(&f->k, &args, &w);
    fixture_settle(f);
    while (fixture_answer(f, NULL, NULL))
        ;
    for (int i = 1; i < FIXTURE_BOXES; i++) {
        char project[16];

        snprintf(project, sizeof(project), "q%d", i);
        next = fixture_claimed(f, "acme", project);
        assert_int_not_equal(next.index, first.index);
    }
    next = fixture_claimed(f, "acme", "last");
    assert_int_equal(next.index, first.index);
}

static void those_that_die_together_are_swept_by_one_child(void **state)
{
    struct fixture *f = *state;
    unsigned children = 0;
    char project[16];

    for (int i = 0; i < FIXTURE_BOXES; i++) {
        snprintf(project, sizeof(project), "p%d", i);
        fixture_claimed(f, "acme", project);
    }
    for (uint32_t i = 0; i < FIXTURE_BOXES; i++)
        death_begin(&f->k, i, END_KILLED, 0);
    for (uint32_t i = 0; i < FIXTURE_BOXES; i++)
        death_on_exit(&f->k, i);
    assert_int_equal(f->k.found.counts[PLACE_DEAD], FIXTURE_BOXES);
    death_remove_remains(&f->k);
    for (int i = 0; i < SWEEPERS_MAX; i++)
        children += f->k.sweepers[i] != 0;
    assert_int_equal(children, 1);
    assert_int_equal(f->k.found.counts[PLACE_DEAD], 0);
    fixture_settle(f);
    assert_int_equal(f->k.found.counts[PLACE_FREE], FIXTURE_BOXES);
}

static void one_whose_cgroup_is_busy_does_not_keep_others_from_being_swept(void **state)
{
    struct fixture *f = *state;
    struct keeper_box a = fixture_claimed(f, "acme", "a");

    fake.cgroup_busy = true;
    death_begin(&f->k, a.index, END_KILLED, 0);
    death_on_exit(&f->k, a.index);
    death_remove_remains(&f->k);
    assert_int_equal(f->k.found.counts[PLACE_DEAD], 1);
    fake.cgroup_busy = false;
    fixture_settle(f);
    assert_int_equal(f->k.found.counts[PLACE_FREE], FIXTURE_BOXES);
}

static void end_at_once(struct fixture *f, uint32_t i)
{
    death_begin(&f->k, i, END_KILLED, 0);
    death_on_exit(&f->k, i);
}

static void one_that_dies_alone_is_swept_later_with_those_that_follow(void **state)
{
    struct fixture *f = *state;
    struct keeper_box a = fixture_claimed(f, "acme", "a"), b = fixture_claimed(f, "acme", "b");

    end_at_once(f, a.index);
    expiry_tick(&f->k);
    assert_int_equal(f->k.found.counts[PLACE_DEAD], 1);
    end_at_once(f, b.index);
    f->k.sweep_at_ms = clock_boot_ms(); /* the time is over */
    expiry_tick(&f->k);
    assert_int_equal(f->k.found.counts[PLACE_DEAD], 0);
    assert_int_not_equal(f->k.sweepers[0], 0);
    assert_int_equal(f->k.sweepers[1], 0);
}

static void a_saved_sandbox_is_swept_at_once_because_it_may_be_woken(void **state)
{
    struct fixture *f = *state;
    struct keeper_box a = fixture_claimed(f, "acme", "a");

    death_begin(&f->k, a.index, END_SAVED, 0);
    death_on_exit(&f->k, a.index);
    expiry_tick(&f->k);
    assert_int_equal(f->k.found.counts[PLACE_DEAD], 0);
}

static void nothing_waits_to_be_swept_when_most_slots_are_taken(void **state)
{
    struct fixture *f = *state;
    char project[16];

    for (int i = 0; i < FIXTURE_BOXES; i++) {
        snprintf(project, sizeof(project), "p%d", i);
        fixture_claimed(f, "acme", project);
    }
    end_at_once(f, 0);
    expiry_tick(&f->k);
    assert_int_equal(f->k.found.counts[PLACE_DEAD], 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_sandbox_is_found_by_id_project_and_tenant_until_its_slot_is_free),
        T(lists_stay_right_through_lives_and_a_restart),
        T(the_slot_that_is_free_for_the_longest_time_is_used_first),
        T(those_that_die_together_are_swept_by_one_child),
        T(one_whose_cgroup_is_busy_does_not_keep_others_from_being_swept),
        T(one_that_dies_alone_is_swept_later_with_those_that_follow),
        T(a_saved_sandbox_is_swept_at_once_because_it_may_be_woken),
        T(nothing_waits_to_be_swept_when_most_slots_are_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
