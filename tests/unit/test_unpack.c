/* sandbox/box/unpack.c: archives that have no end, or too much of something. What else they may hold is in tests/system/test_template.py. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "sandbox/box/layer.h"
#include "sandbox/box/sweep.h"

static const char content[1000];

/* A name that ends with '#' has the member's number there. */
static void name_member(const char *name, unsigned number, char out[64])
{
    size_t len = strcspn(name, "#");

    if (name[len])
        snprintf(out, 64, "%.*s%u", (int)len, name, number);
    else
        snprintf(out, 64, "%s", name);
}

/* Members of this kind until the reader has gone or there are `count`. */
static void write_members(int out, const char *name, unsigned kind, unsigned count)
{
    struct archive *a = archive_write_new();

    signal(SIGPIPE, SIG_DFL);
    archive_write_set_format_gnutar(a);
    archive_write_open_fd(a, out);
    for (unsigned i = 0; i < count; i++) {
        struct archive_entry *entry = archive_entry_new();
        char path[64];

        name_member(name, i, path);
        archive_entry_set_pathname(entry, path);
        archive_entry_set_filetype(entry, kind);
        archive_entry_set_perm(entry, 0755);
        archive_entry_set_uid(entry, getuid());
        archive_entry_set_gid(entry, getgid());
        archive_entry_set_size(entry, kind == AE_IFREG ? sizeof(content) : 0);
        archive_write_header(a, entry);
        if (kind == AE_IFREG)
            archive_write_data(a, content, sizeof(content));
        archive_entry_free(entry);
    }
    archive_write_close(a);
    _exit(0);
}

static int unpack(const char *name, unsigned kind, unsigned count,
                  const struct layer_limits *limits, struct cove_err *e)
{
    int fds[2], rc;
    pid_t pid;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        write_members(fds[1], name, kind, count);
    }
    close(fds[1]);
    rc = unpack_archive(fds[0], limits, e);
    close(fds[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return rc;
}

static const struct {
    const char *name;
    unsigned kind;
    struct layer_limits limits;
    const char *says, *because;
} endless[] = {
    { "f#", AE_IFREG, { 100000, 1 << 20 }, "more than 100000 bytes", "many small files are much" },
    { "f", AE_IFREG, { 100000, 1 << 20 }, "more than 100000 bytes", "replacing each other, too" },
    { ".wh.f%u",
      AE_IFREG,
      { 100000, 1 << 20 },
      "more than 100000 bytes",
      "what is skipped is read" },
    { "f#", AE_IFREG, { 1 << 30, 50 }, "more than 50 files", "files are counted" },
    { "d#", AE_IFDIR, { 1 << 30, 50 }, "more than 50 files", "folders are" },
    { "d", AE_IFDIR, { 1 << 30, 50 }, "more than 50 files", "one folder again and again is" },
    { ".wh.f#", AE_IFLNK, { 1 << 30, 50 }, "more than 50 files", "whiteouts are" },
    { "b#", AE_IFBLK, { 1 << 30, 50 }, "more than 50 files", "devices that are left out are" },
};

static void an_archive_without_end_is_refused_at_its_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(endless); i++) {
        struct cove_err err = { 0 };

        assert_int_equal(
            unpack(endless[i].name, endless[i].kind, UINT32_MAX, &endless[i].limits, &err), -1);
        if (err.code != COVE_TOO_LARGE || !strstr(err.msg, endless[i].says))
            fail_msg("%s: %s", endless[i].because, err.msg);
    }
}

static void an_archive_within_its_limits_is_unpacked(void **state)
{
    const struct layer_limits limits = { 50 * sizeof(content), 50 };
    struct cove_err err = { 0 };
    struct stat st;

    (void)state;
    assert_int_equal(unpack("whole/f#", AE_IFREG, 50, &limits, &err), 0);
    assert_int_equal(stat("whole/f49", &st), 0);
    assert_int_equal(st.st_size, sizeof(content));
}

/* unpack.c writes into the current directory, so each test gets a new one. */
static char here[64];

static int enter(void **state)
{
    (void)state;
    snprintf(here, sizeof(here), "/tmp/cove-unpack-XXXXXX");
    return mkdtemp(here) && chdir(here) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    return chdir("/") == 0 && sweep_tree(AT_FDCWD, here, NULL) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_archive_without_end_is_refused_at_its_limit, enter,
                                        leave),
        cmocka_unit_test_setup_teardown(an_archive_within_its_limits_is_unpacked, enter, leave),
    };

    alarm(60); /* a limit that does not hold would have no end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
