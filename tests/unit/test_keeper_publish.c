/* sandbox/keeper/publish.c: operators' files reach workers whole and validated, or not at all. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper_fixture.h"
#include "sandbox/keeper/publish.h"

#define RULE "[*]\ndeny no-halt words /^halt\\b/ \"no\"\n"

static void put(const struct fixture *f, const char *name, const char *text)
{
    char path[192];
    FILE *out;

    snprintf(path, sizeof(path), "%s/%s", f->state_dir, name);
    out = fopen(path, "we");
    fputs(text, out);
    fclose(out);
}

/* The operator's files lie in state_dir here; the profiles are those of the sources. */
static int setup(void **state)
{
    struct fixture *f;
    struct cove_config *c;
    char path[160];

    fixture_setup(state);
    f = *state;
    c = &f->k.config;
    snprintf(c->policy_file, sizeof(c->policy_file), "%s/policy.conf", f->state_dir);
    snprintf(c->keys_file, sizeof(c->keys_file), "%s/keys", f->state_dir);
    snprintf(c->profile_dir, sizeof(c->profile_dir), "%s/installed", f->state_dir);
    c->tenants_file[0] = c->templates_file[0] = '\0';
    snprintf(path, sizeof(path), "%s/installed", f->state_dir);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/profiles", f->state_dir);
    mkdir(path, 0700);
    put(f, "policy.conf", RULE);
    put(f, "keys", "");
    put(f, "installed/default.conf", "allow read write exit_group execve\n");
    return 0;
}

static bool is_published(const struct fixture *f, const char *name)
{
    char path[192];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", f->run_dir, name);
    return stat(path, &st) == 0 && (st.st_mode & 07777) == 0640;
}

static void must_publish(struct fixture *f)
{
    struct cove_err e = { 0 };

    if (publish_all(&f->k, &e) < 0)
        fail_msg("%s", e.msg);
}

static void a_good_set_is_published_for_workers_alone(void **state)
{
    struct fixture *f = *state;

    must_publish(f);
    assert_true(is_published(f, "policy"));
    assert_true(is_published(f, "keys"));
    assert_true(is_published(f, "profiles/default.bpf"));
    assert_true(is_published(f, "profiles/default.notify.bpf"));
}

static void the_generation_tells_of_edits_and_of_nothing_else(void **state)
{
    struct fixture *f = *state;
    uint32_t first;

    must_publish(f);
    first = state_policy_generation(f->k.state);
    must_publish(f);
    assert_int_equal(state_policy_generation(f->k.state), first);
    put(f, "policy.conf", RULE "audit = all\n");
    must_publish(f);
    assert_int_equal(state_policy_generation(f->k.state), first + 1);
}

static void a_mistake_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct cove_err e = { 0 };
    uint32_t first;

    must_publish(f);
    first = state_policy_generation(f->k.state);
    put(f, "policy.conf", RULE "seccomp = nowhere\n");
    assert_int_equal(publish_all(&f->k, &e), -1);
    assert_non_null(strstr(e.msg, "no such profile"));
    assert_int_equal(state_policy_generation(f->k.state), first);
}

static void a_broken_policy_does_not_keep_a_key_from_being_revoked(void **state)
{
    struct fixture *f = *state;
    struct cove_err e = { 0 };
    uint32_t keys;

    must_publish(f);
    keys = state_keys_generation(f->k.state);
    put(f, "policy.conf", "what is this\n");
    put(f, "keys", "# nobody\n");
    assert_int_equal(publish_all(&f->k, &e), -1);
    assert_int_equal(state_keys_generation(f->k.state), keys + 1);
}

#define EIGHT(s)   s s s s s s s s
#define KEY(digit) EIGHT(EIGHT(digit)) /* the hash of a key: 64 digits */

static void the_keeper_sees_whether_all_keys_belong_to_one_tenant(void **state)
{
    static const struct {
        const char *keys;
        bool want;
    } cases[] = {
        { "", false },
        { KEY("a") " acme first\n", true },
        { KEY("a") " acme first\n" KEY("b") " acme second\n", true },
        { KEY("a") " acme first\n" KEY("b") " other first\n", false },
        { KEY("a") " acme first\n" KEY("b") " acme second\n" KEY("c") " other first\n", false },
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        put(f, "keys", cases[i].keys);
        must_publish(f);
        assert_int_equal(f->k.keys_of_one_tenant, cases[i].want);
    }
}

/* An operator writes a profile, then the policy that names it, while the keeper is reading: whatever
 * the moment, a policy that was read is never missing a profile that was written before it. */
static const struct fixture *writer;
static bool armed;

int __real_policy_bundle_read(const char *path, char **ret, size_t *ret_len, struct cove_err *e);
int __wrap_policy_bundle_read(const char *path, char **ret, size_t *ret_len, struct cove_err *e);
int __wrap_policy_bundle_read(const char *path, char **ret, size_t *ret_len, struct cove_err *e)
{
    if (armed) {
        put(writer, "profiles/mine.conf", "include default.conf\n");
        put(writer, "policy.conf", RULE "seccomp = mine\n");
    }
    return __real_policy_bundle_read(path, ret, ret_len, e);
}

static void a_profile_that_is_written_meanwhile_is_there_for_its_policy(void **state)
{
    struct fixture *f = *state;

    put(f, "profiles/default.conf", "allow read write exit_group execve\n");
    must_publish(f);
    writer = f;
    armed = true;
    must_publish(f);
    armed = false;
    assert_true(is_published(f, "profiles/mine.bpf"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_good_set_is_published_for_workers_alone),
        T(the_generation_tells_of_edits_and_of_nothing_else),
        T(a_mistake_changes_nothing),
        T(a_broken_policy_does_not_keep_a_key_from_being_revoked),
        T(the_keeper_sees_whether_all_keys_belong_to_one_tenant),
        T(a_profile_that_is_written_meanwhile_is_there_for_its_policy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
