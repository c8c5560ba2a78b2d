/* sandbox/box/sweep.c: whatever a sandbox left behind goes, and nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/box/sweep.h"

static char dir[] = "/tmp/cove-sweep-XXXXXX";
static int top;

static void touch_at(int at, const char *name)
{
    int fd = openat(at, name, O_CREAT | O_WRONLY, 0600);

    assert_true(fd >= 0);
    close(fd);
}

static void a_tree_deeper_than_any_path_is_removed(void **state)
{
    int at;

    (void)state;
    assert_int_equal(mkdirat(top, "deep", 0700), 0);
    at = openat(top, "deep", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 5000; i++) {
        int next;

        touch_at(at, "file");
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        next = openat(at, "d", O_RDONLY | O_DIRECTORY);
        close(at);
        at = next;
    }
    close(at);
    assert_int_equal(sweep_tree(top, "deep", NULL), 0);
    assert_int_equal(faccessat(top, "deep", F_OK, 0), -1);
}

static void links_are_removed_not_followed(void **state)
{
    int at;

    (void)state;
    assert_int_equal(mkdirat(top, "precious", 0700), 0);
    at = openat(top, "precious", O_RDONLY | O_DIRECTORY);
    touch_at(at, "file");
    close(at);
    assert_int_equal(mkdirat(top, "box", 0700), 0);
    assert_int_equal(symlinkat("../precious", top, "box/link"), 0);
    assert_int_equal(symlinkat("/etc", top, "box/etc"), 0);
    assert_int_equal(sweep_tree(top, "box", NULL), 0);
    assert_int_equal(faccessat(top, "precious/file", F_OK, 0), 0);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
}

static void a_link_in_the_trees_own_place_is_not_followed(void **state)
{
    (void)state;
    assert_int_equal(symlinkat("precious", top, "swapped"), 0);
    assert_int_equal(sweep_tree(top, "swapped", NULL), -1);
    assert_int_equal(faccessat(top, "precious/file", F_OK, 0), 0);
    unlinkat(top, "swapped", 0);
}

static void fifos_sockets_and_odd_names_go_too(void **state)
{
    int at;

    (void)state;
    assert_int_equal(mkdirat(top, "odd", 0), 0);
    at = openat(top, "odd", O_RDONLY | O_DIRECTORY);
    assert_int_equal(mkfifoat(at, "fifo", 0600), 0);
    touch_at(at, "new\nline");
    touch_at(at, "-rf");
    touch_at(at, "\xff\xfe");
    close(at);
    assert_int_equal(sweep_tree(top, "odd", NULL), 0);
    assert_int_equal(faccessat(top, "odd", F_OK, 0), -1);
}

static void nothing_to_sweep_is_fine(void **state)
{
    (void)state;
    assert_int_equal(sweep_tree(top, "never-was", NULL), 0);
}

static int setup_dir(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return top < 0;
}

static int remove_dir(void **state)
{
    (void)state;
    sweep_tree(top, "precious", NULL);
    close(top);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_deeper_than_any_path_is_removed),
        cmocka_unit_test(links_are_removed_not_followed),
        cmocka_unit_test(a_link_in_the_trees_own_place_is_not_followed),
        cmocka_unit_test(fifos_sockets_and_odd_names_go_too),
        cmocka_unit_test(nothing_to_sweep_is_fine),
    };

    return cmocka_run_group_tests(tests, setup_dir, remove_dir);
}
