/* Keys: the table, and the one question nginx asks of it. */
#include "fcgi/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cove/state.h"
#include "cove/text.h"

/* ------------------------------------------------------------------ the table */

static bool parse_hash(const char *hex, unsigned char ret[KEY_HASH_BYTES])
{
    if (strlen(hex) != 2 * KEY_HASH_BYTES || strspn(hex, "0123456789abcdef") != strlen(hex))
        return false;
    for (size_t i = 0; i < KEY_HASH_BYTES; i++) {
        unsigned byte;

        sscanf(hex + 2 * i, "%2x", &byte);
        ret[i] = (unsigned char)byte;
    }
    return true;
}

/* A tenant ends up in headers, logs and shared memory: plain names only. */
static bool is_plain_name(const char *s)
{
    return *s &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] ==
               '\0';
}

static int parse_line(char *line, struct keys *k, struct cove_err *e)
{
    char *rest = line;
    const char *hash = strtok_r(rest, " \t", &rest);
    const char *tenant = strtok_r(NULL, " \t", &rest);
    const char *name = strtok_r(NULL, " \t", &rest);
    struct key key = { 0 };
    struct key *items;

    if (!hash || *hash == '#')
        return 0;
    if (!parse_hash(hash, key.hash))
        return cove_fail(e, COVE_INVALID, "must begin with 64 hex digits");
    if (!tenant || !is_plain_name(tenant) || !text_copy(key.tenant, sizeof(key.tenant), tenant))
        return cove_fail(e, COVE_INVALID, "tenant must be 1 to 63 letters, digits, '.', '_', '-'");
    text_copy(key.name, sizeof(key.name), name ? name : "");
    items = realloc(k->items, (k->count + 1) * sizeof(*items));
    if (!items)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    k->items = items;
    k->items[k->count++] = key;
    return 0;
}

int keys_parse(const char *text, struct keys *ret, struct cove_err *e)
{
    AUTO_FREE char *copy = strdup(text);
    struct keys k = { 0 };
    unsigned number = 0;

    if (!copy)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    for (char *rest = copy, *line; (line = strsep(&rest, "\r\n"));) {
        number++;
        if (parse_line(line, &k, e) < 0) {
            keys_done(&k);
            return cove_context(e, "line %u", number);
        }
    }
    *ret = k;
    return 0;
}

void keys_done(struct keys *k)
{
    free(k->items);
    *k = (struct keys){ 0 };
}

const struct key *keys_find(const struct keys *k, const unsigned char hash[KEY_HASH_BYTES])
{
    const struct key *found = NULL;

    for (size_t i = 0; i < k->count; i++)
        if (CRYPTO_memcmp(k->items[i].hash, hash, KEY_HASH_BYTES) == 0)
            found = &k->items[i];
    return found;
}

void keys_hash(const char *key, unsigned char ret[KEY_HASH_BYTES])
{
    if (EVP_Digest(key, strlen(key), ret, NULL, EVP_sha256(), NULL) != 1)
        abort(); /* without SHA-256 nobody can be told from anybody */
}

/* ------------------------------------------------------------------ the table as a live thing */

static int load(const char *path, void **ret, struct cove_err *e)
{
    AUTO_FREE char *text = NULL;
    struct keys *k;
    size_t len;

    if (live_read_file(path, KEYS_FILE_MAX, &text, &len, e) < 0)
        return -1;
    k = calloc(1, sizeof(*k));
    if (!k)
        abort();
    if (keys_parse(text, k, e) < 0) {
        free(k);
        return cove_context(e, "%s", path);
    }
    *ret = k;
    return 0;
}

static void unload(void *value)
{
    keys_done(value);
    free(value);
}

const struct live_kind keys_kind = {
    .what = "keys",
    .load = load,
    .free = unload,
    .generation = state_keys_generation,
};

/* ------------------------------------------------------------------ the question */

static const struct {
    const char *param, *prefix;
} key_headers[] = {
    { "HTTP_AUTHORIZATION", "Bearer " },
    { "HTTP_X_API_KEY", "" },
    { "HTTP_X_RELAY_SECRET", "" },
};

const struct key *auth_find(const struct keys *k, const struct request *req)
{
    for (size_t i = 0; i < ARRAY_SIZE(key_headers); i++) {
        const char *value = request_param(req, key_headers[i].param);
        size_t skip = strlen(key_headers[i].prefix);
        unsigned char hash[KEY_HASH_BYTES];
        const struct key *key;

        if (!*value || strncasecmp(value, key_headers[i].prefix, skip) != 0)
            continue;
        keys_hash(value + skip, hash);
        key = keys_find(k, hash);
        if (key)
            return key;
    }
    return NULL;
}

void auth_serve(struct live *keys, struct request *req, struct reply *rep)
{
    struct live_ref *ref = live_get(keys);
    const struct key *key = ref ? auth_find(ref->value, req) : NULL;

    req->note.operation = "auth";
    if (key) {
        rep->status = 204;
        req->tenant = arena_strdup(&req->arena, key->tenant);
        reply_header(rep, "X-Cove-Tenant", req->tenant);
    } else if (req->method == OPTIONS) {
        rep->status = 204; /* a preflight carries no key: it passes as nobody */
    } else {
        struct cove_err e;

        cove_fail(&e, COVE_UNAUTHORIZED, "a valid key is required");
        req->note.cause = cove_code_name(e.code);
        reply_header(rep, "WWW-Authenticate", "Bearer");
        reply_plain_error(req, rep, &e);
    }
    live_put(ref);
}
