/*
 * sandbox/box/disk_project.c: which number a sandbox's files get, and what becomes of its limits. The
 * kernel of a build machine may have no quotas, so its part is played here by a table of projects;
 * tests/vm tries the real one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/config.h"
#include "cove/mem.h"
#include "sandbox/box/disk_private.h"
#include "sandbox/box/mounts.h"
#include "sandbox/box/project.h"
#include "sandbox/box/sweep.h"

#define MIB ((uint64_t)1 << 20)
#define A   "aaaaaaaaaaaaaaaaaaaa"
#define B   "bbbbbbbbbbbbbbbbbbbb"

/* ------------------------------------------------------------------ the kernel's part */

enum { PROJECTS = 8 };

static struct {
    uint32_t number;
    struct project_quota quota;
} projects[PROJECTS];
static uint32_t last_marked;
static bool counts = true;

static struct project_quota *find(uint32_t number)
{
    for (int i = 0; i < PROJECTS; i++)
        if (projects[i].number == number || projects[i].number == 0) {
            projects[i].number = number;
            return &projects[i].quota;
        }
    fail_msg("more than %d projects", PROJECTS);
    return NULL;
}

int __wrap_project_check(int fd, struct cove_err *e);
int __wrap_project_get(int fd, uint32_t project, struct project_quota *ret);
int __wrap_project_set(int fd, uint32_t project, const struct project_quota *q);
int __wrap_project_mark(int dir, uint32_t project);

int __wrap_project_check(int fd, struct cove_err *e)
{
    (void)fd;
    return counts ? 0 : cove_fail(e, COVE_UNSUPPORTED, "no quotas");
}

int __wrap_project_get(int fd, uint32_t project, struct project_quota *ret)
{
    (void)fd;
    *ret = *find(project);
    return 0;
}

int __wrap_project_set(int fd, uint32_t project, const struct project_quota *q)
{
    struct project_quota *kept = find(project), limits = *q;

    (void)fd;
    if (q->hard_limit_bytes && q->hard_limit_bytes < q->limit_bytes)
        return 0; /* XFS leaves the limits as they are, and says nothing */
    limits.used_bytes = kept->used_bytes;
    limits.used_inodes = kept->used_inodes;
    *kept = limits;
    return 0;
}

int __wrap_project_mark(int dir, uint32_t project)
{
    (void)dir;
    last_marked = project;
    find(project)->used_inodes = counts ? 1 : 0;
    return 0;
}

/* ------------------------------------------------------------------ a state_dir */

struct place {
    char path[32];
    int dir, boxes;
    struct disk disk;
    uint32_t first; /* number that was tried out when the backend was opened */
};

static int set_up(void **state)
{
    static const struct disk_size usual = { 64 * MIB, 1000 };
    struct place *p = calloc(1, sizeof(*p));

    memset(projects, 0, sizeof(projects));
    counts = true;
    snprintf(p->path, sizeof(p->path), "/tmp/cove-project-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(p->dir, "boxes", 0700), 0);
    p->boxes = openat(p->dir, "boxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(disk_init(&p->disk, p->dir, p->boxes, NULL), 0);
    assert_int_equal(disk_configure(&p->disk, "auto", &usual, 0, NULL), 0);
    p->first = last_marked;
    find(last_marked)->used_inodes = 0; /* the directory that was tried out is gone */
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;

    disk_done(&p->disk, true);
    close(p->boxes);
    close(p->dir);
    sweep_tree(AT_FDCWD, p->path, NULL);
    free(p);
    return 0;
}

/* A sandbox's disk; returns its number. */
static uint32_t make(struct place *p, const char *id)
{
    const struct disk_size size = { 64 * MIB, 1000 };
    struct disk_files files;
    AUTO_CLOSE int box = -1;

    assert_int_equal(mkdirat(p->boxes, id, 0755), 0);
    box = openat(p->boxes, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(disk_make(&p->disk, &size, id, box, &files, NULL), 0);
    close(files.dir);
    return last_marked;
}

static void use(uint32_t number, uint64_t bytes, uint64_t inodes)
{
    find(number)->used_bytes = bytes;
    find(number)->used_inodes = inodes;
}

static void tick(struct place *p, uint64_t reserve)
{
    p->disk.reserve_bytes = reserve;
    p->disk.next_tick_ms = 0;
    disk_tick(&p->disk, 1); /* looks at some sandboxes, */
    p->disk.next_tick_ms = 0;
    disk_tick(&p->disk, 1); /* and at the first ones again, should that have ended a round */
}

/* ------------------------------------------------------------------ tests */

static void project_quotas_are_taken_first_and_leave_nothing_of_the_trial(void **state)
{
    struct place *p = *state;

    assert_string_equal(disk_backend_name(&p->disk), "project");
    assert_int_equal(find(p->first)->hard_limit_bytes, 0);
    assert_int_equal(faccessat(p->disk.dir, "try-project", F_OK, 0), -1);
}

/* base/config.c cannot ask this folder which backends there are: the two lists are compared here. */
static void the_configuration_takes_every_backend(void **state)
{
    static const char *const words[] = { "auto", "project", "btrfs", "image", "tmpfs", "flat" };
    struct cove_config config;
    struct cove_err e = { 0 };

    (void)state;
    config_default(&config);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        assert_int_equal(config_set(&config, "disk", words[i], &e), 0);
        assert_int_equal(config_check(&config, &e) == 0, disk_is_backend(words[i]));
    }
    assert_false(disk_is_backend("flat"));
}

static void without_them_the_backend_cannot_be_had(void **state)
{
    struct place *p = *state;
    const struct disk_size usual = { 64 * MIB, 1000 };
    struct cove_err e = { 0 };

    counts = false;
    assert_int_equal(disk_configure(&p->disk, "project", &usual, 0, &e), -1);
    assert_int_equal(e.code, COVE_UNSUPPORTED);
    assert_string_equal(disk_backend_name(&p->disk), "tmpfs");
}

static void a_sandbox_gets_limits_of_its_own_in_a_closed_directory(void **state)
{
    struct place *p = *state;
    uint32_t a = make(p, A), b = make(p, B);
    struct stat st;
    uint64_t used;

    assert_int_not_equal(a, b);
    assert_int_equal(find(a)->hard_limit_bytes, 64 * MIB);
    assert_int_equal(find(a)->hard_limit_inodes, 1000);
    assert_int_equal(find(a)->limit_bytes, 64 * MIB);
    assert_int_equal(fstatat(p->boxes, A "/files", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(faccessat(p->boxes, A "/files/" UPPER_ROOT, F_OK, 0), 0);
    use(a, 5 * MIB, 7);
    used = disk_used(&p->disk, A, 0);
    assert_int_equal(used, 5 * MIB);
}

static void a_number_is_free_when_nothing_carries_it_and_no_limit_is_left(void **state)
{
    struct place *p = *state;
    uint32_t a = make(p, A), b;

    p->disk.last_project = a - p->first; /* the next one to be tried is the same */
    b = make(p, B);
    assert_int_not_equal(a, b);
    use(a, MIB, 3); /* a file that is still open */
    disk_sweep(&p->disk, A);
    assert_int_equal(find(a)->hard_limit_bytes, 0);
    p->disk.last_project = a - p->first;
    assert_int_not_equal(make(p, A), a);
    disk_sweep(&p->disk, A);
    use(a, 0, 1); /* an empty one */
    p->disk.last_project = a - p->first;
    assert_int_not_equal(make(p, A), a);
    disk_sweep(&p->disk, A);
    use(a, 0, 0);
    p->disk.last_project = a - p->first;
    assert_int_equal(make(p, A), a);
}

static void numbers_come_again_after_the_last_of_the_range(void **state)
{
    struct place *p = *state;
    uint32_t a;

    p->disk.last_project = 65535;
    a = make(p, A);
    assert_int_equal(a, p->first + 65535);
    assert_int_equal(make(p, B), p->first);
}

static void another_keeper_finds_what_the_first_has_made(void **state)
{
    struct place *p = *state;
    uint32_t a = make(p, A);
    const struct disk_size usual = { 64 * MIB, 1000 };
    int files = -1;

    disk_done(&p->disk, false);
    assert_int_equal(disk_init(&p->disk, p->dir, p->boxes, NULL), 0);
    assert_int_equal(disk_configure(&p->disk, "tmpfs", &usual, 0, NULL), 0); /* even so */
    assert_int_equal(disk_open_files(&p->disk, A, &files, NULL), 0);
    assert_int_equal(faccessat(files, UPPER_ROOT, F_OK, 0), 0);
    close(files);
    disk_sweep(&p->disk, A);
    assert_int_equal(find(a)->hard_limit_bytes, 0);
    assert_int_equal(faccessat(p->boxes, A, F_OK, 0), -1);
}

static const struct {
    uint64_t used_bytes, used_inodes, want_bytes, want_inodes;
    const char *because;
} reviews[] = {
    { 10 * MIB, 10, 64 * MIB, 1000, "far from the limit nothing changes" },
    { 64 * MIB - 4096, 10, 65 * MIB, 1064, "at the limit there is room for whiteouts" },
    { 65 * MIB, 10, 65 * MIB, 1064, "but only once" },
    { 64 * MIB - 4096, 10, 65 * MIB, 1064, "it stays while there is hardly any room" },
    { 60 * MIB, 10, 64 * MIB, 1000, "and goes when some was freed" },
    { MIB, 999, 65 * MIB, 1064, "the same with files" },
    { MIB, 900, 64 * MIB, 1000, "of which some were deleted" },
};

static void at_its_limit_a_sandbox_gets_a_little_more_once(void **state)
{
    struct place *p = *state;
    uint32_t a = make(p, A);

    for (size_t i = 0; i < ARRAY_SIZE(reviews); i++) {
        use(a, reviews[i].used_bytes, reviews[i].used_inodes);
        tick(p, 0);
        if (find(a)->hard_limit_bytes != reviews[i].want_bytes ||
            find(a)->hard_limit_inodes != reviews[i].want_inodes)
            fail_msg("%s: %llu", reviews[i].because, (unsigned long long)find(a)->hard_limit_bytes);
        assert_int_equal(find(a)->limit_bytes, 64 * MIB); /* `df` does not change */
    }
}

static void on_a_full_host_nobody_can_write_more_until_there_is_room_again(void **state)
{
    struct place *p = *state;
    uint32_t a = make(p, A), b = make(p, B);

    use(a, 10 * MIB, 10);
    use(b, 0, 0);
    tick(p, UINT64_MAX);
    assert_int_equal(find(a)->hard_limit_bytes, 10 * MIB + 1024);
    assert_int_equal(find(b)->hard_limit_bytes, 1024); /* 0 would be no limit */
    tick(p, UINT64_MAX);
    assert_int_equal(find(a)->hard_limit_bytes, 10 * MIB + 1024);
    tick(p, 0);
    assert_int_equal(find(a)->hard_limit_bytes, 64 * MIB);
    assert_int_equal(find(b)->hard_limit_bytes, 64 * MIB);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(project_quotas_are_taken_first_and_leave_nothing_of_the_trial),
        TEST(the_configuration_takes_every_backend),
        TEST(without_them_the_backend_cannot_be_had),
        TEST(a_sandbox_gets_limits_of_its_own_in_a_closed_directory),
        TEST(a_number_is_free_when_nothing_carries_it_and_no_limit_is_left),
        TEST(numbers_come_again_after_the_last_of_the_range),
        TEST(another_keeper_finds_what_the_first_has_made),
        TEST(at_its_limit_a_sandbox_gets_a_little_more_once),
        TEST(on_a_full_host_nobody_can_write_more_until_there_is_room_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
