/* Packing a tree (helpers/saver/pack.c): what it does when the disk does not give back what was written. */
#include <fcntl.h>
#include <limits.h>
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
static int archive;

int __real_read_back_end(struct read_back *r, uint64_t written, char ret[SAVED_DIGEST_TEXT],
                         struct cove_err *e);
int __wrap_read_back_end(struct read_back *r, uint64_t written, char ret[SAVED_DIGEST_TEXT],
                         struct cove_err *e);

int __wrap_read_back_end(struct read_back *r, uint64_t written, char ret[SAVED_DIGEST_TEXT],
                         struct cove_err *e)
{
    const off_t at = (off_t)written / 2;

    if (disk == OTHER_BYTES)
        assert_int_equal(pwrite(archive, "?", 1, at), 1);
    if (disk == CUT)
        assert_int_equal(ftruncate(archive, (off_t)written - 1), 0);
    return __real_read_back_end(r, written, ret, e);
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
    int rc;

    archive = open("archive", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(archive >= 0);
    rc = saver_pack(archive, &order, ret, e);
    close(archive);
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

/* The digest of what was written, and of what is read back behind it; block `bad` goes bad on the disk. */
static void write_blocks(unsigned bad, char ret_written[SAVED_DIGEST_TEXT],
                         char ret_read[SAVED_DIGEST_TEXT])
{
    enum { BLOCK = 1 << 20, BLOCKS = 20 };
    static char block[BLOCK];
    struct cove_err e = { 0 };
    struct read_back *back = NULL;
    struct sha sha;

    disk = AS_WRITTEN;
    archive = open("archive", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(archive >= 0);
    sha_init(&sha);
    assert_int_equal(read_back_new(archive, &back, &e), 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        memset(block, (int)i + 1, sizeof(block));
        assert_int_equal(write(archive, block, sizeof(block)), sizeof(block));
        if (i == bad)
            assert_int_equal(pwrite(archive, "?", 1, (off_t)i * BLOCK + 5), 1);
        sha_add(&sha, block, sizeof(block));
        read_back_tell(back, sha.bytes);
    }
    assert_int_equal(read_back_end(back, sha.bytes, ret_read, &e), 0);
    sha_end(&sha, ret_written);
    read_back_free(back);
    close(archive);
}

static void a_large_archive_is_read_back_behind_its_writer(void **state)
{
    char written[SAVED_DIGEST_TEXT], back[SAVED_DIGEST_TEXT];

    (void)state;
    write_blocks(UINT_MAX, written, back);
    assert_string_equal(written, back);
    for (unsigned bad = 0; bad < 20; bad += 9) { /* at the beginning, in the middle, near the end */
        write_blocks(bad, written, back);
        assert_string_not_equal(written, back);
    }
}

static void an_archive_that_is_given_up_is_not_waited_for(void **state)
{
    struct read_back *back = NULL;
    struct cove_err e = { 0 };

    (void)state;
    archive = open("archive", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(archive, 64 << 20), 0);
    assert_int_equal(read_back_new(archive, &back, &e), 0);
    read_back_tell(back, 9 << 20); /* a thread reads the first chunk */
    read_back_free(back);
    close(archive);
}

/* ------------------------------------------------------------------ there and back */

enum { DEPTH = 30, NAME_BYTES = 200 }; /* a path of 6,000 bytes, which no system call takes */

static void name_level(int level, char ret[NAME_BYTES + 1])
{
    memset(ret, 'a' + level % 26, NAME_BYTES);
    ret[NAME_BYTES] = '\0';
}

static struct timespec time_of_level(int level)
{
    return (struct timespec){ 1000000000 + level, 100 + level };
}

static mode_t mode_of_level(int level)
{
    return level % 2 ? 0700 : 0750;
}

static int open_level(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static void make_chain(int dir, int level)
{
    const struct timespec times[2] = { time_of_level(level), time_of_level(level) };
    char name[NAME_BYTES + 1];
    int own;

    if (level == DEPTH)
        return;
    name_level(level, name);
    assert_int_equal(mkdirat(dir, name, 0755), 0);
    own = open_level(dir, name);
    make_chain(own, level + 1);
    assert_int_equal(fchmod(own, mode_of_level(level)), 0);
    assert_int_equal(futimens(own, times), 0);
    close(own);
}

static void check_and_remove_chain(int dir, int level)
{
    char name[NAME_BYTES + 1];
    struct stat st;
    int own;

    if (level == DEPTH)
        return;
    name_level(level, name);
    own = open_level(dir, name);
    assert_int_equal(fstat(own, &st), 0);
    assert_int_equal(st.st_mode & 07777, mode_of_level(level));
    assert_int_equal(st.st_mtim.tv_sec, time_of_level(level).tv_sec);
    assert_int_equal(st.st_mtim.tv_nsec, time_of_level(level).tv_nsec);
    check_and_remove_chain(own, level + 1);
    close(own);
    assert_int_equal(unlinkat(dir, name, AT_REMOVEDIR), 0);
}

static void directories_below_the_longest_path_come_back_with_mode_and_times(void **state)
{
    struct saver_order order = { .work = SAVER_UNPACK_TREE };
    struct saver_report report = { 0 };
    struct cove_err e = { 0 };
    int up = open("up", O_RDONLY | O_DIRECTORY | O_CLOEXEC), in;

    (void)state;
    disk = AS_WRITTEN;
    make_chain(up, 0);
    assert_int_equal(pack(&report, &e), 0);
    order.expect = report;
    in = open("archive", O_RDONLY | O_CLOEXEC);
    assert_true(in >= 0 && mkdir("back", 0755) == 0 && chdir("back") == 0);
    if (saver_unpack(in, &order, &report, &e) < 0)
        fail_msg("%s", e.msg);
    close(in);
    in = open("up", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check_and_remove_chain(in, 0);
    close(in);
    check_and_remove_chain(up, 0);
    close(up);
    assert_int_equal(unlink("up/file"), 0);
    assert_true(rmdir("up") == 0 && rmdir("usr-up") == 0 && chdir("..") == 0 && rmdir("back") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_archive_that_reads_as_it_was_written_is_a_success),
        cmocka_unit_test(an_archive_that_reads_differently_is_a_failure),
        cmocka_unit_test(a_large_archive_is_read_back_behind_its_writer),
        cmocka_unit_test(an_archive_that_is_given_up_is_not_waited_for),
        cmocka_unit_test(directories_below_the_longest_path_come_back_with_mode_and_times),
    };

    return cmocka_run_group_tests(tests, enter_tree, leave_tree);
}
