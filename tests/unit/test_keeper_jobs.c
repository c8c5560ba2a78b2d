/* Child processes of the keeper with one order, and who is told of their end (sandbox/keeper/job.c). */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper_fixture.h"
#include "sandbox/keeper/job.h"

static struct {
    unsigned count;
    uint32_t index;
    int status;
} told;

static void note_end(struct keeper *k, uint32_t index, int status)
{
    (void)k;
    told.count++;
    told.index = index;
    told.status = status;
}

static void exit_with(const struct keeper *k, const void *arg)
{
    (void)k;
    _exit(*(const int *)arg);
}

static void wait_for_ever(const struct keeper *k, const void *arg)
{
    (void)k, (void)arg;
    for (;;)
        pause();
}

static void just_return(const struct keeper *k, const void *arg)
{
    (void)k, (void)arg;
}

/* Handles events until the process was reaped, which is noticed by its pid. */
static void let_end(struct fixture *f, pid_t pid)
{
    for (int tries = 0; kill(pid, 0) == 0 && tries < 30; tries++)
        loop_turn(&f->k.loop, 1000);
    assert_int_equal(kill(pid, 0), -1);
}

static struct job *start(struct fixture *f, void (*run)(const struct keeper *, const void *),
                         const int *arg)
{
    const struct job_child c = {
        .name = "a test", .run = run, .arg = arg, .index = 7, .done = note_end
    };
    struct job *job = NULL;

    told.count = 0;
    assert_int_equal(job_fork(&f->k, &c, &job, NULL), 0);
    assert_non_null(job);
    return job;
}

static void the_end_of_a_child_is_told_with_its_status(void **state)
{
    struct fixture *f = *state;
    const int code = 3;

    let_end(f, start(f, exit_with, &code)->pid);
    assert_int_equal(told.count, 1);
    assert_int_equal(told.index, 7);
    assert_true(WIFEXITED(told.status) && WEXITSTATUS(told.status) == code);
}

static void a_child_that_is_killed_is_told_as_killed(void **state)
{
    struct fixture *f = *state;
    pid_t pid = start(f, wait_for_ever, NULL)->pid;

    assert_int_equal(kill(pid, SIGTERM), 0);
    let_end(f, pid);
    assert_int_equal(told.count, 1);
    assert_true(WIFSIGNALED(told.status) && WTERMSIG(told.status) == SIGTERM);
}

static void nobody_is_told_of_the_end_of_an_abandoned_child(void **state)
{
    struct fixture *f = *state;
    struct job *job = start(f, wait_for_ever, NULL);
    pid_t pid = job->pid;

    job_abandon(job);
    job_abandon(NULL);
    let_end(f, pid);
    assert_int_equal(told.count, 0);
}

static void a_child_never_goes_on_as_a_second_keeper(void **state)
{
    struct fixture *f = *state;
    pid_t self = getpid(), pid = start(f, just_return, NULL)->pid;

    if (getpid() != self)
        _exit(0);
    let_end(f, pid);
    assert_int_equal(told.count, 1);
    assert_true(WIFEXITED(told.status) && WEXITSTATUS(told.status) != 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_end_of_a_child_is_told_with_its_status),
        T(a_child_that_is_killed_is_told_as_killed),
        T(nobody_is_told_of_the_end_of_an_abandoned_child),
        T(a_child_never_goes_on_as_a_second_keeper),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
