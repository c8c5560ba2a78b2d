/* Where sandboxes' cgroups go, told from directories that look like systemd's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_place_is_found) };

    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
