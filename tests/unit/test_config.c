/* base/config.c: an operator's file is read whole or not at all, and a mistake is told by line and
 * key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/config.h"
#include "cove/mem.h"

static int load(const char *text, struct cove_config *c, struct cove_err *e)
{
    char name[] = "/tmp/cove-config-XXXXXX";
    int fd = mkstemp(name), rc;

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    rc = config_load(name, c, e);
    unlink(name);
    return rc;
}

static void the_defaults_make_sense_together(void **state)
{
    struct cove_config c;

    (void)state;
    config_default(&c);
    assert_int_equal(config_check(&c, NULL), 0);
    assert_int_equal(c.reuse_ms, 55 * 60000);
    assert_int_equal(c.command_timeout_ms, 60000);
}

static void values_have_units_and_comments_are_skipped(void **state)
{
    struct cove_config c;
    struct cove_err e = { 0 };

    (void)state;
    config_default(&c);
    if (load("# a comment\n\n  reuse = 2s\nlifetime=3s\nmemory_max = 64M\n", &c, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(c.reuse_ms, 2000);
    assert_int_equal(c.memory_max_bytes, 64 << 20);
}

struct told {
    unsigned count;
    char all[2048];
};

static void hear(void *ctx, const struct cove_err *e)
{
    struct told *t = ctx;

    t->count++;
    strcat(t->all, e->msg);
    strcat(t->all, "\n");
}

static void every_mistake_of_a_file_is_told_and_the_key_that_was_meant(void **state)
{
    static const char text[] =
        "memroy_max = 1G\npool = many\nxyzzy = 1\nthreads = 4\nshort_threads = 9\n";
    char name[] = "/tmp/cove-config-XXXXXX";
    struct told told = { 0 };
    struct cove_config c, before;
    struct cove_err e = { 0 };
    int fd = mkstemp(name);

    (void)state;
    config_default(&c);
    before = c;
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(config_read(name, &c, hear, &told, &e), -1);
    unlink(name);
    assert_int_equal(told.count, 4);
    assert_non_null(strstr(told.all, ":1: memroy_max: no such key; did you mean memory_max?"));
    assert_non_null(strstr(told.all, ":2: pool: 'many'"));
    assert_non_null(strstr(told.all, ":3: xyzzy: no such key\n"));
    assert_non_null(strstr(told.all, "short_threads: must be below threads (4)"));
    assert_non_null(strstr(e.msg, ":1: memroy_max"));
    assert_memory_equal(&c, &before, sizeof(c));
}

static const struct {
    const char *text, *where;
} mistakes[] = {
    { "pool = 1\nmemry_max = 1G\n", ":2: memry_max: no such key" },
    { "environment = A=1 2B=x\n", "environment: '2B=x' is not of the form NAME=VALUE" },
    { "threads\n", ":1: 'threads' is not of the form key = value" },
    { "threads = many\n", ":1: threads: 'many' is not a number" },
    { "reuse = 60\n", ":1: reuse: '60' is not a time such as" },
    { "pids_max = 1\n", ":1: pids_max: 1 is not between 8 and" },
    { "run_dir =\n", ":1: run_dir: must not be empty" },
    { "reuse = 2h\n", "reuse: must not be above lifetime" },
    { "threads = 4\nshort_threads = 4\n", "short_threads: must be below threads" },
    { "cgroup = a/b\n", "cgroup: must be a plain name" },
};

static void a_mistake_is_told_by_line_and_key_and_changes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(mistakes); i++) {
        struct cove_config c, before;
        struct cove_err e = { 0 };

        config_default(&c);
        before = c;
        assert_int_equal(load(mistakes[i].text, &c, &e), -1);
        if (!strstr(e.msg, mistakes[i].where))
            fail_msg("'%s' is not in '%s'", mistakes[i].where, e.msg);
        assert_memory_equal(&c, &before, sizeof(c));
    }
}

static void what_is_printed_can_be_read_again(void **state)
{
    struct cove_config c, again;
    struct cove_err e = { 0 };
    struct buf text;

    (void)state;
    config_default(&c);
    c.pool = 9;
    buf_init(&text, 65536);
    assert_int_equal(config_print(&c, &text), 0);
    config_default(&again);
    if (load(text.data, &again, &e) < 0)
        fail_msg("%s", e.msg);
    assert_memory_equal(&c, &again, sizeof(c));
    buf_done(&text);
}

/* The kernel's way from a user id to one of its 128 lists of users (include/linux/sched/user.h, kernel/user.c). */
static unsigned kernel_list(uint64_t id)
{
    return (unsigned)(id / 128 + id) % 128;
}

static void ids_of_many_sandboxes_are_spread_over_the_kernel_s_lists(void **state)
{
    enum { SLOTS = 5120, EVEN = SLOTS / 128 };
    unsigned used[128] = { 0 };
    struct cove_config c;

    (void)state;
    config_default(&c);
    for (uint64_t slot = 0; slot < SLOTS; slot++) {
        used[kernel_list(config_first_id(&c, slot))]++;
        assert_true(config_first_id(&c, slot + 1) >= config_first_id(&c, slot) + c.id_count);
    }
    for (size_t i = 0; i < ARRAY_SIZE(used); i++)
        assert_true(used[i] <= 2 * EVEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mistake_of_a_file_is_told_and_the_key_that_was_meant),
        cmocka_unit_test(the_defaults_make_sense_together),
        cmocka_unit_test(values_have_units_and_comments_are_skipped),
        cmocka_unit_test(a_mistake_is_told_by_line_and_key_and_changes_nothing),
        cmocka_unit_test(what_is_printed_can_be_read_again),
        cmocka_unit_test(ids_of_many_sandboxes_are_spread_over_the_kernel_s_lists),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
