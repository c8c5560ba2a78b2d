/* sandbox/keeper/adopt.c, supervisor.c: which processes a restarted keeper takes for its own. A pid
 * that was given to somebody else meanwhile must never be taken: the keeper would kill a stranger. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper_fixture.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/life.h"

static pid_t stranger(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return pid;
}

static bool lives(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) == 0;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static struct box_info *info_of(struct fixture *f, const struct keeper_box *box)
{
    return &f->k.boxes[box->index].info;
}

static void what_lives_is_taken_up_as_it_was(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = fixture_claimed(f, "acme", "p1"), again;
    struct box_info before = *info_of(f, &box);

    fixture_restart(f);
    assert_memory_equal(info_of(f, &box), &before, sizeof(before));
    again = fixture_claimed(f, "acme", "p1");
    assert_string_equal(again.id, box.id);
    assert_int_equal(fake.built, 1);
}

static void an_adopted_sandbox_still_ends_at_its_time(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = fixture_claimed(f, "acme", "p1");

    fixture_restart(f);
    fake.now_ms += f->k.config.lifetime_ms;
    expiry_tick(&f->k);
    assert_int_equal(info_of(f, &box)->state, BOX_DYING);
}

/* The record names this pid, but the process is another one: it began at another time. */
static void a_pid_that_began_at_another_time_is_a_stranger_s(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = fixture_claimed(f, "acme", "p1");
    pid_t init = (pid_t)info_of(f, &box)->init_pid, other = stranger();

    while (process_start_time(other) == info_of(f, &box)->init_start) { /* within one clock tick */
        end(other);
        other = stranger();
    }
    info_of(f, &box)->init_pid = (uint32_t)other;
    boxes_save(&f->k, box.index);
    fixture_restart(f);
    assert_int_equal(info_of(f, &box)->state, BOX_DYING);
    fixture_settle(f);
    assert_true(lives(other));
    end(other);
    end(init);
}

static void a_pid_outside_the_sandbox_s_cgroup_is_a_stranger_s(void **state)
{
    struct fixture *f = *state;
    struct keeper_box box = fixture_claimed(f, "acme", "p1");
    pid_t init = (pid_t)info_of(f, &box)->init_pid;

    fake.pids_are_elsewhere = true;
    fixture_restart(f);
    assert_int_equal(info_of(f, &box)->state, BOX_DYING);
    fixture_settle(f);
    assert_true(lives(init));
    end(init);
}

static void records_without_a_pid_or_a_start_time_name_nobody(void **state)
{
    static const struct {
        uint32_t pid;
        bool start;
    } cases[] = { { 0, true }, { 1, true }, { 2, false } };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture *f = *state;
        struct keeper_box box = fixture_claimed(f, "acme", "p1");
        pid_t init = (pid_t)info_of(f, &box)->init_pid;

        if (cases[i].start)
            info_of(f, &box)->init_pid = cases[i].pid;
        else
            info_of(f, &box)->init_start = 0;
        boxes_save(&f->k, box.index);
        fixture_restart(f);
        assert_int_equal(info_of(f, &box)->state, BOX_DYING);
        fixture_settle(f);
        end(init);
    }
}

static void what_was_being_built_is_brought_to_an_end(void **state)
{
    struct fixture *f = *state;
    struct keeper_claim args = claim_of("acme", "p1");

    fixture_claim(f, &args, -1);
    assert_int_equal(fixture_count(f, BOX_BUILDING), 1);
    fixture_restart(f);
    assert_int_equal(fixture_count(f, BOX_DYING), 1);
    fixture_settle(f);
    assert_int_equal(fixture_count(f, BOX_EMPTY), FIXTURE_BOXES);
}

static void touch(const char *dir, const char *folder, const char *name)
{
    char path[192];

    snprintf(path, sizeof(path), "%s/%s/%s", dir, folder, name);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(access(path, F_OK), 0);
}

static bool is_there(const char *dir, const char *folder, const char *name)
{
    char path[192];

    snprintf(path, sizeof(path), "%s/%s/%s", dir, folder, name);
    return access(path, F_OK) == 0;
}

static void what_nobody_knows_is_swept_and_the_rest_is_not(void **state)
{
    static const char stray[] = "zzzzzzzzzzzzzzzzzzzz";
    struct fixture *f = *state;
    struct keeper_box box = fixture_claimed(f, "acme", "p1");
    char dir[192];

    touch(f->run_dir, "boxes", box.id);
    touch(f->run_dir, "boxes", stray);
    touch(f->run_dir, ATTRIBUTES_DIR, box.id);
    touch(f->run_dir, ATTRIBUTES_DIR, stray);
    snprintf(dir, sizeof(dir), "%s/boxes/%s", f->state_dir, stray);
    assert_int_equal(mkdir(dir, 0700), 0);
    text_copy(fake.stray[0], sizeof(fake.stray[0]), stray);
    text_copy(fake.stray[1], sizeof(fake.stray[1]), box.id);
    fixture_restart(f);
    assert_false(is_there(f->run_dir, "boxes", stray));
    assert_false(is_there(f->run_dir, ATTRIBUTES_DIR, stray));
    assert_false(is_there(f->state_dir, "boxes", stray));
    assert_true(is_there(f->run_dir, "boxes", box.id));
    assert_true(is_there(f->run_dir, ATTRIBUTES_DIR, box.id));
    assert_true(is_there(f->state_dir, "boxes", box.id));
    assert_int_equal(fake.removed_count, 1); /* cgroups */
    assert_string_equal(fake.removed[0], stray);
}

/* ------------------------------------------------------------------ workers */

static void note_worker(struct fixture *f, pid_t pid, uint64_t start)
{
    char path[192];
    FILE *out;

    snprintf(path, sizeof(path), "%s/" HELPERS_DIR, f->run_dir);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/" HELPERS_DIR "/worker-0", f->run_dir);
    out = fopen(path, "we");
    fprintf(out, "%d %llu\n", (int)pid, (unsigned long long)start);
    fclose(out);
}

static void a_worker_is_taken_up_by_pid_and_start_time(void **state)
{
    struct fixture *f = *state;
    struct helper *h = &f->k.workers[0];
    pid_t pid = stranger();

    *h = (struct helper){ .kind = &worker_kind };
    for (uint32_t i = 1; i < WORKER_SLOTS; i++)
        f->k.workers[i] = (struct helper){ .kind = &worker_kind, .slot = i };
    note_worker(f, pid, process_start_time(pid) + 1);
    workers_adopt(&f->k);
    assert_int_equal(h->pid, 0); /* the number was given to somebody else */
    note_worker(f, pid, process_start_time(pid));
    workers_adopt(&f->k);
    assert_int_equal(h->pid, pid);
    assert_true(h->draining);
    watch_close(&h->exit);
    end(pid);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_lives_is_taken_up_as_it_was),
        T(an_adopted_sandbox_still_ends_at_its_time),
        T(a_pid_that_began_at_another_time_is_a_stranger_s),
        T(a_pid_outside_the_sandbox_s_cgroup_is_a_stranger_s),
        T(records_without_a_pid_or_a_start_time_name_nobody),
        T(what_was_being_built_is_brought_to_an_end),
        T(what_nobody_knows_is_swept_and_the_rest_is_not),
        T(a_worker_is_taken_up_by_pid_and_start_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
