/* Where sandboxes' cgroups go, told from directories that look like systemd's, and how they are removed. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "sandbox/box/cgroup.h"

static char top[] = "/tmp/cove-test-cgroup-XXXXXX";

static const struct {
    const char *path;
    bool delegated;
} tree[] = {
    { "plain.slice", false },
    { "plain.slice/cove.service", false },
    { "own.slice", false },
    { "own.slice/cove.service", true },
    { "two.slice", false },
    { "two.slice/cove.service", false },
    { "two.slice/cove-sandboxes.service", true },
    { "two.slice/cove-sandboxes.service/.control", false },
    { "both.slice", false },
    { "both.slice/cove.service", true },
    { "both.slice/cove-sandboxes.service", true },
    { "undelegated.slice", false },
    { "undelegated.slice/cove.service", false },
    { "undelegated.slice/cove-sandboxes.service", false },
};

static void in_top(const char *path, char out[256])
{
    snprintf(out, 256, "%s/%s", top, path);
}

static int make_tree(void **state)
{
    (void)state;
    if (!mkdtemp(top))
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(tree); i++) {
        char path[256];

        in_top(tree[i].path, path);
        if (mkdir(path, 0755) < 0)
            return -1;
        if (tree[i].delegated && setxattr(path, "user.delegate", "1", 1, 0) < 0 &&
            setxattr(path, "trusted.delegate", "1", 1, 0) < 0)
            return -1;
    }
    return 0;
}

static int remove_tree(void **state)
{
    (void)state;
    for (size_t i = ARRAY_SIZE(tree); i-- > 0;) {
        char path[256];

        in_top(tree[i].path, path);
        rmdir(path);
    }
    return rmdir(top);
}

static const struct {
    const char *own, *name;
    enum cgroup_place place;
    const char *path, *because;
} cases[] = {
    { "/", "cove", CGROUP_AT_ROOT, "", "no systemd at all" },
    { "/plain.slice/cove.service", "cove", CGROUP_AT_ROOT, "", "nothing was delegated" },
    { "/own.slice/cove.service", "cove", CGROUP_WITHIN, "/own.slice/cove.service", "Delegate=yes" },
    { "/two.slice/cove.service", "cove", CGROUP_BESIDE, "/two.slice/cove-sandboxes.service",
      "the unit next to ours" },
    { "/two.slice/cove-sandboxes.service/.control", "cove", CGROUP_BESIDE,
      "/two.slice/cove-sandboxes.service", "a command of that unit itself" },
    { "/both.slice/cove.service", "cove", CGROUP_BESIDE, "/both.slice/cove-sandboxes.service",
      "the one that can be restarted wins" },
    { "/two.slice/cove.service", "other", CGROUP_AT_ROOT, "", "another instance's" },
    { "/undelegated.slice/cove.service", "cove", CGROUP_AT_ROOT, "", "systemd's own, not for us" },
};

static void the_place_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[512], want[512];

        snprintf(want, sizeof(want), "%s%s", top, cases[i].path);
        print_message("%s: %s\n", cases[i].own, cases[i].because);
        assert_int_equal(cgroup_find_place(top, cases[i].own, cases[i].name, out, sizeof(out)),
                         cases[i].place);
        assert_string_equal(out, want);
    }
}

/* ------------------------------------------------------------------ removal */

#define ID "aaaaaaaaaaaaaaaaaaaa"

static void find_one(void *arg, const char *id)
{
    assert_string_equal(id, ID);
    ++*(unsigned *)arg;
}

static unsigned found(const struct cgroups *cg)
{
    unsigned count = 0;

    cgroup_each_box(cg, find_one, &count);
    return count;
}

static const char *const hierarchies[] = { "v2", "memory", "pids", "cpu" };

static int *fd_of(struct cgroups *cg, size_t hierarchy)
{
    return hierarchy == 0 ? &cg->v2 : &cg->v1[hierarchy - 1];
}

/* Directories that stand for the hierarchies, each with the sandbox's own. */
static struct cgroups make_corner(void)
{
    struct cgroups cg = { 0 };
    char path[256];

    for (size_t i = 0; i < ARRAY_SIZE(hierarchies); i++) {
        int *fd = fd_of(&cg, i);

        in_top(hierarchies[i], path);
        assert_true(mkdir(path, 0755) == 0 && (*fd = open(path, O_RDONLY | O_DIRECTORY)) >= 0);
        assert_int_equal(mkdirat(*fd, ID, 0755), 0);
    }
    return cg;
}

static void remove_corner(struct cgroups *cg)
{
    assert_int_equal(cgroup_remove_box(cg, ID), 0);
    assert_int_equal(found(cg), 0);
    for (size_t i = 0; i < ARRAY_SIZE(hierarchies); i++) {
        char path[256];
        int *fd = fd_of(cg, i);

        assert_int_equal(faccessat(*fd, ID, F_OK, 0), -1);
        close(*fd);
        in_top(hierarchies[i], path);
        assert_int_equal(rmdir(path), 0);
    }
}

static void a_sandbox_is_found_until_all_of_its_cgroups_are_removed(void **state)
{
    struct cgroups cg = make_corner();
    int busy = openat(cg.v1[CGROUP_PIDS], ID "/busy", O_CREAT | O_WRONLY, 0600);

    (void)state;
    assert_true(busy >= 0);
    assert_int_equal(cgroup_remove_box(&cg, ID), -1);
    assert_int_equal(found(&cg), 1);
    close(busy);
    unlinkat(cg.v1[CGROUP_PIDS], ID "/busy", 0);
    remove_corner(&cg);
}

static void a_cgroup_that_cannot_be_looked_at_counts_as_there(void **state)
{
    struct cgroups cg = make_corner();
    struct rlimit was, few;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = (struct rlimit){ (rlim_t)cg.v1[CGROUP_CPU] + 1, was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(cgroup_remove_box(&cg, ID), -1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    remove_corner(&cg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_place_is_found),
        cmocka_unit_test(a_sandbox_is_found_until_all_of_its_cgroups_are_removed),
        cmocka_unit_test(a_cgroup_that_cannot_be_looked_at_counts_as_there),
    };

    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
