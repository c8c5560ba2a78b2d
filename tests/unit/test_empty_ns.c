/* sandbox/box/empty_ns.c: the mount namespace in which sandboxes begin. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "sandbox/box/empty_ns.h"

static int setup(void **state)
{
    static struct empty_ns ns;
    struct cove_err e = { 0 };

    ns = NO_EMPTY_NS;
    if (empty_ns_make(&ns, &e) < 0)
        fail_msg("%s", e.msg);
    *state = &ns;
    return 0;
}

static int teardown(void **state)
{
    const struct empty_ns *ns = *state;

    cove_close(ns->empty);
    cove_close(ns->own);
    cove_close(ns->cwd);
    return 0;
}

/* How many names of this directory begin like this? */
static int count_names(const char *path, int (*begins)(int))
{
    DIR *dir = opendir(path);
    int count = 0;

    for (const struct dirent *d = dir ? readdir(dir) : NULL; d; d = readdir(dir))
        count += d->d_name[0] != '.' && begins((unsigned char)d->d_name[0]);
    if (dir)
        closedir(dir);
    return dir ? count : -1;
}

static void nothing_of_the_host_is_in_it(void **state)
{
    const struct empty_ns *ns = *state;
    int names, layers, processes, made, why, usr, above;

    assert_int_equal(empty_ns_enter(ns), 0);
    names = count_names("/", isgraph);
    layers = count_names("/layers", isgraph);
    processes = count_names("/proc", isdigit);
    made = mkdir("/mine", 0755);
    why = errno;
    usr = access("/usr", F_OK);
    above = count_names("/..", isgraph);
    empty_ns_leave(ns);
    assert_int_equal(names, 3); /* dev, layers and proc */
    assert_int_equal(above, 3);
    assert_int_equal(layers, 0);
    assert_int_equal(processes, 0); /* not even those of this one's own pid namespace */
    assert_int_equal(usr, -1);
    assert_int_equal(made, -1);
    assert_int_equal(why, EROFS);
}

static void its_maker_comes_back_to_where_it_was(void **state)
{
    const struct empty_ns *ns = *state;
    char before[PATH_MAX], after[PATH_MAX];

    assert_non_null(getcwd(before, sizeof(before)));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(empty_ns_enter(ns), 0);
        empty_ns_leave(ns);
    }
    assert_non_null(getcwd(after, sizeof(after)));
    assert_string_equal(after, before);
    assert_int_equal(access("/usr", F_OK), 0);
    assert_int_equal(access("/layers", F_OK), -1);
}

static void errno_survives_the_way_back(void **state)
{
    const struct empty_ns *ns = *state;

    assert_int_equal(empty_ns_enter(ns), 0);
    errno = EAGAIN;
    empty_ns_leave(ns);
    assert_int_equal(errno, EAGAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_of_the_host_is_in_it),
        cmocka_unit_test(its_maker_comes_back_to_where_it_was),
        cmocka_unit_test(errno_survives_the_way_back),
    };

    if (geteuid() != 0) {
        fputs("skipped: mount namespaces need root\n", stderr);
        return 77;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
