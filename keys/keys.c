/* The table of keys: reading it, writing a line of it, finding a key. */
#define _XOPEN_SOURCE 700 /* strptime */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "keys/keys_private.h"

/* A tenant ends up in headers, logs and shared memory: plain names only. */
bool keys_is_name(const char *s)
{
    return *s &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] ==
               '\0';
}

/* ------------------------------------------------------------------ settings */

static int parse_relative(const char *text, uint64_t now_s, uint64_t *ret_s, struct cove_err *e)
{
    size_t digits = strspn(text, "0123456789");
    char number[16];
    uint64_t n;

    if (digits > 0 && digits < sizeof(number) && strcmp(text + digits, "d") == 0) {
        snprintf(number, sizeof(number), "%.*s", (int)digits, text);
        if (text_parse_u64(number, &n, e) < 0 || n == 0 || n > 36500)
            return cove_fail(e, COVE_INVALID, "%.20s is not between 1d and 36500d", text);
        *ret_s = now_s + n * 86400;
        return 0;
    }
    if (text_parse_ms(text, &n, e) < 0 || n < 1000)
        return cove_fail(e, COVE_INVALID,
                         "'%.40s' is neither a time (2027-01-31T12:00:00Z, 2027-01-31) nor a span "
                         "(90d, 12h)",
                         text);
    *ret_s = now_s + n / 1000;
    return 0;
}

int keys_parse_time(const char *text, uint64_t now_s, uint64_t *ret_s, struct cove_err *e)
{
    static const char *const formats[] = { "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d" };

    for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
        struct tm tm = { 0 };
        const char *end = strptime(text, formats[i], &tm);
        time_t t;

        if (!end || *end)
            continue;
        t = timegm(&tm);
        if (t <= 0)
            return cove_fail(e, COVE_INVALID, "'%.40s' is too long ago", text);
        *ret_s = (uint64_t)t;
        return 0;
    }
    if (!now_s) /* a span in a file would begin anew whenever the file is read */
        return cove_fail(e, COVE_INVALID, "'%.40s' is not a time (2027-01-31T12:00:00Z)", text);
    return parse_relative(text, now_s, ret_s, e);
}

static int set_list(char *field, size_t size, const char *name, const char *value,
                    struct cove_err *e)
{
    if (!*value)
        return cove_fail(e, COVE_INVALID, "%s: is empty; leave it out to allow all", name);
    for (const char *c = value; *c; c++)
        if ((unsigned char)*c <= ' ')
            return cove_fail(e, COVE_INVALID, "%s: has a blank or a control character in it", name);
    if (!text_copy(field, size, value))
        return cove_fail(e, COVE_INVALID, "%s: longer than %zu characters", name, size - 1);
    return 0;
}

int keys_set(struct key *key, const char *setting, const char *value, struct cove_err *e)
{
    int rc;

    if (strcmp(setting, "created") == 0)
        rc = keys_parse_time(value, 0, &key->created_s, e);
    else if (strcmp(setting, "expires") == 0)
        rc = keys_parse_time(value, 0, &key->expires_s, e);
    else if (strcmp(setting, "dialects") == 0)
        return set_list(key->dialects, sizeof(key->dialects), setting, value, e);
    else if (strcmp(setting, "projects") == 0)
        return set_list(key->projects, sizeof(key->projects), setting, value, e);
    else if (strcmp(setting, "disk") == 0)
        return cove_fail(e, COVE_INVALID, "disk: can be set for a tenant, not for a key");
    else if ((rc = quota_set(&key->limits, setting, value, e)) != 0)
        return rc < 0 ? -1 : 0;
    else
        return cove_fail(e, COVE_INVALID, "'%.40s': no such setting", setting);
    return rc < 0 ? cove_context(e, "%s", setting) : 0;
}

/* ------------------------------------------------------------------ lines */

static int parse_settings(struct key *key, char *at, struct cove_err *e)
{
    char *word;

    while ((word = next_word(&at))) {
        char *eq = strchr(word, '=');

        if (!eq)
            return cove_fail(e, COVE_INVALID, "'%.40s' is not of the form setting=value", word);
        *eq = '\0';
        if (keys_set(key, word, eq + 1, e) < 0)
            return -1;
    }
    return 0;
}

static int parse_line(void *arg, char *line, struct cove_err *e)
{
    struct keys *k = arg;
    char *at = line;
    const char *hash = next_word(&at), *tenant = next_word(&at), *name = next_word(&at);
    struct key key = { 0 };
    struct key *items;

    if (!text_unhex(hash, key.hash, KEY_HASH_BYTES))
        return cove_fail(e, COVE_INVALID, "must begin with 64 hex digits");
    if (!tenant || !keys_is_name(tenant) || !text_copy(key.tenant, sizeof(key.tenant), tenant))
        return cove_fail(e, COVE_INVALID, "tenant must be 1 to 63 letters, digits, '.', '_', '-'");
    if (name && strchr(name, '='))
        return cove_fail(e, COVE_INVALID, "a name must stand before '%.40s'", name);
    text_copy(key.name, sizeof(key.name), name ? name : "");
    if (parse_settings(&key, at, e) < 0)
        return -1;
    items = realloc(k->items, (k->count + 1) * sizeof(*items));
    if (!items)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    k->items = items;
    k->items[k->count++] = key;
    return 0;
}

int keys_parse(const char *text, struct keys *ret, struct cove_err *e)
{
    struct keys k = { 0 };

    if (lines_parse(text, parse_line, &k, e) < 0) {
        keys_done(&k);
        return -1;
    }
    *ret = k;
    return 0;
}

void keys_done(struct keys *k)
{
    free(k->items);
    *k = (struct keys){ 0 };
}

static void format_time(struct buf *out, const char *name, uint64_t at_s)
{
    time_t t = (time_t)at_s;
    char text[32];
    struct tm tm;

    if (!at_s)
        return;
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
    buf_addf(out, " %s=%s", name, text);
}

int keys_format(const struct key *key, struct buf *out)
{
    char hex[2 * KEY_HASH_BYTES + 1];

    text_hex(key->hash, KEY_HASH_BYTES, hex);
    buf_addf(out, "%s %s %s", hex, key->tenant, key->name[0] ? key->name : "-");
    format_time(out, "created", key->created_s);
    format_time(out, "expires", key->expires_s);
    if (key->dialects[0])
        buf_addf(out, " dialects=%s", key->dialects);
    if (key->projects[0])
        buf_addf(out, " projects=%s", key->projects);
    quota_format(&key->limits, out);
    return buf_add_char(out, '\n');
}

/* ------------------------------------------------------------------ finding */

void keys_hash(const char *key, unsigned char ret[KEY_HASH_BYTES])
{
    if (EVP_Digest(key, strlen(key), ret, NULL, EVP_sha256(), NULL) != 1)
        abort(); /* without SHA-256 no key can be recognised */
}

void keys_id(const struct key *key, char ret[KEY_ID_LEN + 1])
{
    text_hex(key->hash, KEY_ID_LEN / 2, ret);
}

const struct key *keys_find(const struct keys *k, const unsigned char hash[KEY_HASH_BYTES])
{
    const struct key *found = NULL;

    for (size_t i = 0; i < k->count; i++)
        if (CRYPTO_memcmp(k->items[i].hash, hash, KEY_HASH_BYTES) == 0)
            found = &k->items[i];
    return found;
}

const struct key *keys_find_id(const struct keys *k, const char *id)
{
    const struct key *found = NULL;

    for (size_t i = 0; i < k->count; i++) {
        char other[KEY_ID_LEN + 1];

        keys_id(&k->items[i], other);
        if (strcmp(id, other) != 0)
            continue;
        if (found)
            return NULL;
        found = &k->items[i];
    }
    return found;
}
