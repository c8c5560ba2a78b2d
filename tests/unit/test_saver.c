/* Packing a tree (helpers/saver/pack.c): what it does when the disk does not give back what was written. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "helpers/saver/saver_private.h"

static enum { AS_WRITTEN, OTHER_BYTES, CUT } disk;

int __real_saver_digest(int fd, uint64_t *ret_bytes, char ret[SAVED_DIGEST_TEXT],
                        struct cove_err *e);
int __wrap_saver_digest(int fd, uint64_t *ret_bytes, char ret[SAVED_DIGEST_TEXT],
                        struct cove_err *e);

int __wrap_saver_digest(int fd, uint64_t *ret_bytes, char ret[SAVED_DIGEST_TEXT],
                        struct cove_err *e)
{
    int rc = __real_saver_digest(fd, ret_bytes, ret, e);

    if (disk == OTHER_BYTES)
        ret[0] = ret[0] == '0' ? '1' : '0';
    if (disk == CUT)
        --*ret_bytes;
    return rc;
}

static int enter_tree(void **state)
{
    static char top[] = "/tmp/cove-test-saver.XXXXXX";
    FILE *f;

    *state = mkdtemp(top);
    if (!*state || chdir(top) < 0 || mkdir("up", 0755) < 0 || mkdir("usr-up", 0755) < 0)
        return -1;
    f = fopen("up/file", "w");
    return f && fputs("precious\n", f) >= 0 && fclose(f) == 0 ? 0 : -1;
}

static int leave_tree(void **state)
{
    unlink("up/file");
    unlink("archive");
    rmdir("up");
    rmdir("usr-up");
    return chdir("/") < 0 ? -1 : rmdir(*state);
}

static int pack(struct saver_report *ret, struct cove_err *e)
{
    const struct saver_order order = { .work = SAVER_PACK_TREE, .max_bytes = 1 << 20 };
    int fd = open("archive", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), rc;

    assert_true(fd >= 0);
    rc = saver_pack(fd, &order, ret, e);
    close(fd);
    return rc;
}

static void an_archive_that_reads_as_it_was_written_is_a_success(void **state)
{
    struct saver_report report = { 0 };
    struct cove_err e = { 0 };

    (void)state;
    disk = AS_WRITTEN;
    assert_int_equal(pack(&report, &e), 0);
    assert_int_equal(report.entries, 3); /* root, root/file, usr */
    assert_int_equal(report.content_bytes, 9);
}

static void an_archive_that_reads_differently_is_a_failure(void **state)
{
    struct saver_report report = { 0 };

    (void)state;
    for (disk = OTHER_BYTES; disk <= CUT; disk++) {
        struct cove_err e = { 0 };

        assert_int_equal(pack(&report, &e), -1);
        assert_non_null(strstr(e.msg, "reads differently"));
        assert_int_equal(report.entries, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_archive_that_reads_as_it_was_written_is_a_success),
        cmocka_unit_test(an_archive_that_reads_differently_is_a_failure),
    };

    return cmocka_run_group_tests(tests, enter_tree, leave_tree);
}
