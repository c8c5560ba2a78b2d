/* sandbox/keeper/claim.c, quota.c, attributes.c: whose sandbox a claim gets, and when it gets none. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper_fixture.h"
#include "sandbox/keeper/life.h"

/* ------------------------------------------------------------------ which sandbox */

static void a_project_gets_the_same_sandbox_again(void **state)
{
    struct fixture *f = *state;
    struct keeper_box first = fixture_claimed(f, "acme", "p1"),
                      again = fixture_claimed(f, "acme", "p1"),
                      other = fixture_claimed(f, "acme", "p2"),
                      stranger = fixture_claimed(f, "other", "p1");

    assert_string_equal(first.id, again.id);
    assert_true(first.created);
    assert_false(again.created);
    assert_string_not_equal(first.id, other.id);
    assert_string_not_equal(first.id, stranger.id);
}

static void who_asks_while_it_is_being_built_waits_for_that_one(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "p1");
    struct keeper_box one, two;

    fixture_claim(f, &args, -1);
    fixture_claim(f, &args, -1);
    assert_int_equal(fixture_answer(f, NULL, NULL), 0);
    assert_int_equal(fake.built, 1);
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, &one, NULL), KEEPER_BOX);
    assert_int_equal(fixture_answer(f, &two, NULL), KEEPER_BOX);
    assert_string_equal(one.id, two.id);
}

static void a_warm_sandbox_is_given_out_at_once(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "p1");
    struct keeper_box box;

    f->k.config.pool = 1;
    expiry_tick(&f->k);
    fixture_finish_builds(f);
    assert_int_equal(fixture_count(f, BOX_WARM), 1);
    fixture_claim(f, &args, -1);
    assert_int_equal(fixture_answer(f, &box, NULL), KEEPER_BOX);
    assert_int_equal(fake.built, 1);
}

static void a_failed_build_is_told_to_all_who_wait(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "p1");
    struct cove_err e;

    fake.builds_fail = true;
    fixture_claim(f, &args, -1);
    fixture_claim(f, &args, -1);
    fixture_finish_builds(f);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fixture_answer(f, NULL, &e), MSG_ERROR);
        assert_int_equal(e.code, COVE_INTERNAL);
    }
    fixture_settle(f);
    assert_int_equal(fixture_count(f, BOX_EMPTY), FIXTURE_BOXES);
}

static void a_set_up_that_hangs_is_ended_and_told(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "p");
    struct cove_err err;
    unsigned kills;

    fake.builds_hang = true;
    fixture_claim(f, &args, -1);
    kills = fake.kills;
    fake.now_ms += 29000;
    expiry_tick(&f->k);
    assert_int_equal(fake.kills, kills);
    fake.now_ms += 2000;
    expiry_tick(&f->k);
    assert_int_equal(fake.kills, kills + 1);
    fixture_kill_init(f, 0);
    fixture_finish_builds(f); /* the pipe has ended, and the end of the process was not seen yet */
    assert_int_equal(fixture_answer(f, NULL, &err), MSG_ERROR);
    assert_int_equal(fixture_count(f, BOX_LIVE), 0);
    fake.builds_hang = false;
    fixture_settle(f);
    fixture_claimed(f, "acme", "p");
    kills = fake.kills;
    fake.now_ms += 40000; /* one that is ready is left alone */
    expiry_tick(&f->k);
    assert_int_equal(fake.kills, kills);
}

static void a_sandbox_that_has_ended_since_it_was_ready_is_not_given_out(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "p");
    struct cove_err err;

    fixture_claim(f, &args, -1);
    fixture_kill_init(f, 0);
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, NULL, NULL), 0);
    death_on_exit(&f->k, 0);
    assert_int_equal(fixture_answer(f, NULL, &err), MSG_ERROR);
    assert_int_equal(err.code, COVE_GONE);
    fixture_settle(f);
    assert_int_equal(fixture_count(f, BOX_EMPTY), FIXTURE_BOXES);
}

static void an_unknown_template_is_refused_and_its_slot_comes_back(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "p1");
    struct cove_err e;

    text_copy(args.template, sizeof(args.template), "missing");
    fixture_claim(f, &args, -1);
    assert_int_equal(fixture_answer(f, NULL, &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_NOT_FOUND);
    fixture_settle(f);
    assert_int_equal(fixture_count(f, BOX_EMPTY), FIXTURE_BOXES);
}

static void past_its_reuse_a_sandbox_ages_and_the_project_gets_a_new_one(void **state)
{
    struct fixture *f = *state;
    struct keeper_box old = fixture_claimed(f, "acme", "p1"), new;

    fake.now_ms += f->k.config.reuse_ms + 1;
    new = fixture_claimed(f, "acme", "p1");
    assert_string_not_equal(old.id, new.id);
    assert_int_equal(f->k.boxes[old.index].info.state, BOX_AGEING);
}

static void a_lifetime_beyond_all_bounds_is_refused(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "p1");
    struct cove_err e;

    args.lifetime_ms = UINT64_MAX - 5;
    fixture_claim(f, &args, -1);
    assert_int_equal(fixture_answer(f, NULL, &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_INVALID);
    assert_int_equal(fake.built, 0);
}

static void when_all_slots_are_taken_the_answer_is_busy(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "one too many");
    struct cove_err e;
    char project[16];

    for (int i = 0; i < FIXTURE_BOXES; i++) {
        snprintf(project, sizeof(project), "p%d", i);
        fixture_claimed(f, "acme", project);
    }
    fixture_claim(f, &args, -1);
    assert_int_equal(fixture_answer(f, NULL, &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_BUSY);
}

/* ------------------------------------------------------------------ user ids */

static bool overlap(const struct id_range *a, const struct id_range *b)
{
    return a->base < b->base + b->count && b->base < a->base + a->count;
}

static void no_two_sandboxes_share_a_user_id(void **state)
{
    struct fixture *f = *state;
    char project[16];

    for (int i = 0; i < FIXTURE_BOXES; i++) {
        snprintf(project, sizeof(project), "p%d", i);
        fixture_claimed(f, "acme", project);
    }
    for (unsigned a = 0; a < fake.built; a++)
        for (unsigned b = 0; b < a; b++)
            assert_false(overlap(&fake.ids[a], &fake.ids[b]));
}

/* A sandbox that outlived a change of id_base keeps its range: slots that would cover it stay free. */
static void a_new_id_base_does_not_cover_ranges_in_use(void **state)
{
    struct fixture *f = *state;
    struct id_range old, *made;
    char project[16];

    struct keeper_box box = fixture_claimed(f, "acme", "old");

    old = fake.ids[0];
    f->k.config.id_base -= f->k.config.id_count / 2;
    boxes_file(&f->k, box.index); /* as a restart does, the only time when it can change */
    for (int i = 0; i < 3; i++) {
        snprintf(project, sizeof(project), "p%d", i);
        fixture_claimed(f, "acme", project);
    }
    for (unsigned n = 1; n < fake.built; n++) {
        made = &fake.ids[n];
        assert_false(overlap(made, &old));
    }
}

static void a_smaller_id_count_does_not_cover_ranges_in_use(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box;

    f->k.config.id_count = 2 * 65536;
    box = fixture_claimed(f, "acme", "old");
    f->k.config.id_count = 65536;
    boxes_file(&f->k, box.index);
    fixture_claimed(f, "acme", "p1");
    fixture_claimed(f, "acme", "p2");
    assert_false(overlap(&fake.ids[1], &fake.ids[0]));
    assert_false(overlap(&fake.ids[2], &fake.ids[0]));
}

/* ------------------------------------------------------------------ sandboxes without a project */

static struct keeper_box claim_own(struct fixture *f, uint32_t flags, int attributes)
{
    struct keeper_claim args = claim_of("acme", "");
    struct keeper_box box = { 0 };

    args.flags = CLAIM_OWN_PROJECT | flags;
    args.dialect = 3;
    args.lifetime_ms = 60000;
    fixture_claim(f, &args, attributes);
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, &box, NULL), KEEPER_BOX);
    return box;
}

static void a_sandbox_without_a_project_is_its_own(void **state)
{
    struct fixture *f = *state;
    struct keeper_box one = claim_own(f, 0, -1), two = claim_own(f, 0, -1), found;
    const struct box_info *info = &f->k.boxes[one.index].info;

    assert_string_not_equal(one.id, two.id);
    assert_string_equal(info->project, one.id);
    assert_int_equal(info->dialect, 3);
    assert_int_equal(info->dies_at_ms, fake.now_ms + 60000);
    assert_int_equal(info->reuse_until_ms, info->dies_at_ms);
    found = fixture_claimed(f, "acme", one.id);
    assert_string_equal(found.id, one.id);
}

static void attribute_path(const struct fixture *f, const char *id, char out[128])
{
    snprintf(out, 128, "%s/attributes/%s", f->run_dir, id);
}

static void assert_attributes(const struct fixture *f, const char *id, const char *want)
{
    char path[128], text[64] = "";
    struct stat st;

    attribute_path(f, id, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    read_file_at(AT_FDCWD, path, text, sizeof(text));
    assert_string_equal(text, want);
}

static void attributes_live_and_die_with_their_sandbox(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int first = sealed_memfd("one=1", 5);
    AUTO_CLOSE int second = sealed_memfd("two=2", 5);
    struct keeper_box box = claim_own(f, 0, first);
    struct keeper_which which = { .tenant = "acme" };
    struct cove_err e;
    char path[128];

    assert_attributes(f, box.id, "one=1");
    text_copy(which.id, sizeof(which.id), box.id);
    assert_int_equal(life_set_attributes(&f->k, &which, second, &e), 0);
    assert_attributes(f, box.id, "two=2");
    fixture_restart(f);
    assert_attributes(f, box.id, "two=2");
    death_begin(&f->k, box.index, END_KILLED, 0);
    fixture_settle(f);
    attribute_path(f, box.id, path);
    assert_int_equal(access(path, F_OK), -1);
}

static void attributes_of_another_tenant_cannot_be_set(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int fd = sealed_memfd("x", 1);
    struct keeper_box box = claim_own(f, 0, -1);
    struct keeper_which which = { .tenant = "other" };
    struct cove_err e;

    text_copy(which.id, sizeof(which.id), box.id);
    assert_int_equal(life_set_attributes(&f->k, &which, fd, &e), -1);
    assert_int_equal(e.code, COVE_NOT_FOUND);
}

static void only_a_small_sealed_memfd_is_taken_for_attributes(void **state)
{
    static const char large[COVE_ATTRIBUTES_MAX + 1];
    AUTO_CLOSE int sealed = sealed_memfd(large, COVE_ATTRIBUTES_MAX);
    AUTO_CLOSE int too_large = sealed_memfd(large, sizeof(large));
    AUTO_CLOSE int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    AUTO_CLOSE int open_file = open("/etc/hostname", O_RDONLY | O_CLOEXEC);
    static const int seals[] = { F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW };
    int fifo[2];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(seals); i++) { /* all but one */
        AUTO_CLOSE int half = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        for (size_t j = 0; j < ARRAY_SIZE(seals); j++)
            assert_int_equal(i == j ? 0 : fcntl(half, F_ADD_SEALS, seals[j]), 0);
        assert_false(attributes_are_sealed(half));
    }
    assert_int_equal(pipe(fifo), 0);
    assert_true(attributes_are_sealed(sealed));
    assert_false(attributes_are_sealed(too_large));
    assert_false(attributes_are_sealed(unsealed)); /* it could change while it is copied */
    assert_false(attributes_are_sealed(open_file));
    assert_false(attributes_are_sealed(fifo[0])); /* reading it would hold the keeper up */
    close(fifo[0]);
    close(fifo[1]);
}

/* ------------------------------------------------------------------ quotas */

static uint32_t claim_for_quota(struct fixture *f, const char *project, const char *key,
                                uint32_t key_sandboxes, struct cove_err *e)
{
    struct keeper_claim args = claim_of("acme", project);

    text_copy(args.key, sizeof(args.key), key);
    args.key_sandboxes = key_sandboxes;
    fixture_claim(f, &args, -1);
    fixture_finish_builds(f);
    return fixture_answer(f, NULL, e);
}

static void a_tenant_has_no_more_sandboxes_than_its_quota(void **state)
{
    struct fixture *f = *state;
    struct cove_err e;

    f->k.config.tenant_sandboxes = 2;
    fixture_claimed(f, "acme", "p1");
    fixture_claimed(f, "acme", "p2");
    assert_int_equal(claim_for_quota(f, "p3", "", 0, &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_QUOTA);
    fixture_claimed(f, "other", "p1");
    fixture_claimed(f, "acme", "p1"); /* what is there can be used */
}

/* As many as a tenant gets when it takes what it can. */
static unsigned take_all(struct fixture *f, const char *tenant)
{
    struct cove_err e = { 0 };
    char project[16];
    unsigned n = 0;

    for (; n <= FIXTURE_BOXES; n++) {
        struct keeper_claim args;

        snprintf(project, sizeof(project), "p%u", n);
        args = claim_of(tenant, project);
        fixture_claim(f, &args, -1);
        fixture_finish_builds(f);
        if (fixture_answer(f, NULL, &e) != KEEPER_BOX)
            break;
    }
    assert_int_equal(e.code, COVE_QUOTA);
    return n;
}

static void without_a_quota_a_tenant_leaves_some_to_others(void **state)
{
    struct fixture *f = *state;
    struct cove_err e;

    f->k.config.tenant_sandboxes = 0;
    assert_int_equal(take_all(f, "acme"), FIXTURE_BOXES - FIXTURE_BOXES / 4);
    fixture_claimed(f, "acme", "p1"); /* what is there can be used */
    fixture_claimed(f, "other", "p1");
    assert_int_equal(claim_for_quota(f, "more", "", 0, &e), MSG_ERROR);
    fixture_claimed(f, "third", "p1");
    assert_int_equal(fixture_count(f, BOX_EMPTY), 0);
}

static void the_only_tenant_of_a_server_may_have_all(void **state)
{
    struct fixture *f = *state;

    f->k.config.tenant_sandboxes = 0;
    f->k.keys_of_one_tenant = true;
    text_copy(f->k.config.pam_service, sizeof(f->k.config.pam_service), "cove");
    assert_int_equal(take_all(f, "acme"), FIXTURE_BOXES - FIXTURE_BOXES / 4);
    f->k.config.pam_service[0] = '\0'; /* people with a password would be further tenants */
    fixture_claimed(f, "acme", "more");
    fixture_claimed(f, "acme", "most");
    assert_int_equal(fixture_count(f, BOX_EMPTY), 0);
}

/* Those that age and those in the pool: the first are the tenant's, the others are free. */
static void the_share_counts_what_ages_and_not_the_pool(void **state)
{
    struct fixture *f = *state;
    struct cove_err e;

    f->k.config.tenant_sandboxes = 0;
    for (int round = 0; round < 2; round++) {
        fixture_claimed(f, "acme", "p1");
        fixture_claimed(f, "acme", "p2");
        fixture_claimed(f, "acme", "p3");
        fake.now_ms += round == 0 ? f->k.config.reuse_ms + 1 : 0;
    }
    assert_int_equal(fixture_count(f, BOX_AGEING), 3);
    assert_int_equal(claim_for_quota(f, "p4", "", 0, &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_QUOTA);
    f->k.config.pool = 2;
    for (int i = 0; i < 4; i++) {
        fake.now_ms += 2000;
        pool_refill(&f->k, fake.now_ms, fake.now_ms);
        fixture_finish_builds(f);
    }
    assert_int_equal(fixture_count(f, BOX_WARM), 2);
    fixture_claimed(f, "other", "p1");
    fixture_claimed(f, "other", "p2");
}

static void frozen_sandboxes_count_for_the_quota(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = fixture_claimed(f, "acme", "p1");
    struct keeper_extend args = { .tenant = "acme" };
    struct cove_err e;

    f->k.config.tenant_sandboxes = 1;
    text_copy(args.id, sizeof(args.id), box.id);
    assert_int_equal(life_freeze(&f->k, &args, true, NULL, &e), 0);
    assert_int_equal(claim_for_quota(f, "p2", "", 0, &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_QUOTA);
}

/* Without this a tenant could have any number of sandboxes, one per reuse time. */
static void ageing_sandboxes_count_up_to_as_many_again(void **state)
{
    struct fixture *f = *state;
    struct cove_err e;

    f->k.config.tenant_sandboxes = 1;
    fixture_claimed(f, "acme", "p1");
    fake.now_ms += f->k.config.reuse_ms + 1;
    fixture_claimed(f, "acme", "p1");
    assert_int_equal(fixture_count(f, BOX_AGEING), 1);
    fake.now_ms += 1;
    f->k.boxes[1].info.reuse_until_ms = fake.now_ms; /* the second one is too old as well */
    assert_int_equal(claim_for_quota(f, "p1", "", 0, &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_QUOTA);
}

static void a_key_s_quota_counts_the_key_s_own_sandboxes(void **state)
{
    struct fixture *f = *state;
    struct cove_err e;

    assert_int_equal(claim_for_quota(f, "p1", "key-a", 1, &e), KEEPER_BOX);
    assert_int_equal(claim_for_quota(f, "p2", "key-b", 1, &e), KEEPER_BOX);
    assert_int_equal(claim_for_quota(f, "p3", "key-a", 1, &e), MSG_ERROR);
    assert_int_equal(e.code, COVE_QUOTA);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_project_gets_the_same_sandbox_again),
        T(who_asks_while_it_is_being_built_waits_for_that_one),
        T(a_warm_sandbox_is_given_out_at_once),
        T(a_failed_build_is_told_to_all_who_wait),
        T(a_set_up_that_hangs_is_ended_and_told),
        T(a_sandbox_that_has_ended_since_it_was_ready_is_not_given_out),
        T(an_unknown_template_is_refused_and_its_slot_comes_back),
        T(past_its_reuse_a_sandbox_ages_and_the_project_gets_a_new_one),
        T(a_lifetime_beyond_all_bounds_is_refused),
        T(when_all_slots_are_taken_the_answer_is_busy),
        T(no_two_sandboxes_share_a_user_id),
        T(a_new_id_base_does_not_cover_ranges_in_use),
        T(a_smaller_id_count_does_not_cover_ranges_in_use),
        T(a_sandbox_without_a_project_is_its_own),
        T(attributes_live_and_die_with_their_sandbox),
        T(attributes_of_another_tenant_cannot_be_set),
        T(only_a_small_sealed_memfd_is_taken_for_attributes),
        T(a_tenant_has_no_more_sandboxes_than_its_quota),
        T(without_a_quota_a_tenant_leaves_some_to_others),
        T(the_only_tenant_of_a_server_may_have_all),
        T(the_share_counts_what_ages_and_not_the_pool),
        T(frozen_sandboxes_count_for_the_quota),
        T(ageing_sandboxes_count_up_to_as_many_again),
        T(a_key_s_quota_counts_the_key_s_own_sandboxes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
