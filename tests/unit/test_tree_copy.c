/* sandbox/box/tree_copy.c: one upper layer laid over another. */
#include <errno.h>
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
#include "sandbox/box/sweep.h"
#include "sandbox/box/tree_copy.h"

struct trees {
    char path[64];
    int top, below, above, to; /* two layers, and where they are laid */
};

static int make_dir(int parent, const char *name)
{
    assert_int_equal(mkdirat(parent, name, 0755), 0);
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int setup(void **state)
{
    struct trees *t = calloc(1, sizeof(*t));

    snprintf(t->path, sizeof(t->path), "/tmp/cove-tree-copy-XXXXXX");
    assert_non_null(mkdtemp(t->path));
    t->top = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    t->below = make_dir(t->top, "below");
    t->above = make_dir(t->top, "above");
    t->to = make_dir(t->top, "to");
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct trees *t = *state;

    cove_close(t->below);
    cove_close(t->above);
    cove_close(t->to);
    cove_close(t->top);
    sweep_tree(AT_FDCWD, t->path, NULL);
    free(t);
    return 0;
}

static void put(int dir, const char *path, const char *text)
{
    AUTO_CLOSE int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void assert_text(int dir, const char *path, const char *text)
{
    AUTO_CLOSE int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char got[64] = "";

    assert_true(fd >= 0);
    assert_true(read(fd, got, sizeof(got) - 1) >= 0);
    assert_string_equal(got, text);
}

static void whiteout(int dir, const char *name)
{
    assert_int_equal(mknodat(dir, name, S_IFCHR | 0600, 0), 0);
}

static bool is_whiteout(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode) &&
           st.st_rdev == 0;
}

static bool is_gone(int dir, const char *name)
{
    return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

static void set_opaque(int parent, const char *name)
{
    AUTO_CLOSE int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(fsetxattr(fd, "user.overlay.opaque", "y", 1, 0), 0);
}

static bool is_opaque(int parent, const char *name)
{
    AUTO_CLOSE int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char value[4];

    return fgetxattr(fd, "user.overlay.opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

static void lay(struct trees *t, int from, struct tree_copy *c)
{
    struct cove_err e = { 0 };

    if (tree_copy_over(from, t->to, c, &e) < 0)
        fail_msg("%s", e.msg);
}

static void lay_both(struct trees *t)
{
    struct tree_copy c = { 0 };

    lay(t, t->below, &c);
    lay(t, t->above, &c);
}

/* ------------------------------------------------------------------ */

static void files_come_with_modes_owners_times_links_and_holes(void **state)
{
    struct trees *t = *state;
    const struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };
    struct tree_copy c = { 0 };
    struct stat st, other;
    char target[32] = "";

    put(t->below, "f", "text");
    assert_int_equal(fchownat(t->below, "f", 1000, 33, 0), 0);
    assert_int_equal(fchmodat(t->below, "f", 06751, 0), 0);
    assert_int_equal(linkat(t->below, "f", t->below, "hard", 0), 0);
    assert_int_equal(symlinkat("/etc/shadow", t->below, "soft"), 0);
    assert_int_equal(mknodat(t->below, "pipe", S_IFIFO | 0604, 0), 0);
    put(t->below, "sparse", "");
    {
        AUTO_CLOSE int fd = openat(t->below, "sparse", O_WRONLY | O_CLOEXEC);

        assert_int_equal(pwrite(fd, "end", 3, 8 << 20), 3);
    }
    assert_int_equal(utimensat(t->below, "f", times, 0), 0);
    lay(t, t->below, &c);
    assert_text(t->to, "f", "text");
    assert_int_equal(fstatat(t->to, "f", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 06751);
    assert_int_equal(st.st_uid, 1000);
    assert_int_equal(st.st_gid, 33);
    assert_int_equal(st.st_mtim.tv_sec, 2000);
    assert_int_equal(fstatat(t->to, "hard", &other, 0), 0);
    assert_int_equal(st.st_ino, other.st_ino);
    assert_true(readlinkat(t->to, "soft", target, sizeof(target) - 1) > 0);
    assert_string_equal(target, "/etc/shadow");
    assert_int_equal(fstatat(t->to, "pipe", &st, 0), 0);
    assert_true(S_ISFIFO(st.st_mode) && (st.st_mode & 0777) == 0604);
    assert_int_equal(fstatat(t->to, "sparse", &st, 0), 0);
    assert_int_equal(st.st_size, (8 << 20) + 3);
    assert_true(st.st_blocks * 512 < 1 << 20);
}

struct acl { /* as the kernel shows it; no padding */
    uint32_t version;
    struct {
        uint16_t tag, perm;
        uint32_t id;
    } entries[5];
};

static void acls_come_with_the_ids_of_the_copy(void **state)
{
    struct trees *t = *state;
    const uint32_t none = UINT32_MAX;
    struct acl acl = {
        2, { { 1, 6, none }, { 2, 4, 71000 }, { 4, 4, none }, { 16, 4, none }, { 32, 0, none } }
    };
    struct tree_copy c = { .id_shift = 70000 };
    struct acl copied = { 0 };
    AUTO_CLOSE int from = -1;
    AUTO_CLOSE int to = -1;

    put(t->below, "f", "text");
    from = openat(t->below, "f", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fchown(from, 70000, 70000), 0);
    if (fsetxattr(from, "system.posix_acl_access", &acl, sizeof(acl), 0) < 0)
        skip(); /* a file system without ACLs */
    lay(t, t->below, &c);
    to = openat(t->to, "f", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fgetxattr(to, "system.posix_acl_access", &copied, sizeof(copied)),
                     sizeof(acl));
    acl.entries[1].id = 1000;
    assert_memory_equal(&copied, &acl, sizeof(acl));
}

static void a_whiteout_replaces_what_lies_below_and_stays(void **state)
{
    struct trees *t = *state;

    put(t->below, "file", "x");
    cove_close(make_dir(t->below, "dir"));
    put(t->below, "dir/x", "x");
    whiteout(t->below, "back");
    whiteout(t->above, "file");
    whiteout(t->above, "dir");
    whiteout(t->above, "never");
    put(t->above, "back", "again");
    lay_both(t);
    assert_true(is_whiteout(t->to, "file") && is_whiteout(t->to, "dir") &&
                is_whiteout(t->to, "never"));
    assert_text(t->to, "back", "again");
}

static void directories_are_merged_unless_the_upper_one_is_opaque(void **state)
{
    struct trees *t = *state;

    for (int i = 0; i < 2; i++) {
        const char *name = i ? "opaque" : "merged";
        char path[32];

        cove_close(make_dir(t->below, name));
        cove_close(make_dir(t->above, name));
        snprintf(path, sizeof(path), "%s/old", name);
        put(t->below, path, "old");
        snprintf(path, sizeof(path), "%s/new", name);
        put(t->above, path, "new");
    }
    set_opaque(t->above, "opaque");
    lay_both(t);
    assert_text(t->to, "merged/old", "old");
    assert_text(t->to, "merged/new", "new");
    assert_false(is_opaque(t->to, "merged"));
    assert_true(is_gone(t->to, "opaque/old"));
    assert_text(t->to, "opaque/new", "new");
    assert_true(is_opaque(t->to, "opaque"));
}

/* The template below may have a directory of that name: a directory that came after a file or after a
 * deletion does not show what is in it. */
static void a_directory_over_a_file_or_whiteout_hides_what_lies_below(void **state)
{
    struct trees *t = *state;

    put(t->below, "was-file", "x");
    whiteout(t->below, "was-gone");
    cove_close(make_dir(t->above, "was-file"));
    cove_close(make_dir(t->above, "was-gone"));
    lay_both(t);
    assert_true(is_opaque(t->to, "was-file") && is_opaque(t->to, "was-gone"));
}

static void an_opaque_directory_below_stays_opaque(void **state)
{
    struct trees *t = *state;

    cove_close(make_dir(t->below, "d"));
    set_opaque(t->below, "d");
    cove_close(make_dir(t->above, "d"));
    put(t->above, "d/new", "new");
    lay_both(t);
    assert_true(is_opaque(t->to, "d"));
    assert_text(t->to, "d/new", "new");
}

/* An overlay would show it there. */
static void no_whiteout_is_left_where_nothing_can_lie_below(void **state)
{
    struct trees *t = *state;
    struct tree_copy lowest = { .is_lowest = true };

    cove_close(make_dir(t->below, "d"));
    set_opaque(t->below, "d");
    put(t->below, "d/gone", "x");
    put(t->below, "gone", "x");
    cove_close(make_dir(t->above, "d"));
    whiteout(t->above, "d/gone");
    whiteout(t->above, "gone");
    lay_both(t);
    assert_int_equal(faccessat(t->to, "d/gone", F_OK, AT_SYMLINK_NOFOLLOW), -1);
    assert_int_equal(faccessat(t->to, "gone", F_OK, AT_SYMLINK_NOFOLLOW), 0);
    lay(t, t->above, &lowest);
    assert_int_equal(faccessat(t->to, "gone", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

static void a_link_below_is_replaced_and_not_followed(void **state)
{
    struct trees *t = *state;
    char outside[96];

    snprintf(outside, sizeof(outside), "%s/outside", t->path);
    cove_close(make_dir(t->top, "outside"));
    assert_int_equal(symlinkat(outside, t->below, "dir"), 0);
    assert_int_equal(symlinkat(outside, t->below, "file"), 0);
    cove_close(make_dir(t->above, "dir"));
    put(t->above, "dir/evil", "x");
    put(t->above, "file", "x");
    lay_both(t);
    assert_text(t->to, "dir/evil", "x");
    assert_text(t->to, "file", "x");
    assert_true(is_gone(t->top, "outside/evil"));
}

static void owners_of_the_host_become_those_inside(void **state)
{
    struct trees *t = *state;
    struct tree_copy c = { .id_shift = 500000 };
    struct stat st;

    put(t->below, "f", "x");
    assert_int_equal(fchownat(t->below, "f", 501000, 500000, 0), 0);
    lay(t, t->below, &c);
    assert_int_equal(fstatat(t->to, "f", &st, 0), 0);
    assert_int_equal(st.st_uid, 1000);
    assert_int_equal(st.st_gid, 0);
}

static void too_many_bytes_and_too_deep_a_tree_are_refused(void **state)
{
    struct trees *t = *state;
    struct tree_copy c = { .bytes_most = 4096 };
    struct cove_err e = { 0 };
    char block[16384];
    int dir;

    memset(block, 'x', sizeof(block));
    block[sizeof(block) - 1] = '\0';
    put(t->below, "big", block);
    assert_int_equal(tree_copy_over(t->below, t->to, &c, &e), -1);
    assert_int_equal(e.code, COVE_LIMIT);
    dir = fcntl(t->above, F_DUPFD_CLOEXEC, 0);
    for (int i = 0; i < 1200; i++) {
        int deeper = make_dir(dir, "d");

        close(dir);
        dir = deeper;
    }
    close(dir);
    c = (struct tree_copy){ 0 };
    assert_int_equal(tree_copy_over(t->above, t->to, &c, &e), -1);
    assert_int_equal(e.code, COVE_LIMIT);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(files_come_with_modes_owners_times_links_and_holes),
        T(acls_come_with_the_ids_of_the_copy),
        T(a_whiteout_replaces_what_lies_below_and_stays),
        T(directories_are_merged_unless_the_upper_one_is_opaque),
        T(a_directory_over_a_file_or_whiteout_hides_what_lies_below),
        T(an_opaque_directory_below_stays_opaque),
        T(no_whiteout_is_left_where_nothing_can_lie_below),
        T(a_link_below_is_replaced_and_not_followed),
        T(owners_of_the_host_become_those_inside),
        T(too_many_bytes_and_too_deep_a_tree_are_refused),
    };

    setrlimit(RLIMIT_NOFILE,
              &(struct rlimit){ 4096, 4096 }); /* three a directory, as the keeper has */
    if (geteuid() != 0) {
        fputs("skipped: owners and whiteouts need root\n", stderr);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
