/* policy/audit/audit.c: the log that shows tampering. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/audit.h"
#include "cove/mem.h"
#include "policy/audit/audit_private.h"

struct folder {
    char dir[32], log[48];
};

static int setup(void **state)
{
    struct folder *f = calloc(1, sizeof(*f));

    strcpy(f->dir, "/tmp/cove-audit-XXXXXX");
    if (!mkdtemp(f->dir))
        return -1;
    snprintf(f->log, sizeof(f->log), "%s/audit.log", f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct folder *f = *state;
    char command[64];
    int r;

    snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
    r = system(command);
    free(f);
    return r;
}

static struct audit *open_log(const char *path, uint64_t max_bytes, unsigned keep)
{
    struct audit_options options = { .max_bytes = max_bytes, .keep = keep };
    struct cove_err e = { 0 };
    struct audit *a = NULL;

    if (audit_open(path, &options, &a, &e) < 0)
        fail_msg("%s", e.msg);
    return a;
}

static void append(struct audit *a, const char *command)
{
    struct audit_entry entry = { .event = "refused",
                                 .dialect = "execute",
                                 .tenant = "acme",
                                 .rule = "rm-rf",
                                 .command = command,
                                 .command_len = strlen(command) };
    struct cove_err e = { 0 };

    if (audit_append(a, &entry, &e) < 0)
        fail_msg("%s", e.msg);
}

static struct audit_report verify(const char *path)
{
    struct audit_report report;
    struct cove_err e = { 0 };

    if (audit_verify(path, &report, &e) < 0)
        fail_msg("%s", e.msg);
    return report;
}

static void assert_whole(const char *path, uint64_t lines)
{
    struct audit_report r = verify(path);

    if (r.broken_file[0])
        fail_msg("%s:%lu: %s", r.broken_file, (unsigned long)r.broken_line, r.what);
    assert_int_equal(r.lines, lines);
}

static char *read_whole(const char *path, size_t *ret_len)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);

    assert_non_null(f);
    *ret_len = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}

static void write_whole(const char *path, const char *text, size_t len)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
}

static void lines_are_chained(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_log(f->log, 0, 0);
    AUTO_FREE char *text = NULL;
    size_t len;

    append(a, "rm -rf /");
    append(a, "with \"quotes\", \n newlines and \xff bytes");
    audit_close(a);
    a = open_log(f->log, 0, 0); /* another day */
    append(a, "rm -rf ~");
    audit_close(a);
    assert_whole(f->log, 3);
    text = read_whole(f->log, &len);
    assert_non_null(strstr(text, "{\"seq\":1,\"time\":\"20"));
    assert_non_null(strstr(text,
                           "\"event\":\"refused\",\"dialect\":\"execute\",\"tenant\":\"acme\","
                           "\"rule\":\"rm-rf\",\"command\":\"rm -rf /\",\"prev\":\"0000"));
}

/* --- tampering ------------------------------------------------------------------------------- */

static char *line_at(char *text, int n)
{
    while (--n > 0)
        text = strchr(text, '\n') + 1;
    return text;
}

static void change_a_byte(char *text, size_t *len)
{
    (void)len;
    strstr(line_at(text, 3), "acme")[0] = 'A';
}

static void remove_a_line(char *text, size_t *len)
{
    char *from = line_at(text, 3), *to = line_at(text, 4);

    memmove(from, to, *len - (size_t)(to - text));
    *len -= (size_t)(to - from);
}

static void swap_two_lines(char *text, size_t *len)
{
    char *a = line_at(text, 2), *b = line_at(text, 3), *c = line_at(text, 4);
    AUTO_FREE char *copy = strndup(a, (size_t)(b - a));

    (void)len;
    memmove(a, b, (size_t)(c - b));
    memcpy(a + (c - b), copy, (size_t)(b - a));
}

static void remove_the_first_line(char *text, size_t *len)
{
    char *to = line_at(text, 2);

    *len -= (size_t)(to - text);
    memmove(text, to, *len);
}

static void repeat_a_line(char *text, size_t *len)
{
    char *a = line_at(text, 2), *b = line_at(text, 3);

    memmove(b + (b - a), b, *len - (size_t)(b - text));
    memcpy(b, a, (size_t)(b - a));
    *len += (size_t)(b - a);
}

static void insert_garbage(char *text, size_t *len)
{
    char *a = line_at(text, 4);

    memmove(a + 4, a, *len - (size_t)(a - text));
    memcpy(a, "{}\n\n", 4);
    *len += 4;
}

static void cut_the_end_off(char *text, size_t *len)
{
    (void)text;
    *len -= 5;
}

/* Whoever knows how lines are made can sign one of their own; it still has to fit in. */
static void renumber_and_sign_again(char *text, size_t *len)
{
    char *line = line_at(text, 5), *end = text + *len - 1, hash[AUDIT_HASH_LEN + 1];

    strstr(line, "\"seq\":5")[6] = '7';
    assert_int_equal(audit_hash(line, (size_t)(end - line) - AUDIT_TAIL_LEN, hash), 0);
    memcpy(end - 2 - AUDIT_HASH_LEN, hash, AUDIT_HASH_LEN);
}

static const struct {
    void (*tamper)(char *text, size_t *len);
    uint64_t line;
    const char *what;
} tampers[] = {
    { change_a_byte, 3, "the line was changed" },
    { remove_a_line, 3, "a line before this one is missing" },
    { swap_two_lines, 2, "a line before this one is missing" },
    { remove_the_first_line, 1, "this is not the beginning" },
    { repeat_a_line, 3, "a line before this one is missing" },
    { insert_garbage, 4, "the line was changed" },
    { cut_the_end_off, 5, "the line has no end" },
    { renumber_and_sign_again, 5, "its number does not follow" },
};

static void the_first_broken_line_is_found(void **state)
{
    struct folder *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(tampers); i++) {
        struct audit *a = open_log(f->log, 0, 0);
        AUTO_FREE char *text = NULL;
        struct audit_report r;
        size_t len;

        for (int k = 0; k < 5; k++)
            append(a, "rm -rf /");
        audit_close(a);
        text = read_whole(f->log, &len);
        tampers[i].tamper(text, &len);
        write_whole(f->log, text, len);
        r = verify(f->log);
        if (r.broken_line != tampers[i].line ||
            strncmp(r.what, tampers[i].what, strlen(tampers[i].what)) != 0)
            fail_msg("row %zu: line %lu: '%s'", i, (unsigned long)r.broken_line, r.what);
        assert_int_equal(r.lines, tampers[i].line - 1);
        unlink(f->log);
    }
}

/* --- crashes, full disks, rotation ----------------------------------------------------------- */

static void a_torn_line_is_cut_off_and_noted(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_log(f->log, 0, 0);
    AUTO_FREE char *text = NULL;
    FILE *file;
    size_t len;

    append(a, "one");
    audit_close(a);
    file = fopen(f->log, "a");
    fputs("{\"seq\":2,\"ti", file);
    fclose(file);
    assert_int_equal(verify(f->log).broken_line, 2);
    a = open_log(f->log, 0, 0);
    append(a, "two");
    append(a, "three");
    audit_close(a);
    assert_whole(f->log, 3);
    text = read_whole(f->log, &len);
    assert_non_null(strstr(line_at(text, 2), ",\"torn_bytes\":12,"));
    assert_null(strstr(line_at(text, 3), "torn_bytes"));
}

static void a_log_with_a_forged_end_is_not_continued(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_log(f->log, 0, 0);
    struct cove_err e = { 0 };

    append(a, "one");
    audit_close(a);
    write_whole(f->log, "{\"seq\":1}\n", 10);
    assert_int_equal(audit_open(f->log, NULL, &a, &e), -1);
    assert_int_equal(e.code, COVE_CONFLICT);
}

static void a_full_disk_is_an_error_and_the_chain_stays(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_log(f->log, 0, 0);
    struct rlimit before, small;
    struct audit_entry entry = { .event = "refused", .command = "x", .command_len = 1 };
    struct cove_err e = { 0 };
    struct stat st;

    append(a, "one");
    assert_int_equal(stat(f->log, &st), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = (rlim_t)st.st_size + 50; /* part of the line fits, as on a full disk */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(audit_append(a, &entry, &e), -1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(e.code, COVE_LIMIT);
    assert_whole(f->log, 1);
    append(a, "two");
    audit_close(a);
    assert_whole(f->log, 2);
}

static void rotation_carries_the_chain_on(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_log(f->log, 2000, 0);
    struct audit_report r;
    char name[64];
    AUTO_FREE char *text = NULL;
    size_t len;

    for (int i = 0; i < 50; i++)
        append(a, "rm -rf /");
    audit_close(a);
    r = verify(f->log);
    assert_int_equal(r.lines, 50);
    assert_true(r.files > 3);
    text = read_whole(f->log, &len);
    assert_non_null(strstr(text, "\"continues\":\"audit.log.0000"));

    snprintf(name, sizeof(name), "%s.000002", f->log);
    assert_int_equal(unlink(name), 0);
    r = verify(f->log);
    assert_string_equal(r.broken_file, name);
    assert_string_equal(r.what, "this file is missing");
}

static void old_files_go_and_the_rest_still_verifies(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_log(f->log, 1000, 2);
    struct audit_report r;

    for (int i = 0; i < 50; i++)
        append(a, "rm -rf /");
    audit_close(a);
    r = verify(f->log);
    assert_string_equal(r.broken_file, "");
    assert_int_equal(r.files, 3);
}

static void *append_many(void *arg)
{
    for (int i = 0; i < 50; i++)
        append(arg, "from a thread");
    return NULL;
}

static void processes_and_threads_share_a_file(void **state)
{
    struct folder *f = *state;

    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            struct audit *a = open_log(f->log, 5000, 0);
            pthread_t t[2];

            for (size_t k = 0; k < 2; k++)
                pthread_create(&t[k], NULL, append_many, a);
            for (size_t k = 0; k < 2; k++)
                pthread_join(t[k], NULL);
            audit_close(a);
            _exit(0);
        }
    }
    for (int i = 0; i < 3; i++) {
        int status;

        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_whole(f->log, 300);
}

/* --- redaction ------------------------------------------------------------------------------- */

static const struct {
    const char *command, *logged;
} secrets[] = {
    { "curl -H 'Authorization: Bearer abc.def-123' x",
      "curl -H 'Authorization: [redacted] [redacted]' x" },
    { "curl -H \"X-API-Key: 12345678\" x", "curl -H \"X-API-Key: [redacted]\" x" },
    { "mysql --password=hunter2 -u me", "mysql --password=[redacted] -u me" },
    { "mysql -u me -phunter2 db", "mysql -u me -p[redacted] db" },
    { "tool --token 'a b c' x", "tool --token [redacted] x" },
    { "AWS_SECRET_ACCESS_KEY=abc/def aws s3 ls", "AWS_SECRET_ACCESS_KEY=[redacted] aws s3 ls" },
    { "export GITHUB_TOKEN=\"x y\"; ls", "export GITHUB_TOKEN=[redacted]; ls" },
    { "E2B_KEY=e2b_0123456789abcdef x", "E2B_KEY=[redacted] x" },
    { "echo e2b_0123456789abcdef", "echo [redacted]" },
    { "git clone https://me:pass@example.org/x.git",
      "git clone https://[redacted]@example.org/x.git" },
    { "echo ghp_abcdefghijklmnop", "echo [redacted]" },
    { "echo AKIAABCDEFGHIJKLMNOP", "echo [redacted]" },
    { "curl -u me:pass https://x", "curl -u [redacted] https://x" },
    { "echo '{\"password\": \"x\"}'", "echo '{\"password\": \"[redacted]\"}'" },
    { "rm -rf /", "rm -rf /" },
    { "curl -H 'PRIVATE-TOKEN: abc' x", "curl -H 'PRIVATE-TOKEN: [redacted]' x" },
    { "curl -H 'Cookie: a=b; c=d' x", "curl -H 'Cookie: [redacted]' x" },
    { "sshpass -p hunter2 ssh h", "sshpass -p [redacted] ssh h" },
    { "docker login -u me -p hunter2 r", "docker login -u me -p [redacted] r" },
    { "redis-cli -a hunter2 ping", "redis-cli -a [redacted] ping" },
    { "openssl rsa -passin pass:hunter2", "openssl rsa -passin pass:[redacted]" },
    { "npm config set //r/:_authToken abc", "npm config set //r/:_authToken [redacted]" },
    { "aws configure set aws_secret_access_key abc",
      "aws configure set aws_secret_access_key [redacted]" },
    { "DB_PASS=hunter2 ./run", "DB_PASS=[redacted] ./run" },
    { "export STRIPE_KEY=abc GITHUB_PAT=def",
      "export STRIPE_KEY=[redacted] GITHUB_PAT=[redacted]" },
    { "echo \"user:hunter2\" | chpasswd", "echo [redacted] | chpasswd" },
    { "echo hunter2 | docker login --password-stdin",
      "echo [redacted] | docker login --password-stdin" },
    { "echo hf_abcdefghijklmnopqrst", "echo [redacted]" },
    { "{'api_key': 'abc'}", "{'api_key': '[redacted]'}" },
    { "curl 'https://x/?key=abc&b=1'", "curl 'https://x/?key=[redacted]&b=1'" },
    { "cd keys; ls -p; echo a | wc; make passes", "cd keys; ls -p; echo a | wc; make passes" },
    { "git log --author me; docker run -p 80:80 x", "git log --author me; docker run -p 80:80 x" },
    { "ls token.txt; cd secret/", "ls token.txt; cd secret/" },
    { "make -p", "make -p" },
};

static void secrets_are_not_logged(void **state)
{
    struct redactor *r = NULL;
    struct cove_err e;
    int wrong = 0;

    (void)state;
    assert_int_equal(redactor_new(&r, &e), 0);
    for (size_t i = 0; i < ARRAY_SIZE(secrets); i++) {
        struct buf b;

        buf_init(&b, 4096);
        redactor_run(r, secrets[i].command, strlen(secrets[i].command), &b);
        if (strcmp(b.data, secrets[i].logged) != 0) {
            print_error("'%s'\n  logged '%s'\n  want   '%s'\n", secrets[i].command, b.data,
                        secrets[i].logged);
            wrong++;
        }
        buf_done(&b);
    }
    redactor_free(r);
    assert_int_equal(wrong, 0);
}

/* --- what a line and a log may cost ----------------------------------------------------------- */

static uint64_t bytes_of(const char *path)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

static void a_line_costs_no_more_than_4_kib_of_command(void **state)
{
    static const struct {
        char fill;
        const char *because;
    } rows[] = { { 'x', "plain" },
                 { '\001', "each becomes six characters" },
                 { '"', "each becomes two" },
                 { '\xff', "no UTF-8: each becomes three bytes" } };
    struct folder *f = *state;
    char *command = malloc(1 << 20);
    uint64_t before = 0;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct audit *a = open_log(f->log, 0, 0);

        memset(command, rows[i].fill, 1 << 20);
        command[(1 << 20) - 1] = '\0';
        append(a, command);
        audit_close(a);
        if (bytes_of(f->log) - before > 4096 + 512)
            fail_msg("%s: a line of %lu bytes", rows[i].because,
                     (unsigned long)(bytes_of(f->log) - before));
        assert_true(bytes_of(f->log) - before > 4000);
        before = bytes_of(f->log);
    }
    free(command);
    assert_whole(f->log, ARRAY_SIZE(rows));
}

static void a_cut_falls_between_characters_and_is_told(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_log(f->log, 0, 0);
    AUTO_FREE char *text = NULL;
    char command[6001] = "";
    size_t len;

    for (int i = 0; i < 3000; i++) /* two bytes each, and an odd byte before them */
        strcpy(command + (i ? 2 * i - 1 : 0), i ? "\xc3\xa4" : "x");
    append(a, command);
    audit_close(a);
    text = read_whole(f->log, &len);
    assert_null(strstr(text, "\xef\xbf\xbd"));
    assert_non_null(strstr(text, "\"command_bytes\":5999"));
}

static void a_caller_may_redact_and_cut_itself(void **state)
{
    struct folder *f = *state;
    struct audit_options options = { .already_redacted = true };
    struct audit_entry entry = { .event = "ran", .command_bytes = 70000 };
    struct redactor *r = NULL;
    struct audit *a = NULL;
    struct cove_err e = { 0 };
    AUTO_FREE char *clean = NULL, *text = NULL;
    size_t len;

    assert_int_equal(redactor_new(&r, &e), 0);
    assert_int_equal(redactor_command(r, "PGPASSWORD=abc psql", 19, &clean, &e), 0);
    assert_string_equal(clean, "PGPASSWORD=[redacted] psql");
    redactor_free(r);
    assert_int_equal(audit_open(f->log, &options, &a, &e), 0);
    entry.command = clean;
    entry.command_len = strlen(clean);
    assert_int_equal(audit_append(a, &entry, &e), 0);
    entry.command = "PGPASSWORD=abc"; /* written as it comes: no pattern runs here */
    entry.command_len = strlen(entry.command);
    assert_int_equal(audit_append(a, &entry, &e), 0);
    audit_close(a);
    text = read_whole(f->log, &len);
    assert_non_null(strstr(text, "[redacted] psql\",\"command_bytes\":70000"));
    assert_non_null(strstr(text, "PGPASSWORD=abc"));
}

static uint64_t test_time_ms = 1000;

static uint64_t test_clock(void)
{
    return test_time_ms;
}

static struct audit *open_limited(const char *path)
{
    struct audit_options options = {
        .source = { 10, 60 }, .tenant = { 100, 600 }, .ran = { 20, 60 }, .clock_ms = test_clock
    };
    struct cove_err e = { 0 };
    struct audit *a = NULL;

    if (audit_open(path, &options, &a, &e) < 0)
        fail_msg("%s", e.msg);
    return a;
}

static void append_of(struct audit *a, const char *tenant, const char *sandbox, int times)
{
    struct audit_entry entry = { .event = "refused", .tenant = tenant, .sandbox = sandbox };
    struct cove_err e = { 0 };

    for (int i = 0; i < times; i++) {
        if (audit_append(a, &entry, &e) < 0)
            fail_msg("%s", e.msg);
    }
}

static void a_source_that_writes_too_much_is_counted(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_limited(f->log);
    struct audit_counts counts;
    AUTO_FREE char *text = NULL;
    size_t len;

    append_of(a, "loud", "box1", 1000);
    append_of(a, "quiet", "box2", 1); /* others are not slowed down */
    assert_whole(f->log, 11);
    assert_int_equal(audit_flush(a, NULL), 0);
    assert_whole(f->log, 11); /* the source has not been quiet yet */
    test_time_ms += 1000;
    assert_int_equal(audit_flush(a, NULL), 0);
    assert_whole(f->log, 12);
    text = read_whole(f->log, &len);
    assert_non_null(strstr(text, "\"event\":\"more\",\"tenant\":\"loud\",\"project\":\"\","
                                 "\"sandbox\":\"box1\",\"count\":990"));
    audit_get_counts(a, &counts);
    assert_int_equal(counts.lines, 12);
    assert_int_equal(counts.suppressed, 990);
    test_time_ms += 60000;
    append_of(a, "loud", "box1", 1);
    assert_whole(f->log, 13);
    audit_close(a);
}

static void what_was_counted_is_told_before_the_next_line_and_at_the_end(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_limited(f->log);
    AUTO_FREE char *text = NULL;
    size_t len;

    append_of(a, "loud", "box1", 15);
    test_time_ms += 2000;
    append_of(a, "loud", "box1", 7);
    audit_close(a);
    assert_whole(f->log, 10 + 1 + 2 + 1);
    text = read_whole(f->log, &len);
    assert_non_null(strstr(line_at(text, 11), "\"count\":5,"));
    assert_non_null(strstr(line_at(text, 14), "\"count\":5,"));
}

/* More sources than there are rows: none of their counts is lost. */
static void many_sources_are_all_told(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_limited(f->log);
    struct audit_counts counts;

    for (int i = 0; i < 3 * AUDIT_SOURCES; i++) {
        char name[32];

        snprintf(name, sizeof(name), "acme%d", i);
        test_time_ms++;
        append_of(a, name, "box", 12);
    }
    audit_get_counts(a, &counts);
    assert_int_equal(counts.suppressed, 3 * AUDIT_SOURCES * 2);
    audit_close(a);
    assert_whole(f->log, 3 * AUDIT_SOURCES * 11);
}

/* A tenant chooses names of projects, and refusals come before there is a sandbox. */
static void new_names_of_projects_do_not_lift_a_tenants_rate(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_limited(f->log);
    struct audit_counts counts;
    AUTO_FREE char *text = NULL;
    size_t len;

    append_of(a, "acme", "loud", 15);
    for (int i = 0; i < 3 * AUDIT_SOURCES; i++) {
        struct audit_entry entry = { .event = "refused", .tenant = "acme" };
        char name[32];

        snprintf(name, sizeof(name), "p%d", i);
        entry.project = name;
        assert_int_equal(audit_append(a, &entry, NULL), 0);
    }
    assert_whole(f->log, 100);
    audit_get_counts(a, &counts);
    assert_int_equal(counts.suppressed, 5 + 3 * AUDIT_SOURCES - 90);
    append_of(a, "quiet", "box2", 1); /* others are not slowed down */
    assert_whole(f->log, 101);
    audit_close(a);
    text = read_whole(f->log, &len);
    assert_non_null(strstr(text, "\"tenant\":\"acme\",\"project\":\"\",\"count\":294,"));
    assert_non_null(strstr(text, "\"sandbox\":\"loud\",\"count\":5,"));
}

static void commands_that_ran_have_a_rate_of_their_own(void **state)
{
    struct folder *f = *state;
    struct audit *a = open_limited(f->log);
    AUTO_FREE char *text = NULL;
    size_t len;

    for (int i = 0; i < 1000; i++) {
        struct audit_entry entry = { .event = "ran", .tenant = "acme", .ran = true };
        char name[32];

        snprintf(name, sizeof(name), "p%d", i);
        entry.project = name;
        assert_int_equal(audit_append(a, &entry, NULL), 0);
    }
    assert_whole(f->log, 20);
    append_of(a, "acme", "box", 1); /* a refusal is not hidden behind them */
    assert_whole(f->log, 21);
    audit_close(a);
    text = read_whole(f->log, &len);
    assert_non_null(strstr(text, "\"event\":\"more\",\"tenant\":\"acme\",\"project\":\"\","
                                 "\"form\":\"ran\",\"count\":980,"));
}

static void all_files_together_stay_below_their_limit(void **state)
{
    struct folder *f = *state;
    struct audit_options options = { .max_bytes = 2000, .total_bytes = 9000 };
    struct audit_counts counts;
    struct audit_report r;
    struct audit *a = NULL;
    struct cove_err e = { 0 };
    AUTO_FREE char *text = NULL;
    uint64_t total = 0;
    size_t len;

    assert_int_equal(audit_open(f->log, &options, &a, &e), 0);
    for (int i = 0; i < 200; i++)
        append(a, "rm -rf /");
    audit_get_counts(a, &counts);
    audit_close(a);
    r = verify(f->log);
    assert_string_equal(r.broken_file, "");
    assert_true(r.files >= 3 && counts.removed_files > 5 && counts.removed_bytes > 10000);
    for (unsigned i = 1; i < 1000; i++) {
        struct stat st;
        char name[64];

        snprintf(name, sizeof(name), "%s.%06u", f->log, i);
        total += stat(name, &st) == 0 ? (uint64_t)st.st_size : 0;
    }
    assert_true(total + bytes_of(f->log) <= 9000 + 500);
    text = read_whole(f->log, &len);
    assert_non_null(strstr(text, "\"removed_files\":1"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lines_are_chained),
        TEST(the_first_broken_line_is_found),
        TEST(a_torn_line_is_cut_off_and_noted),
        TEST(a_log_with_a_forged_end_is_not_continued),
        TEST(a_full_disk_is_an_error_and_the_chain_stays),
        TEST(rotation_carries_the_chain_on),
        TEST(old_files_go_and_the_rest_still_verifies),
        TEST(processes_and_threads_share_a_file),
        cmocka_unit_test(secrets_are_not_logged),
        TEST(a_line_costs_no_more_than_4_kib_of_command),
        TEST(a_cut_falls_between_characters_and_is_told),
        TEST(a_caller_may_redact_and_cut_itself),
        TEST(a_source_that_writes_too_much_is_counted),
        TEST(what_was_counted_is_told_before_the_next_line_and_at_the_end),
        TEST(many_sources_are_all_told),
        TEST(new_names_of_projects_do_not_lift_a_tenants_rate),
        TEST(commands_that_ran_have_a_rate_of_their_own),
        TEST(all_files_together_stay_below_their_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
