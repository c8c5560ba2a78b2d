/* sandbox/client/state.c: what shared memory promises, also to those who meet a writer's corpse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/state.h"

enum { BOXES = 32, WORKERS = 4, TASKS = 8 };

static char dir[] = "/tmp/cove-state-XXXXXX";
static char path[64];

static struct state *fresh(void)
{
    struct cove_err e = { 0 };
    struct state *s;
    bool kept;
    char workers[80];

    snprintf(workers, sizeof(workers), "%s.workers", path);
    unlink(path);
    unlink(workers);
    if (state_open(path, getgid(), BOXES, WORKERS, TASKS, &s, &kept, &e) < 0)
        fail_msg("%s", e.msg);
    assert_false(kept);
    return s;
}

static struct box_info live_box(const char *tenant, const char *project, const char *id)
{
    struct box_info b = { .state = BOX_LIVE, .generation = 1 };

    text_copy(b.tenant, sizeof(b.tenant), tenant);
    text_copy(b.project, sizeof(b.project), project);
    text_copy(b.id, sizeof(b.id), id);
    return b;
}

static void a_project_is_found_by_tenant_and_name(void **state)
{
    struct state *s = fresh();
    struct box_info b = live_box("acme", "p1", "aaaaaaaaaaaaaaaaaaaa"), found;
    uint32_t index;

    (void)state;
    state_box_write(s, 7, &b);
    assert_true(state_find_project(s, "acme", "p1", &index, &found));
    assert_int_equal(index, 7);
    assert_string_equal(found.id, "aaaaaaaaaaaaaaaaaaaa");
    assert_false(state_find_project(s, "other", "p1", &index, &found));
    assert_false(state_find_project(s, "acme", "p2", &index, &found));
    assert_false(state_find_project(s, "acm", "ep1", &index, &found));
    state_close(s);
}

static void an_id_is_found_only_by_its_own_tenant(void **state)
{
    struct state *s = fresh();
    struct box_info b = live_box("acme", "p1", "aaaaaaaaaaaaaaaaaaaa"), found;
    uint32_t index;

    (void)state;
    state_box_write(s, 0, &b);
    assert_true(state_find_id(s, "acme", "aaaaaaaaaaaaaaaaaaaa", &index, &found));
    assert_false(state_find_id(s, "evil", "aaaaaaaaaaaaaaaaaaaa", &index, &found));
    state_close(s);
}

static const struct {
    enum box_state state;
    bool by_project, by_id;
} visibility[] = {
    { BOX_EMPTY, false, false }, { BOX_BUILDING, false, false }, { BOX_WARM, false, false },
    { BOX_LIVE, true, true },    { BOX_AGEING, false, true },    { BOX_FROZEN, true, true },
    { BOX_DYING, false, false },
};

static void only_boxes_that_take_requests_are_found(void **state)
{
    struct state *s = fresh();
    struct box_info b = live_box("t", "p", "bbbbbbbbbbbbbbbbbbbb"), found;
    uint32_t index;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(visibility); i++) {
        b.state = visibility[i].state;
        state_box_write(s, 3, &b);
        assert_int_equal(state_find_project(s, "t", "p", &index, &found), visibility[i].by_project);
        assert_int_equal(state_find_id(s, "t", b.id, &index, &found), visibility[i].by_id);
    }
    state_close(s);
}

static void a_restarted_keeper_finds_the_boxes_again(void **state)
{
    struct state *s = fresh();
    struct box_info b = live_box("t", "p", "cccccccccccccccccccc"), found;
    uint32_t index;
    bool kept = false;

    (void)state;
    state_box_write(s, 5, &b);
    state_close(s);
    assert_int_equal(state_open(path, getgid(), BOXES, WORKERS, TASKS, &s, &kept, NULL), 0);
    assert_true(kept);
    state_rebuild_hints(s);
    assert_true(state_find_project(s, "t", "p", &index, &found));
    assert_int_equal(index, 5);
    state_close(s);
}

static void a_larger_table_takes_the_old_boxes_along(void **state)
{
    struct state *s = fresh();
    struct box_info b = live_box("t", "p", "dddddddddddddddddddd"), found;
    uint32_t index;
    bool kept = false;

    (void)state;
    state_box_write(s, 5, &b);
    state_close(s);
    assert_int_equal(state_open(path, getgid(), BOXES * 2, WORKERS, TASKS, &s, &kept, NULL), 0);
    assert_true(kept);
    assert_int_equal(state_box_count(s), BOXES * 2);
    assert_true(state_find_project(s, "t", "p", &index, &found));
    state_close(s);
}

static const struct {
    const char *bytes;
    size_t len;
    const char *because;
} rubbish[] = {
    { "", 0, "an empty file" },
    { "hello", 5, "shorter than a head" },
    { "\x53\x54\x41\x54\x43\x4f\x56\x45\x01\x00\x00\x00\xff\xff\xff\xff", 16, "a head cut short" },
};

static void a_file_that_is_no_state_is_replaced(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rubbish); i++) {
        struct state *s;
        bool kept = true;
        int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

        assert_int_equal(write(fd, rubbish[i].bytes, rubbish[i].len), rubbish[i].len);
        close(fd);
        assert_int_equal(state_attach(path, &s, NULL), -1);
        assert_int_equal(state_open(path, getgid(), BOXES, WORKERS, TASKS, &s, &kept, NULL), 0);
        assert_false(kept);
        state_close(s);
    }
}

static mode_t mode_of(const char *file)
{
    struct stat st;

    assert_int_equal(stat(file, &st), 0);
    return st.st_mode & 07777;
}

static void a_worker_cannot_write_the_boxes(void **state)
{
    struct state *s = fresh(), *w;
    struct box_info b = live_box("t", "p", "eeeeeeeeeeeeeeeeeeee");
    pid_t pid;
    int status;
    bool kept;

    (void)state;
    assert_int_equal(state_attach(path, &w, NULL), 0);
    pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        state_box_write(w, 0, &b);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    state_close(w);
    assert_int_equal(mode_of(path), 0640); /* nor can it open the file for writing */
    state_close(s);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(state_open(path, getgid(), BOXES, WORKERS, TASKS, &s, &kept, NULL), 0);
    assert_int_equal(mode_of(path), 0640);
    state_close(s);
}

static void a_dead_workers_tasks_are_freed_and_counted(void **state)
{
    struct state *s = fresh(), *w;

    (void)state;
    assert_int_equal(state_attach(path, &w, NULL), 0);
    state_worker_claim(w, 1, 4711);
    assert_int_equal(state_worker_pid(w, 1), 4711);
    assert_int_equal(state_worker_pid(s, 1), 4711);
    atomic_store(&state_task(w, 1, 0)->busy, 1);
    atomic_store(&state_task(w, 1, 5)->busy, 1);
    atomic_store(&state_task(w, 2, 5)->busy, 1);
    assert_int_equal(state_worker_release(s, 1), 2);
    assert_int_equal(state_worker_release(s, 1), 0);
    assert_int_equal(state_worker_pid(w, 1), 0);
    assert_null(state_task(w, WORKERS, 0));
    assert_null(state_task(w, 0, TASKS));
    state_close(w);
    state_close(s);
}

static void counters_sum_up_over_processes(void **state)
{
    struct state *s = fresh(), *w;
    bool kept;

    (void)state;
    assert_int_equal(state_attach(path, &w, NULL), 0);
    state_count(w, 0, COUNT_SPAWNS, 2);
    state_count(w, 3, COUNT_SPAWNS, 3);
    state_count(s, STATE_KEEPER, COUNT_SPAWNS, 4);
    assert_int_equal(state_counter_sum(w, COUNT_SPAWNS), 9);
    state_close(w);
    state_close(s);
    assert_int_equal(state_open(path, getgid(), BOXES, WORKERS, TASKS, &s, &kept, NULL), 0);
    assert_int_equal(state_attach(path, &w, NULL), 0);
    assert_int_equal(state_counter_sum(w, COUNT_SPAWNS), 9); /* over a keeper's restart */
    state_close(w);
    state_close(s);
}

/* ------------------------------------------------------------------ a writer that is killed at any
 * moment */

/* Each record is consistent in itself: every field is made from one number. */
static struct box_info numbered(uint32_t n)
{
    char id[COVE_ID_LEN + 1], name[32];
    struct box_info b;

    snprintf(id, sizeof(id), "x%019u", n);
    snprintf(name, sizeof(name), "project-%u", n);
    b = live_box("tenant", name, id);
    b.init_pid = n;
    b.init_start = (uint64_t)n << 20 | n;
    b.dies_at_ms = n;
    b.state = n % 5 == 0 ? BOX_EMPTY : BOX_LIVE;
    return b;
}

static void check_whole(const struct box_info *b)
{
    struct box_info want = numbered(b->init_pid);

    if (b->id[0] == '\0')
        return; /* never written */
    assert_memory_equal(b, &want, sizeof(want));
}

static void write_for_ever(struct state *s, unsigned seed)
{
    for (uint32_t n = 1;; n++) {
        struct box_info b = numbered(n);

        state_box_write(s, (uint32_t)rand_r(&seed) % BOXES, &b);
    }
}

static void a_writer_killed_at_any_moment_leaves_whole_records(void **state)
{
    struct state *s = fresh(), *reader;
    unsigned seed = (unsigned)time(NULL);

    (void)state;
    print_message("seed %u\n", seed);
    assert_int_equal(state_attach(path, &reader, NULL), 0);
    for (int round = 0; round < 300; round++) {
        pid_t pid = fork();
        struct timespec moment = { .tv_nsec = rand_r(&seed) % 1500000 };

        if (pid == 0)
            write_for_ever(s, seed + (unsigned)round);
        nanosleep(&moment, NULL);
        for (uint32_t i = 0; i < BOXES; i++) { /* while it writes */
            struct box_info b;

            state_box_read(reader, i, &b);
            check_whole(&b);
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        for (uint32_t i = 0; i < BOXES; i++) { /* and after its death */
            struct box_info b, found;
            uint32_t index;

            state_box_read(reader, i, &b);
            check_whole(&b);
            if (state_find_project(reader, "tenant", b.project, &index, &found))
                assert_string_equal(found.project, b.project);
        }
    }
    /* The next keeper's hints lead to every box that is live. */
    state_rebuild_hints(s);
    for (uint32_t i = 0; i < BOXES; i++) {
        struct box_info b, found;
        uint32_t index;

        state_box_read(s, i, &b);
        if (b.state == BOX_LIVE) {
            assert_true(state_find_project(s, "tenant", b.project, &index, &found));
            assert_string_equal(found.id, b.id);
        }
    }
    state_close(reader);
    state_close(s);
}

static int setup_dir(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/state", dir);
    return 0;
}

static int remove_dir(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_project_is_found_by_tenant_and_name),
        cmocka_unit_test(an_id_is_found_only_by_its_own_tenant),
        cmocka_unit_test(only_boxes_that_take_requests_are_found),
        cmocka_unit_test(a_restarted_keeper_finds_the_boxes_again),
        cmocka_unit_test(a_larger_table_takes_the_old_boxes_along),
        cmocka_unit_test(a_file_that_is_no_state_is_replaced),
        cmocka_unit_test(a_worker_cannot_write_the_boxes),
        cmocka_unit_test(a_dead_workers_tasks_are_freed_and_counted),
        cmocka_unit_test(counters_sum_up_over_processes),
        cmocka_unit_test(a_writer_killed_at_any_moment_leaves_whole_records),
    };

    return cmocka_run_group_tests(tests, setup_dir, remove_dir);
}
