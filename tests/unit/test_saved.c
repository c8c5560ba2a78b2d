/* The record of a saved sandbox (sandbox/client/saved.c), and the table that workers find it in. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/buf.h"
#include "cove/saved.h"

static const char digest[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static struct saved_info example(void)
{
    struct saved_info s = {
        .box = { .state = BOX_SAVED,
                 .flags = BOX_OWN_PROJECT,
                 .dialect = 3,
                 .lifetime_ms = 300000,
                 .created_unix_ms = 1700000000123,
                 .id = "abcdefghij0123456789",
                 .tenant = "acme",
                 .project = "a project with blanks = and \"quotes\"",
                 .template = "base" },
        .report = { .entries = 7, .files = 3, .content_bytes = UINT64_MAX, .archive_bytes = 1234 },
        .saved_unix_ms = 1700000001000,
        .stored_bytes = 1300,
        .encrypted = true,
    };

    memcpy(s.report.digest, digest, sizeof(digest));
    memcpy(s.stored_digest, digest, sizeof(digest));
    return s;
}

static void a_record_reads_as_it_was_written(void **state)
{
    struct saved_info before = example(), after;
    AUTO_BUF struct buf text = BUF(8192);
    struct cove_err e;

    (void)state;
    saved_format(&before, &text);
    assert_int_equal(saved_parse(text.data, &after, &e), 0);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_string_equal(saved_archive_name(&after), "archive.tar.zst.age");
}

static void put(int dir, const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void a_seal_is_of_every_byte_of_every_note_and_of_the_secret(void **state)
{
    static const struct {
        const char *record, *attributes, *secret, *because;
    } others[] = {
        { "recorx", "attributes", "secret", "another record" },
        { "record", "attributex", "secret", "other attributes" },
        { "recorda", "ttributes", "secret", "a byte moved from one to the next" },
        { "record", "attributes", "secrex", "another secret" },
    };
    char path[] = "/tmp/cove-test-XXXXXX", seal[SAVED_DIGEST_TEXT], other[SAVED_DIGEST_TEXT];
    int dir = open(mkdtemp(path), O_RDONLY | O_DIRECTORY);

    (void)state;
    put(dir, SAVED_RECORD, "record");
    put(dir, SAVED_ATTRIBUTES, "attributes");
    assert_int_equal(saved_seal(dir, "secret", 6, seal, NULL), 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        put(dir, SAVED_RECORD, others[i].record);
        put(dir, SAVED_ATTRIBUTES, others[i].attributes);
        assert_int_equal(saved_seal(dir, others[i].secret, 6, other, NULL), 0);
        if (strcmp(seal, other) == 0)
            fail_msg("one seal for %s", others[i].because);
    }
    unlinkat(dir, SAVED_RECORD, 0);
    unlinkat(dir, SAVED_ATTRIBUTES, 0);
    close(dir);
    rmdir(path);
}

static void what_a_newer_version_added_is_passed_over(void **state)
{
    struct saved_info before = example(), after;
    AUTO_BUF struct buf text = BUF(8192);
    struct cove_err e;

    (void)state;
    saved_format(&before, &text);
    buf_add_str(&text, "somethingNew 12 and more\n");
    assert_int_equal(saved_parse(text.data, &after, &e), 0);
    assert_memory_equal(&before, &after, sizeof(before));
}

/* The beginning of a record, then one line more. */
static int parse_with(const char *head, const char *line)
{
    struct saved_info before = example(), after;
    AUTO_BUF struct buf text = BUF(8192);
    AUTO_BUF struct buf all = BUF(16384);
    struct cove_err e = { 0 };

    saved_format(&before, &text);
    buf_addf(&all, "%s%s%s\n", head, strchr(text.data, '\n') + 1, line);
    return saved_parse(all.data, &after, &e);
}

static void a_damaged_record_is_refused(void **state)
{
    static const struct {
        const char *head, *line;
        int want;
        const char *because;
    } cases[] = {
        { "cove-saved 1\n", "entries 8", 0, "a whole record; the last line of a name counts" },
        { "cove-saved 2\n", "entries 8", -1, "of another format" },
        { "", "entries 8", -1, "without its first line" },
        { "cove-saved 1\n", "entries", -1, "a name without a value" },
        { "cove-saved 1\n", "entries -1", -1, "not a number" },
        { "cove-saved 1\n", "dialect 4294967296", -1, "a number that does not fit" },
        { "cove-saved 1\n", "encrypted 2", -1, "neither yes nor no" },
        { "cove-saved 1\n", "id ../../etc", -1, "no id" },
        { "cove-saved 1\n", "tenant ", -1, "nobody's" },
        { "cove-saved 1\n", "archiveSha256 0123", -1, "no digest" },
        { "cove-saved 1\n", "storedSha256 0123", -1, "no digest of what is stored" },
        { "cove-saved 1\n",
          "id aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          -1, "longer than its field" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (parse_with(cases[i].head, cases[i].line) != cases[i].want)
            fail_msg("%s", cases[i].because);
}

static void the_manifest_is_json_without_secrets(void **state)
{
    struct saved_info s = example();
    AUTO_BUF struct buf text = BUF(8192);

    (void)state;
    saved_format_manifest(&s, &text);
    assert_non_null(
        strstr(text.data, "\"project\":\"a project with blanks = and \\\"quotes\\\"\""));
    assert_non_null(strstr(text.data, "\"encrypted\":true"));
    assert_non_null(strstr(text.data, "\"coveVersion\":\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_reads_as_it_was_written),
        cmocka_unit_test(a_seal_is_of_every_byte_of_every_note_and_of_the_secret),
        cmocka_unit_test(what_a_newer_version_added_is_passed_over),
        cmocka_unit_test(a_damaged_record_is_refused),
        cmocka_unit_test(the_manifest_is_json_without_secrets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
