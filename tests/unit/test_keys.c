/* keys/: what a line says, what a key may do, and how the file is edited. */
#include <setjmp.h>
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

#include "cove/keys.h"
#include "cove/mem.h"
#include "cove/text.h"

/* printf secret | sha256sum */
#define SECRET "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
#define OTHER  "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"

static const struct {
    const char *text, *message, *because; /* message NULL: fine */
} lines[] = {
    { SECRET " acme ci", NULL, "the simple form" },
    { SECRET " acme ci created=2026-01-02T03:04:05Z expires=2027-01-31 dialects=execute,e2b "
             "projects=web-*,x requests=5 sandboxes=2 processes=9",
      NULL, "every setting" },
    { SECRET " acme ci expirse=2027-01-31", "line 1: 'expirse': no such setting",
      "a typo must not make a key that lives forever" },
    { SECRET " acme ci expires=soon",
      "line 1: expires: 'soon' is not a time (2027-01-31T12:00:00Z)", "not a time" },
    { SECRET " acme ci expires=90d", "line 1: expires: '90d' is not a time (2027-01-31T12:00:00Z)",
      "a span would begin anew with every reading" },
    { SECRET " acme ci projects=", "line 1: projects: is empty; leave it out to allow all",
      "empty could mean all or none" },
    { SECRET " acme ci requests=-1", "line 1: requests: '-1' is not a whole number",
      "not a number" },
    { SECRET " acme ci word", "line 1: 'word' is not of the form setting=value", "no setting" },
    { SECRET " acme projects=x", "line 1: a name must stand before 'projects=x'", "no name" },
};

static void a_line_says_what_a_key_may_or_what_is_wrong_with_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        struct keys keys = { 0 };
        struct cove_err e = { 0 };
        int rc = keys_parse(lines[i].text, &keys, &e);

        if ((rc == 0) != (lines[i].message == NULL) ||
            (rc < 0 && strncmp(e.msg, lines[i].message, 20) != 0))
            fail_msg("%s: %d, '%s'", lines[i].because, rc, e.msg);
        keys_done(&keys);
    }
}

static void what_is_written_is_read_again(void **state)
{
    struct keys keys, again;
    struct buf b;

    (void)state;
    assert_int_equal(keys_parse(lines[1].text, &keys, NULL), 0);
    buf_init(&b, 4096);
    assert_int_equal(keys_format(&keys.items[0], &b), 0);
    assert_int_equal(keys_parse(b.data, &again, NULL), 0);
    assert_memory_equal(&keys.items[0], &again.items[0], sizeof(struct key));
    assert_int_equal(keys.items[0].expires_s, 1801353600);
    buf_done(&b);
    keys_done(&keys);
    keys_done(&again);
}

static const struct {
    const char *settings, *dialect, *project;
    bool dialect_ok, project_ok;
    const char *because;
} scopes[] = {
    { "", "e2b", "any", true, true, "no scope is no limit" },
    { " dialects=execute", "execute", "p", true, true, "the one" },
    { " dialects=execute", "executor", "p", false, true, "a longer word is another word" },
    { " dialects=e2b,execute", "execute", "p", true, true, "the second of a list" },
    { " projects=web-*", "e2b", "web-1", true, true, "a glob" },
    { " projects=web-*", "e2b", "web/../x", true, false, "a glob is for the whole name" },
    { " projects=web-*", "e2b", "xweb-1", true, false, "from its beginning" },
    { " projects=a,b?", "e2b", "b1", true, true, "several" },
    { " projects=a,b?", "e2b", "b", true, false, "a question mark is one character" },
    { " projects=*", "e2b", ".x/y", true, true, "a name is no path: a star takes all" },
};

static void scopes_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(scopes); i++) {
        struct keys keys;
        char line[200];

        snprintf(line, sizeof(line), SECRET " t n%s", scopes[i].settings);
        assert_int_equal(keys_parse(line, &keys, NULL), 0);
        if (key_may_dialect(&keys.items[0], scopes[i].dialect) != scopes[i].dialect_ok ||
            key_may_project(&keys.items[0], scopes[i].project) != scopes[i].project_ok)
            fail_msg("%s", scopes[i].because);
        keys_done(&keys);
    }
}

static void a_key_ends_at_its_second(void **state)
{
    struct key key = { .expires_s = 100 }, eternal = { 0 };

    (void)state;
    assert_false(key_expired(&key, 99));
    assert_true(key_expired(&key, 100));
    assert_false(key_expired(&eternal, UINT64_MAX));
}

static void a_tenants_line_replaces_only_what_it_names(void **state)
{
    const struct quota defaults = { .requests = 10, .sandboxes = 5, .processes = 7 };
    struct tenants t;
    struct quota q;
    struct cove_err e;

    (void)state;
    assert_int_equal(tenants_parse("# quotas\nacme requests=0 sandboxes=50\n", &t, NULL), 0);
    q = tenants_quota(&t, "acme", &defaults);
    assert_int_equal(q.requests, 0);
    assert_int_equal(q.sandboxes, 50);
    assert_int_equal(q.processes, 7);
    q = tenants_quota(&t, "globex", &defaults);
    assert_int_equal(q.requests, 10);
    tenants_done(&t);
    assert_int_equal(tenants_parse("acme\nacme disc=5\n", &t, &e), -1);
    assert_string_equal(e.msg, "line 2: 'disc': no such setting");
}

static void a_tenants_limits_stand_over_its_templates_and_those_over_the_instances(void **state)
{
    struct tenants tenants, templates;
    struct cove_config c;
    struct limits l;

    (void)state;
    config_default(&c);
    assert_int_equal(tenants_parse("acme memory_max=2G disk=20G requests=3 command_timeout=5m\n",
                                   &tenants, NULL),
                     0);
    assert_int_equal(templates_parse("ml memory_max=4G pids_max=2000\n", &templates, NULL), 0);
    limits_resolve(&c, &templates, "ml", &tenants, "acme", &l);
    assert_int_equal(l.memory_max_bytes, 2ULL << 30);
    assert_int_equal(l.pids_max, 2000);
    assert_int_equal(l.command_timeout_ms, 300000);
    assert_int_equal(l.disk_max_bytes, c.disk_max_bytes); /* disk= is the quota of all together */
    limits_resolve(&c, &templates, "ml", &tenants, "", &l);
    assert_int_equal(l.memory_max_bytes, 4ULL << 30);
    limits_resolve(&c, NULL, "base", NULL, "globex", &l);
    assert_int_equal(l.memory_max_bytes, c.memory_max_bytes);
    tenants_done(&tenants);
    tenants_done(&templates);
}

static void a_template_may_ask_for_less_and_never_for_more(void **state)
{
    static const struct {
        uint64_t percent, cpus, want;
        const char *because;
    } cases[] = {
        { 0, 2, 200, "no quota: what it asks for is one" },
        { 400, 2, 200, "less than it could have" },
        { 150, 2, 150, "a part of a cpu counts as one that it may have" },
        { 150, 1, 100, "less than that" },
        { 100, 8, 100, "more: it has what it may have" },
        { 100, 0, 100, "it asks for nothing" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct limits l = { .cpu_percent = cases[i].percent, .memory_max_bytes = 1 << 30 };

        limits_narrow(&l, cases[i].cpus, 0);
        if (l.cpu_percent != cases[i].want || l.memory_max_bytes != 1 << 30)
            fail_msg("%s: %llu", cases[i].because, (unsigned long long)l.cpu_percent);
        limits_narrow(&l, 0, 1 << 29);
        assert_int_equal(l.memory_max_bytes, 1 << 29);
        limits_narrow(&l, 0, 1 << 30);
        assert_int_equal(l.memory_max_bytes, 1 << 29);
    }
}

static void limits_have_the_bounds_of_cove_conf(void **state)
{
    struct tenants t;
    struct cove_err e;

    (void)state;
    assert_int_equal(tenants_parse("acme pids_max=1\n", &t, &e), -1);
    assert_string_equal(e.msg, "line 1: pids_max: 1 is not between 8 and 1048576");
    assert_int_equal(tenants_parse("acme pids_max=1048577\n", &t, &e), -1);
    assert_string_equal(e.msg, "line 1: pids_max: 1048577 is not between 8 and 1048576");
    assert_int_equal(templates_parse("ml memory_max=much\n", &t, &e), -1);
    assert_int_equal(templates_parse("ml requests=5\n", &t, &e), -1);
    assert_string_equal(e.msg, "line 1: 'requests': no such setting");
    assert_int_equal(tenants_parse("acme port_idle=10m tenant_port_rate=1M\n", &t, &e), 0);
    assert_int_equal(t.items[0].limits.port_idle_ms, 600000);
    assert_int_equal(t.items[0].limits.tenant_port_rate_bytes, 1 << 20);
    tenants_done(&t);
    assert_int_equal(templates_parse("ml port_idle=10m\n", &t, &e), -1);
    assert_string_equal(e.msg, "line 1: 'port_idle': no such setting");
}

static void a_line_may_say_what_the_network_is_less(void **state)
{
    struct tenants t;
    struct cove_err e;

    (void)state;
    assert_int_equal(tenants_parse("acme network=allow-list network_allow=a.example,192.0.2.0/24\n"
                                   "other requests=5\nacme network_deny=fd00::/8\n",
                                   &t, &e),
                     0);
    assert_null(tenants_network(&t, "other"));
    assert_int_equal(tenants_network(&t, "acme")->mode, NET_EGRESS); /* the last line, whole */
    assert_string_equal(tenants_network(&t, "acme")->deny, "fd00::/8");
    tenants_done(&t);
    assert_int_equal(tenants_parse("acme network=allow-list network_allow=a..b\n", &t, &e), -1);
    assert_non_null(strstr(e.msg, "line 1: network_allow: 'a..b'"));
    assert_int_equal(templates_parse("ml network=sideways\n", &t, &e), -1);
    assert_int_equal(templates_parse("ml network_deny=a.name\n", &t, &e), -1);
}

static void the_largest_output_of_any_template_fits_a_reply(void **state)
{
    struct tenants templates;
    struct cove_config c;

    (void)state;
    config_default(&c);
    assert_int_equal(templates_parse("a output_max=1M\nb output_max=64M\n", &templates, NULL), 0);
    assert_int_equal(limits_output_ceiling(&c, &templates, NULL, "acme"), 64 << 20);
    tenants_done(&templates);
}

/* ------------------------------------------------------------------ the file */

static char dir[] = "/tmp/cove-keys-XXXXXX";
static char path[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir + sizeof(dir) - 7, "XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/keys", dir);
    return 0;
}

static int remove_dir(void **state)
{
    char lock[80];

    (void)state;
    snprintf(lock, sizeof(lock), "%s.lock", path);
    unlink(lock);
    unlink(path);
    return rmdir(dir);
}

static size_t add_one(const char *name)
{
    char text[KEY_TEXT_LEN + 1];
    struct key key = { .tenant = "acme" };
    struct keys_edit edit;
    size_t before;

    text_copy(key.name, sizeof(key.name), name);
    assert_int_equal(keys_edit_begin(path, &edit, NULL), 0);
    before = edit.keys.count;
    keys_new(text, &key);
    assert_int_equal(keys_edit_commit(&edit, NULL, &key, 1, NULL), 0);
    keys_edit_done(&edit);
    assert_int_equal(strlen(text), KEY_TEXT_LEN);
    assert_memory_equal(text, "e2b_", 4);
    return before;
}

static void editors_at_the_same_time_lose_nothing(void **state)
{
    struct keys_edit edit;

    (void)state;
    for (int child = 0; child < 4; child++) {
        if (fork() == 0) {
            for (int i = 0; i < 25; i++)
                add_one("n");
            _exit(0);
        }
    }
    for (int child = 0; child < 4; child++) {
        int status;

        wait(&status);
        assert_int_equal(status, 0);
    }
    assert_int_equal(keys_edit_begin(path, &edit, NULL), 0);
    assert_int_equal(edit.keys.count, 100);
    keys_edit_done(&edit);
}

static void comments_and_mode_stay_and_only_the_named_line_goes(void **state)
{
    struct keys_edit edit;
    struct stat st;
    FILE *f = fopen(path, "w");

    (void)state;
    fputs("# mine\n" SECRET " acme a\n\n  " OTHER " acme b\n", f);
    fclose(f);
    chmod(path, 0640);
    assert_int_equal(keys_edit_begin(path, &edit, NULL), 0);
    assert_int_equal(edit.keys.count, 2);
    assert_int_equal(keys_edit_commit(&edit, &edit.keys.items[1], NULL, 0, NULL), 0);
    keys_edit_done(&edit);
    assert_int_equal(keys_edit_begin(path, &edit, NULL), 0);
    assert_string_equal(edit.text, "# mine\n" SECRET " acme a\n\n");
    keys_edit_done(&edit);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
}

static void a_token_is_good_for_one_sandbox_under_one_secret(void **state)
{
    unsigned char secret[TOKEN_SECRET_BYTES] = "a secret of this instance",
                  other[TOKEN_SECRET_BYTES] = "";
    char token[TOKEN_LEN + 1], cut[TOKEN_LEN + 1];

    (void)state;
    token_make(secret, "aaaaaaaaaaaaaaaaaaaa", token);
    assert_int_equal(strlen(token), TOKEN_LEN);
    assert_int_equal(strspn(token, "0123456789abcdef"), TOKEN_LEN);
    assert_true(token_fits(secret, "aaaaaaaaaaaaaaaaaaaa", token));
    assert_false(token_fits(secret, "aaaaaaaaaaaaaaaaaaab", token));
    assert_false(token_fits(other, "aaaaaaaaaaaaaaaaaaaa", token));
    memcpy(cut, token, sizeof(cut));
    cut[TOKEN_LEN - 1] = '\0';
    assert_false(token_fits(secret, "aaaaaaaaaaaaaaaaaaaa", cut));
    assert_false(token_fits(secret, "aaaaaaaaaaaaaaaaaaaa", ""));
    for (size_t i = 0; i < TOKEN_LEN; i++) { /* every character counts */
        memcpy(cut, token, sizeof(cut));
        cut[i] = cut[i] == '0' ? '1' : '0';
        assert_false(token_fits(secret, "aaaaaaaaaaaaaaaaaaaa", cut));
    }
}

static void a_broken_file_is_not_edited(void **state)
{
    struct keys_edit edit;
    struct cove_err e;
    FILE *f = fopen(path, "w");

    (void)state;
    fputs("nonsense\n", f);
    fclose(f);
    assert_int_equal(keys_edit_begin(path, &edit, &e), -1);
    assert_non_null(strstr(e.msg, "line 1: must begin with 64 hex digits"));
}

/* The keeper writes the list while the gate may read it. */
static void the_list_of_keys_that_hold_is_whole_or_not_taken(void **state)
{
    AUTO_BUF struct buf list = BUF(4096);
    struct key_names names = { 0 };
    struct cove_err e = { 0 };
    struct keys keys;

    (void)state;
    assert_int_equal(
        keys_parse(OTHER " acme b expires=2027-01-31\n" SECRET " acme a\n", &keys, NULL), 0);
    assert_int_equal(key_names_write(&keys, &list), 0);
    keys_done(&keys);
    buf_add_char(&list, '\0');
    assert_int_equal(key_names_read(list.data, &names, &e), 0);
    assert_true(key_names_hold(&names, "2bb80d537b1da3e3", UINT64_C(1) << 40));
    assert_true(key_names_hold(&names, "d9298a10d1b07358", 1));
    assert_false(
        key_names_hold(&names, "d9298a10d1b07358", UINT64_C(1) << 40)); /* it has expired */
    assert_false(key_names_hold(&names, "d9298a10d1b07359", 1));
    assert_false(key_names_hold(&names, "d9298a10d1b0", 1));
    key_names_done(&names);
    for (size_t len = strlen(list.data) - 1; len > 0; len--) {
        list.data[len] = '\0';
        assert_int_equal(key_names_read(list.data, &names, &e), -1);
        assert_int_equal(e.code, COVE_BUSY);
    }
}

static void a_list_of_no_keys_is_a_list(void **state)
{
    AUTO_BUF struct buf list = BUF(4096);
    struct key_names names = { 0 };

    (void)state;
    assert_int_equal(key_names_write(&(struct keys){ 0 }, &list), 0);
    buf_add_char(&list, '\0');
    assert_int_equal(key_names_read(list.data, &names, NULL), 0);
    assert_false(key_names_hold(&names, "2bb80d537b1da3e3", 1));
    key_names_done(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_says_what_a_key_may_or_what_is_wrong_with_it),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(scopes_hold),
        cmocka_unit_test(a_key_ends_at_its_second),
        cmocka_unit_test(a_tenants_line_replaces_only_what_it_names),
        cmocka_unit_test(a_token_is_good_for_one_sandbox_under_one_secret),
        cmocka_unit_test(a_tenants_limits_stand_over_its_templates_and_those_over_the_instances),
        cmocka_unit_test(a_template_may_ask_for_less_and_never_for_more),
        cmocka_unit_test(limits_have_the_bounds_of_cove_conf),
        cmocka_unit_test(a_line_may_say_what_the_network_is_less),
        cmocka_unit_test(the_largest_output_of_any_template_fits_a_reply),
        cmocka_unit_test_setup_teardown(editors_at_the_same_time_lose_nothing, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(comments_and_mode_stay_and_only_the_named_line_goes,
                                        make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_broken_file_is_not_edited, make_dir, remove_dir),
        cmocka_unit_test(the_list_of_keys_that_hold_is_whole_or_not_taken),
        cmocka_unit_test(a_list_of_no_keys_is_a_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
