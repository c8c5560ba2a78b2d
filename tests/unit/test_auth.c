/* fcgi/auth.c and live.c: who is who, and what happens when the table changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/file.h"
#include "cove/text.h"
#include "fcgi/auth.h"
#include "fcgi/dialects/dialects.h"
#include "tests/unit/fcgi_request.h"

/* printf secret | sha256sum; printf other | sha256sum */
#define SECRET "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
#define OTHER  "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"

static const struct {
    const char *text;
    size_t count;
    const char *message; /* NULL: fine */
    const char *because;
} tables[] = {
    { "", 0, NULL, "no keys" },
    { "# a comment\n\n   \n", 0, NULL, "nothing but comments and blanks" },
    { SECRET " acme ci\n", 1, NULL, "one" },
    { SECRET " acme\n" OTHER "\tglobex\tlaptop", 2, NULL, "no name, tabs, no last line feed" },
    { SECRET " acme ci\r\n", 1, NULL, "written on Windows" },
    { "abc acme ci\n", 0, "line 1: must begin with 64 hex digits", "too short" },
    { "#\n" SECRET "\n", 0, "line 2: tenant must be 1 to 63 letters, digits, '.', '_', '-'",
      "none" },
    { SECRET " ac/me x\n", 0, "line 1: tenant must be 1 to 63 letters, digits, '.', '_', '-'",
      "/" },
};

static void a_table_of_keys_is_read_or_refused_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
        struct keys keys = { 0 };
        struct cove_err e = { 0 };
        int rc = keys_parse(tables[i].text, &keys, &e);

        if ((rc == 0) != (tables[i].message == NULL) || keys.count != tables[i].count ||
            (rc < 0 && strcmp(e.msg, tables[i].message) != 0))
            fail_msg("%s: %d, %zu keys, '%s'", tables[i].because, rc, keys.count, e.msg);
        keys_done(&keys);
    }
}

static const struct {
    const char *header, *tenant; /* tenant NULL: nobody */
    const char *because;
} headers[] = {
    { "HTTP_AUTHORIZATION=Bearer secret", "acme", "bearer" },
    { "HTTP_AUTHORIZATION=bearer other", "globex", "schemes have no case" },
    { "HTTP_X_API_KEY=secret", "acme", "E2B's header" },
    { "HTTP_X_RELAY_SECRET=other", "globex", "relay's header" },
    { "HTTP_AUTHORIZATION=secret", NULL, "no scheme" },
    { "HTTP_AUTHORIZATION=Basic secret", NULL, "another scheme" },
    { "HTTP_AUTHORIZATION=Bearer ", NULL, "an empty key" },
    { "HTTP_X_API_KEY=Secret", NULL, "keys do have case" },
    { "HTTP_X_API_KEY=secret2", NULL, "longer" },
    { "HTTP_X_API_KEY=" SECRET, NULL, "the hash is not the key" },
    { "HTTP_COOKIE=secret", NULL, "not a header for keys" },
};

static void a_key_is_found_in_the_headers_dialects_use(void **state)
{
    struct keys keys;

    (void)state;
    assert_int_equal(keys_parse(SECRET " acme a\n" OTHER " globex b\n", &keys, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
        struct fake_request f;
        struct cove_err e;
        const struct key *key;

        fake_init(&f, "GET", "/", headers[i].header, &e);
        key = auth_find(all_dialects, &keys, &f.req);
        if ((key != NULL) != (headers[i].tenant != NULL) ||
            (key && strcmp(key->tenant, headers[i].tenant) != 0))
            fail_msg("%s: %s", headers[i].because, key ? key->tenant : "nobody");
        request_done(&f.req);
    }
    keys_done(&keys);
}

/* Credentials in several headers, as clients of different dialects send them. */
static const char *tenant_of(const struct keys *keys, const char *bearer, const char *api_key)
{
    struct fake_request f;
    struct cove_err e;
    const struct key *key;

    fake_init(&f, "GET", "/", NULL, &e);
    request_done(&f.req);
    snprintf(f.params_text[2], sizeof(f.params_text[2]), "HTTP_AUTHORIZATION=Bearer %s", bearer);
    snprintf(f.params_text[3], sizeof(f.params_text[3]), "HTTP_X_API_KEY=%s", api_key);
    assert_int_equal(request_init(&f.req, f.params, &e), 0);
    key = auth_find(all_dialects, keys, &f.req);
    request_done(&f.req);
    return key ? key->tenant : "nobody";
}

static void one_good_credential_is_enough_and_an_expired_one_is_none(void **state)
{
    struct keys keys;

    (void)state;
    assert_int_equal(
        keys_parse(SECRET " acme a\n" OTHER " globex b expires=2020-01-01\n", &keys, NULL), 0);
    assert_string_equal(tenant_of(&keys, "wrong", "secret"), "acme");
    assert_string_equal(tenant_of(&keys, "secret", "wrong"), "acme");
    assert_string_equal(tenant_of(&keys, "other", "secret"), "acme");
    assert_string_equal(tenant_of(&keys, "secret", "other"), "acme");
    assert_string_equal(tenant_of(&keys, "wrong", "other"), "nobody");
    keys_done(&keys);
}

static void every_bit_of_a_hash_counts(void **state)
{
    struct keys keys;
    unsigned char hash[KEY_HASH_BYTES];

    (void)state;
    assert_int_equal(keys_parse(SECRET " acme a\n", &keys, NULL), 0);
    keys_hash("secret", hash);
    assert_non_null(keys_find(&keys, hash));
    for (size_t bit = 0; bit < 8 * sizeof(hash); bit++) {
        hash[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_null(keys_find(&keys, hash));
        hash[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    keys_done(&keys);
}

/* ------------------------------------------------------------------ live */

static uint32_t generation;
static unsigned loads, frees;

static int load_word(const char *path, void **ret, struct cove_err *e)
{
    char *text;
    size_t len;

    loads++;
    if (file_read(path, 100, &text, &len, e) < 0)
        return -1;
    *ret = text;
    return 0;
}

static void free_word(void *value)
{
    frees++;
    free(value);
}

static uint32_t test_generation(const struct state *state)
{
    (void)state;
    return generation;
}

static const struct live_kind words = {
    .what = "words",
    .load = load_word,
    .free = free_word,
    .generation = test_generation,
};

static void write_word(const char *dir, const char *word)
{
    char path[200];
    FILE *f;

    snprintf(path, sizeof(path), "%s/word", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(word, f);
    fclose(f);
}

static void readers_keep_what_they_took_and_the_next_ones_get_the_new(void **state)
{
    char dir[] = "/tmp/cove-live-XXXXXX", path[200];
    struct live live;
    struct live_ref *first, *second;

    (void)state;
    assert_non_null(mkdtemp(dir));
    loads = frees = 0;
    write_word(dir, "one");
    live_init(&live, &words, NULL, dir, "word");
    first = live_get(&live);
    assert_string_equal(first->value, "one");

    write_word(dir, "two");
    second = live_get(&live);
    assert_ptr_equal(first, second); /* nobody said that it changed */
    live_put(second);

    generation++;
    second = live_get(&live);
    assert_string_equal(second->value, "two");
    assert_string_equal(first->value, "one");
    assert_int_equal(frees, 0);
    live_put(first);
    assert_int_equal(frees, 1);

    snprintf(path, sizeof(path), "%s/word", dir);
    unlink(path);
    generation++;
    first = live_get(&live); /* cannot be loaded: the old one stays */
    assert_ptr_equal(first, second);
    live_put(first);
    live_put(second);
    loads = 0;
    live_put(live_get(&live));
    assert_int_equal(loads, 0); /* and is not tried again at once */
    live_done(&live);
    assert_int_equal(frees, 2);
    rmdir(dir);
}

static void what_was_never_loaded_is_not_there(void **state)
{
    struct live live;

    (void)state;
    live_init(&live, &words, NULL, "/nonexistent", "word");
    assert_null(live_get(&live));
    live_done(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_of_keys_is_read_or_refused_whole),
        cmocka_unit_test(a_key_is_found_in_the_headers_dialects_use),
        cmocka_unit_test(one_good_credential_is_enough_and_an_expired_one_is_none),
        cmocka_unit_test(every_bit_of_a_hash_counts),
        cmocka_unit_test(readers_keep_what_they_took_and_the_next_ones_get_the_new),
        cmocka_unit_test(what_was_never_loaded_is_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
