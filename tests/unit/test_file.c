/* base/file.c: whole files, unix sockets, another user for one call. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/file.h"
#include "cove/mem.h"

static char dir[] = "/tmp/cove-test-file-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static const char *path_of(const char *name)
{
    static char path[300];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const char *bytes, size_t len)
{
    FILE *f = fopen(path_of(name), "w");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
}

static void a_file_is_read_whole_with_its_nuls(void **state)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;

    (void)state;
    write_file("a", "x\0y", 3);
    assert_int_equal(file_read(path_of("a"), 3, &text, &len, NULL), 0);
    assert_int_equal(len, 3);
    assert_memory_equal(text, "x\0y", 4);
}

static void a_file_above_the_limit_is_refused(void **state)
{
    char *text = NULL;
    size_t len = 7;
    struct cove_err e = { 0 };

    (void)state;
    write_file("b", "12345", 5);
    assert_int_equal(file_read(path_of("b"), 4, &text, &len, &e), -1);
    assert_null(text);
    assert_int_equal(len, 7);
    assert_int_equal(file_read(path_of("none"), 4, &text, &len, &e), -1);
    assert_int_equal(e.errnum, ENOENT);
}

static void a_socket_takes_the_place_of_an_old_one_and_is_closed_to_strangers(void **state)
{
    const char *path;
    struct stat st;
    int first, second, client, old_mask = umask(0);

    (void)state;
    path = path_of("sock");
    assert_int_equal(unix_listen(path, SOCK_SEQPACKET, 5, getgid(), &first, NULL), 0);
    assert_int_equal(unix_listen(path, SOCK_SEQPACKET, 5, getgid(), &second, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    client = unix_connect(path, SOCK_SEQPACKET);
    assert_true(client >= 0);
    assert_int_equal(send(client, "x", 1, 0), 1);
    close(accept(second, NULL, NULL));
    close(client);
    close(second);
    assert_int_equal(unix_connect(path, SOCK_SEQPACKET), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(first);
    umask((mode_t)old_mask);
}

static void a_path_that_is_too_long_for_a_socket_is_refused(void **state)
{
    char name[200];
    int sock;
    struct cove_err e = { 0 };

    (void)state;
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(unix_listen(path_of(name), SOCK_STREAM, 5, getgid(), &sock, &e), -1);
    assert_int_equal(e.errnum, ENAMETOOLONG);
    assert_int_equal(unix_connect(path_of(name), SOCK_STREAM), -1);
    assert_int_equal(errno, ENAMETOOLONG);
}

static void another_user_for_one_call_and_back(void **state)
{
    int bits = prctl(PR_GET_SECUREBITS);
    struct uid_loan loan;

    (void)state;
    if (getuid() != 0)
        skip();
    assert_int_equal(uid_borrow(12345, &loan), 0);
    assert_int_equal(geteuid(), 12345);
    errno = EXDEV;
    uid_give_back(&loan);
    assert_int_equal(errno, EXDEV);
    assert_int_equal(geteuid(), 0);
    assert_int_equal(prctl(PR_GET_SECUREBITS), bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole_with_its_nuls),
        cmocka_unit_test(a_file_above_the_limit_is_refused),
        cmocka_unit_test(a_socket_takes_the_place_of_an_old_one_and_is_closed_to_strangers),
        cmocka_unit_test(a_path_that_is_too_long_for_a_socket_is_refused),
        cmocka_unit_test(another_user_for_one_call_and_back),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
