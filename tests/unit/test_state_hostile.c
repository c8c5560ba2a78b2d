/*
 * sandbox/client/state*.c under a worker that was taken over: whoever has the worker's uid can
 * write any byte of `state.workers` and cut the file to any length, at any moment. The keeper's
 * handle goes on working, its counts stay right, and it hands out nothing that lies outside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/state.h"

enum { BOXES = 32, WORKERS = 4, TASKS = 8, ROUNDS = 200 };

static char dir[] = "/tmp/cove-hostile-XXXXXX";
static char path[64], workers[80];
static struct state *keeper;

static int a_keeper(void **state)
{
    bool kept;

    (void)state;
    strcpy(dir + sizeof(dir) - 7, "XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/state", dir);
    snprintf(workers, sizeof(workers), "%s.workers", path);
    return state_open(path, getgid(), BOXES, WORKERS, TASKS, &keeper, &kept, NULL);
}

static int gone(void **state)
{
    (void)state;
    state_close(keeper);
    unlink(path);
    unlink(workers);
    return rmdir(dir);
}

/* ------------------------------------------------------------------ what an attacker writes */

static const uint32_t patterns[] = {
    0xffffffff, /* every number at its largest, -1 as an index */
    0x7fffffff, /* the largest that is not negative */
    0,          /* as if nothing had ever been written */
    1,          /* one of everything */
    0x00100000, /* small enough to pass for a count, too large for the file */
};

static off_t file_size(void)
{
    struct stat st;

    assert_int_equal(stat(workers, &st), 0);
    return st.st_size;
}

static void fill(uint32_t pattern)
{
    off_t size = file_size();
    int fd = open(workers, O_RDWR);

    for (off_t at = 0; at < size; at += sizeof(pattern))
        assert_int_equal(pwrite(fd, &pattern, sizeof(pattern), at), sizeof(pattern));
    close(fd);
}

/* ------------------------------------------------------------------ what the keeper does */

static struct box_info box_number(uint32_t n)
{
    struct box_info b = { .state = BOX_LIVE, .generation = n, .init_pid = n };

    snprintf(b.id, sizeof(b.id), "x%019u", n);
    snprintf(b.tenant, sizeof(b.tenant), "tenant");
    snprintf(b.project, sizeof(b.project), "project-%u", n);
    return b;
}

/* All that the keeper's code calls, once for each index it could have, and a few it must not. */
static void use_as_the_keeper(uint32_t n)
{
    struct box_info b = box_number(n), found;
    uint32_t index;

    state_count(keeper, STATE_KEEPER, COUNT_BOXES_BUILT, 1);
    state_box_write(keeper, n % BOXES, &b);
    assert_true(state_find_project(keeper, "tenant", b.project, &index, &found));
    assert_int_equal(index, n % BOXES);
    assert_string_equal(found.id, b.id);
    assert_int_equal(state_box_count(keeper), BOXES);
    assert_int_equal(state_worker_count(keeper), WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++) {
        state_worker_pid(keeper, i);
        assert_true(state_worker_release(keeper, i) <= TASKS);
    }
    assert_int_equal(state_worker_pid(keeper, WORKERS), 0);
    assert_int_equal(state_worker_release(keeper, WORKERS), 0);
    assert_int_equal(state_worker_release(keeper, UINT32_MAX), 0);
}

/* ------------------------------------------------------------------ tests */

static void a_scribbled_file_changes_nothing_for_the_keeper(void **state)
{
    struct state *reader;

    (void)state;
    for (uint32_t n = 0; n < ARRAY_SIZE(patterns); n++) {
        fill(patterns[n]);
        use_as_the_keeper(n);
    }
    fill(0);
    assert_int_equal(state_attach(path, &reader, NULL), 0);
    assert_int_equal(state_counter_sum(reader, COUNT_BOXES_BUILT), ARRAY_SIZE(patterns));
    state_close(reader);
}

static void a_file_cut_short_changes_nothing_for_the_keeper(void **state)
{
    const off_t lengths[] = { 4096, 64, 1, 0 };

    (void)state;
    for (uint32_t n = 0; n < ARRAY_SIZE(lengths); n++) {
        assert_int_equal(truncate(workers, lengths[n]), 0);
        use_as_the_keeper(n);
    }
}

static void a_file_cut_short_is_whole_again_for_the_next_worker(void **state)
{
    off_t size = file_size();
    struct state *w;

    (void)state;
    assert_int_equal(truncate(workers, 0), 0);
    assert_int_equal(state_attach(path, &w, NULL), 0);
    assert_int_equal(file_size(), size);
    state_worker_claim(w, WORKERS - 1, 4711);
    atomic_store(&state_task(w, WORKERS - 1, TASKS - 1)->busy, 1);
    assert_int_equal(state_worker_pid(keeper, WORKERS - 1), 4711);
    assert_int_equal(state_worker_release(keeper, WORKERS - 1), 1);
    state_close(w);
}

static void the_next_keeper_makes_a_file_anew_that_was_cut_short(void **state)
{
    off_t size = file_size();
    bool kept;

    (void)state;
    assert_int_equal(truncate(workers, 64), 0);
    state_close(keeper);
    assert_int_equal(state_open(path, getgid(), BOXES, WORKERS, TASKS, &keeper, &kept, NULL), 0);
    assert_int_equal(file_size(), size);
}

/* Workers attach again while the file says what an attacker wrote: all they take from it is numbers. */
static void another_worker_stays_within_the_file(void **state)
{
    struct state *w;

    (void)state;
    for (size_t n = 0; n < ARRAY_SIZE(patterns); n++) {
        fill(patterns[n]);
        assert_int_equal(state_attach(path, &w, NULL), 0);
        assert_int_equal(state_worker_count(w), WORKERS);
        assert_null(state_task(w, WORKERS, 0));
        assert_null(state_task(w, 0, TASKS));
        assert_non_null(state_task(w, WORKERS - 1, TASKS - 1));
        state_count(w, 0, COUNT_SPAWNS, 1);
        state_count(w, WORKERS, COUNT_SPAWNS, 1);
        state_counter_sum(w, COUNT_SPAWNS);
        state_has_room(w);
        state_close(w);
    }
}

static void scribble_for_ever(unsigned seed)
{
    off_t size = file_size();
    int fd = open(workers, O_RDWR);

    for (;;) {
        uint32_t word = rand_r(&seed) % 2 ? patterns[rand_r(&seed) % ARRAY_SIZE(patterns)]
                                          : (uint32_t)rand_r(&seed);

        if (rand_r(&seed) % 64 == 0)
            (void)!ftruncate(fd, rand_r(&seed) % (size + 1));
        (void)!pwrite(fd, &word, sizeof(word), (off_t)(rand_r(&seed) % size) & ~3L);
    }
}

static void a_keeper_lives_through_scribbling_while_it_works(void **state)
{
    struct state *reader;
    unsigned seed = (unsigned)getpid();
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        scribble_for_ever(seed);
    print_message("seed %u\n", seed);
    for (uint32_t n = 0; n < ROUNDS; n++)
        use_as_the_keeper(n);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(truncate(workers, 0), 0); /* the attacker's own counts */
    assert_int_equal(state_attach(path, &reader, NULL), 0);
    assert_int_equal(state_counter_sum(reader, COUNT_BOXES_BUILT), ROUNDS);
    state_close(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_scribbled_file_changes_nothing_for_the_keeper, a_keeper,
                                        gone),
        cmocka_unit_test_setup_teardown(a_file_cut_short_changes_nothing_for_the_keeper, a_keeper,
                                        gone),
        cmocka_unit_test_setup_teardown(a_file_cut_short_is_whole_again_for_the_next_worker,
                                        a_keeper, gone),
        cmocka_unit_test_setup_teardown(the_next_keeper_makes_a_file_anew_that_was_cut_short,
                                        a_keeper, gone),
        cmocka_unit_test_setup_teardown(another_worker_stays_within_the_file, a_keeper, gone),
        cmocka_unit_test_setup_teardown(a_keeper_lives_through_scribbling_while_it_works, a_keeper,
                                        gone),
    };

    alarm(60); /* a keeper that loops over a count from the file would never come back */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
