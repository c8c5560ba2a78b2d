/* sandbox/box/unpack.c: archives that have no end or too much of something, and whiteouts. What else they may hold is in tests/system/test_template.py. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
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

/* ------------------------------------------------------------------ whiteouts beside what they name */

enum { MEMBERS_MAX = 6 };

static void add_member(struct archive *a, const char *name)
{
    struct archive_entry *entry = archive_entry_new();
    bool is_dir = name[strlen(name) - 1] == '/', is_link = strchr(name, '>'),
         is_device = strchr(name, '!');
    char path[64];

    snprintf(path, sizeof(path), "%.*s", (int)strcspn(name, ">!"), name);
    archive_entry_set_pathname(entry, path);
    archive_entry_set_filetype(entry, is_dir      ? AE_IFDIR
                                      : is_link   ? AE_IFLNK
                                      : is_device ? AE_IFCHR
                                                  : AE_IFREG);
    if (is_link)
        archive_entry_set_symlink(entry, strchr(name, '>') + 1);
    archive_entry_set_perm(entry, 0755);
    archive_entry_set_uid(entry, getuid());
    archive_entry_set_gid(entry, getgid());
    archive_write_header(a, entry);
    archive_entry_free(entry);
}

/* Unpacks an archive of these members: "d/" is a directory, "l>t" a link to t, "c!" the device 0:0, all else a file. */
static int unpack_these(const char *const *names, struct cove_err *e)
{
    const struct layer_limits limits = { 1 << 20, 100 };
    struct archive *a = archive_write_new();
    int fds[2], rc;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    archive_write_set_format_gnutar(a);
    archive_write_open_fd(a, fds[1]);
    for (; *names; names++)
        add_member(a, *names);
    archive_write_free(a); /* all of it fits into the pipe */
    close(fds[1]);
    rc = unpack_archive(fds[0], &limits, e);
    close(fds[0]);
    return rc;
}

static bool is_opaque(const char *dir)
{
    char value[8];

    return lgetxattr(dir, "user.overlay.opaque", value, sizeof(value)) == 1;
}

/* What stands at a path: 'd'irectory, 'o'paque directory, 'f'ile, 'l'ink, 'w'hiteout, '-' nothing */
static char kind_of(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return '-';
    if (S_ISDIR(st.st_mode))
        return is_opaque(path) ? 'o' : 'd';
    return S_ISLNK(st.st_mode) ? 'l' : S_ISCHR(st.st_mode) && st.st_rdev == 0 ? 'w' : 'f';
}

static const struct {
    const char *members[MEMBERS_MAX];
    struct {
        const char *path;
        char kind;
    } expect[3];
    const char *because;
} beside[] = {
    { { ".wh.foo", "foo/", "foo/new" },
      { { "foo", 'o' }, { "foo/new", 'f' } },
      "a directory in the place of one that is gone is new" },
    { { "foo/", "foo/new", ".wh.foo" }, { { "foo", 'o' }, { "foo/new", 'f' } }, "in either order" },
    { { "foo/", ".wh.foo", "foo/new" }, { { "foo", 'o' }, { "foo/new", 'f' } }, "or in between" },
    { { ".wh.foo", "foo/new" },
      { { "foo", 'o' }, { "foo/new", 'f' } },
      "also without a member for the directory" },
    { { "foo/new", ".wh.foo" }, { { "foo", 'o' }, { "foo/new", 'f' } }, "in either order" },
    { { ".wh.foo", "foo/new", "foo/" },
      { { "foo", 'o' }, { "foo/new", 'f' } },
      "also if the directory comes last" },
    { { "d/.wh.foo", "d/foo/bar/new" },
      { { "d", 'd' }, { "d/foo", 'o' }, { "d/foo/bar/new", 'f' } },
      "also further down" },
    { { ".wh.foo", "foo" }, { { "foo", 'f' } }, "a new file hides the old one anyway" },
    { { "foo", ".wh.foo" }, { { "foo", 'f' } }, "in either order" },
    { { ".wh.foo", "foo>bar" }, { { "foo", 'l' } }, "a new link does" },
    { { "foo>bar", ".wh.foo" }, { { "foo", 'l' } }, "in either order" },
    { { "foo!", "foo/", "foo/new" },
      { { "foo", 'o' }, { "foo/new", 'f' } },
      "overlayfs's spelling" },
    { { "foo/", "foo/new", "foo!" }, { { "foo", 'o' }, { "foo/new", 'f' } }, "in either order" },
    { { ".wh.foo", "foo/.wh..wh..opq", "foo/new" },
      { { "foo", 'o' }, { "foo/new", 'f' } },
      "gone, and opaque" },
    { { "foo/.wh..wh..opq", ".wh.foo" }, { { "foo", 'o' } }, "in either order" },
    { { ".wh.foo", "foo/.wh.old", "foo/new" },
      { { "foo", 'o' }, { "foo/old", '-' }, { "foo/new", 'f' } },
      "an opaque directory needs no whiteouts, and would show them" },
    { { "foo/.wh.old", "foo/bar/.wh.old", "foo/.wh..wh..opq" },
      { { "foo", 'o' }, { "foo/old", '-' }, { "foo/bar/old", '-' } },
      "in either order" },
    { { "foo/", "foo/.wh.old" }, { { "foo", 'd' }, { "foo/old", 'w' } }, "other directories do" },
    { { "foo>bar", "foo/.wh.old", "bar/new" },
      { { "foo", 'l' }, { "bar/old", '-' }, { "bar/new", 'f' } },
      "a whiteout is never made through a link" },
    { { "foo>bar", "foo/sub/new" }, { { "foo/sub/new", 'f' } }, "nor is any other member" },
};

static void a_whiteout_hides_what_lies_below_and_nothing_of_its_own_layer(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
        struct cove_err err = { 0 };

        assert_int_equal(mkdir("layer", 0755), 0);
        assert_int_equal(chdir("layer"), 0);
        if (unpack_these(beside[i].members, &err) < 0)
            fail_msg("%zu: %s: %s", i, beside[i].because, err.msg);
        for (size_t k = 0; k < 3 && beside[i].expect[k].path; k++)
            if (kind_of(beside[i].expect[k].path) != beside[i].expect[k].kind)
                fail_msg("%zu: %s: %s is '%c'", i, beside[i].because, beside[i].expect[k].path,
                         kind_of(beside[i].expect[k].path));
        assert_int_equal(chdir(".."), 0);
        assert_int_equal(sweep_tree(AT_FDCWD, "layer", NULL), 0);
    }
}

static bool is_implied(const char *dir)
{
    char value[8];
    struct stat st;

    assert_int_equal(lstat(dir, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0755);
    return lgetxattr(dir, LAYER_IMPLIED, value, sizeof(value)) > 0;
}

static void a_directory_that_is_no_member_is_marked(void **state)
{
    struct cove_err err = { 0 };

    (void)state;
    assert_int_equal(
        unpack_these((const char *const[]){ "a/b/x", "given/", "given/x", "late/x", "late/", NULL },
                     &err),
        0);
    assert_true(is_implied("a"));
    assert_true(is_implied("a/b"));
    assert_false(is_implied("given"));
    assert_false(is_implied("late"));
    assert_int_equal(
        unpack_these((const char *const[]){ "emptied/.wh..wh..opq", "emptied/x", ".wh.new", "new/x",
                                            "fresh/x", ".wh.fresh", NULL },
                     &err),
        0);
    assert_true(
        is_implied("emptied")); /* its content is gone, the directory is that of the layers below */
    assert_false(is_implied("new"));
    assert_false(is_implied("fresh"));
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
        cmocka_unit_test_setup_teardown(
            a_whiteout_hides_what_lies_below_and_nothing_of_its_own_layer, enter, leave),
        cmocka_unit_test_setup_teardown(a_directory_that_is_no_member_is_marked, enter, leave),
    };

    alarm(60); /* a limit that does not hold would have no end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
