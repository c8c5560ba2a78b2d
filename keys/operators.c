/* Operators: their file, their key pairs, and whether one has signed a text. */
#include "cove/operators.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "keys/keys_private.h"

#define FIRST_LINE "cove operator"
#define CURVE      "prime256v1"

enum { POINT = 1 + 2 * OPERATOR_NUMBER, DER_MAX = 80 }; /* a point begins with 4: uncompressed */

/* ------------------------------------------------------------------ the file */

static int parse_created(struct operator_key *o, const char *word, struct cove_err *e)
{
    if (!word)
        return 0;
    if (strncmp(word, "created=", 8) != 0)
        return cove_fail(e, COVE_INVALID, "'%.40s': no such setting", word);
    return keys_parse_time(word + 8, 0, &o->created_s, e);
}

static int parse_line(void *arg, char *line, struct cove_err *e)
{
    struct operators *all = arg;
    char *at = line;
    const char *name = next_word(&at), *point = next_word(&at), *created = next_word(&at);
    struct operator_key o = { 0 }, *items;

    if (!keys_is_name(name) || !text_copy(o.name, sizeof(o.name), name))
        return cove_fail(e, COVE_INVALID,
                         "an operator's name is 1 to 63 letters, digits, '.', '_', '-'");
    if (!point || !text_unhex(point, o.point, sizeof(o.point)))
        return cove_fail(e, COVE_INVALID, "128 hex digits must follow the name");
    if (parse_created(&o, created, e) < 0)
        return -1;
    items = realloc(all->items, (all->count + 1) * sizeof(*items));
    if (!items)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    all->items = items;
    all->items[all->count++] = o;
    return 0;
}

int operators_parse(const char *text, struct operators *ret, struct cove_err *e)
{
    struct operators all = { 0 };

    if (lines_parse(text, parse_line, &all, e) < 0) {
        operators_done(&all);
        return -1;
    }
    *ret = all;
    return 0;
}

void operators_done(struct operators *o)
{
    free(o->items);
    *o = (struct operators){ 0 };
}

int operators_load(const char *path, struct operators *ret, struct cove_err *e)
{
    AUTO_FREE char *text = NULL;

    if (lines_read(path, &text, e) < 0)
        return -1;
    return operators_parse(text, ret, e) < 0 ? cove_context(e, "%s", path) : 0;
}

static const struct operator_key *find(const struct operators *o, const char *name)
{
    for (size_t i = 0; i < o->count; i++)
        if (strcmp(o->items[i].name, name) == 0)
            return &o->items[i];
    return NULL;
}

/* ------------------------------------------------------------------ changing the file */

/* Copies all lines except that of the operator `drop` (NULL: all). True if there was such a
 * line. */
static bool copy_lines(const char *text, const char *drop, struct buf *out)
{
    bool dropped = false;

    while (*text) {
        size_t len = strcspn(text, "\n"), blanks = strspn(text, " \t");
        size_t word = strcspn(text + blanks, " \t\n");

        if (drop && strlen(drop) == word && strncmp(text + blanks, drop, word) == 0) {
            dropped = true;
        } else {
            buf_add(out, text, len);
            buf_add_char(out, '\n');
        }
        text += len + (text[len] == '\n');
    }
    return dropped;
}

static void add_line(const struct operator_key *o, struct buf *out)
{
    char hex[2 * sizeof(o->point) + 1], created[32];

    text_hex(o->point, sizeof(o->point), hex);
    text_format_time(o->created_s * 1000, created);
    buf_addf(out, "%s %s created=%.19sZ\n", o->name, hex, created);
}

static int change(const char *path, const struct operator_key *add, const char *drop,
                  struct cove_err *e)
{
    AUTO_BUF struct buf out = BUF(OPERATORS_FILE_MAX);
    AUTO_CLOSE int lock = lines_lock(path, e);
    AUTO_FREE char *text = NULL;
    struct operators now;
    bool taken;

    if (lock < 0 || lines_read(path, &text, e) < 0)
        return -1;
    if (operators_parse(text, &now, e) < 0)
        return cove_context(e, "%s", path);
    taken = add && find(&now, add->name);
    operators_done(&now);
    if (taken)
        return cove_fail(e, COVE_CONFLICT, "there is an operator '%.63s' already", add->name);
    if (!copy_lines(text, drop, &out) && drop)
        return cove_fail(e, COVE_NOT_FOUND, "no operator '%.63s' (`cove operator list` shows them)",
                         drop);
    if (add)
        add_line(add, &out);
    return lines_replace(path, &out, e);
}

int operators_add(const char *path, const struct operator_key *o, struct cove_err *e)
{
    return change(path, o, NULL, e);
}

int operators_remove(const char *path, const char *name, struct cove_err *e)
{
    return change(path, NULL, name, e);
}

/* ------------------------------------------------------------------ a new pair */

static bool read_pair(EVP_PKEY *pair, unsigned char d[OPERATOR_NUMBER], unsigned char point[POINT])
{
    BIGNUM *number = NULL;
    size_t len = 0;
    bool ok =
        EVP_PKEY_get_bn_param(pair, OSSL_PKEY_PARAM_PRIV_KEY, &number) == 1 &&
        BN_bn2binpad(number, d, OPERATOR_NUMBER) == OPERATOR_NUMBER &&
        EVP_PKEY_get_octet_string_param(pair, OSSL_PKEY_PARAM_PUB_KEY, point, POINT, &len) == 1 &&
        len == POINT && point[0] == 4;

    BN_clear_free(number);
    return ok;
}

int operator_new(const char *name, struct operator_key *ret, char ret_secret[OPERATOR_SECRET_MAX],
                 struct cove_err *e)
{
    EVP_PKEY *pair = EVP_EC_gen(CURVE);
    unsigned char d[OPERATOR_NUMBER], point[POINT];
    char *at = ret_secret;
    bool ok = pair && read_pair(pair, d, point);

    EVP_PKEY_free(pair);
    if (!ok)
        return cove_fail(e, COVE_INTERNAL, "libcrypto makes no key pair");
    if (!keys_is_name(name) || !text_copy(ret->name, sizeof(ret->name), name))
        return cove_fail(e, COVE_INVALID,
                         "an operator's name is 1 to 63 letters, digits, '.', '_', '-'");
    memcpy(ret->point, point + 1, sizeof(ret->point));
    ret->created_s = clock_unix_ms() / 1000;
    at += snprintf(at, OPERATOR_SECRET_MAX, OPERATOR_SECRET_PREFIX "%s_", ret->name);
    text_hex(d, sizeof(d), at);
    text_hex(ret->point, sizeof(ret->point), at + 2 * sizeof(d));
    explicit_bzero(d, sizeof(d));
    return 0;
}

/* ------------------------------------------------------------------ what is signed */

int operator_text(const struct operator_request *r, struct buf *out, struct cove_err *e)
{
    buf_addf(out, FIRST_LINE "\n%s\n%s", r->nonce, r->verb);
    for (size_t i = 0; i < r->count; i++)
        buf_addf(out, "\n%s", r->arguments[i]);
    for (size_t i = 0; i < r->count; i++)
        if (strpbrk(r->arguments[i], "\n\r"))
            return cove_fail(e, COVE_INVALID, "arguments: must not contain a line break");
    if (strpbrk(r->nonce, "\n\r") || strpbrk(r->verb, "\n\r"))
        return cove_fail(e, COVE_INVALID, "nonce, verb: must not contain line breaks");
    if (out->overflow || out->len >= OPERATOR_TEXT_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "an operator's request has at most %d bytes",
                         OPERATOR_TEXT_MAX - 1);
    return 0;
}

bool operator_cut(char *text, const char *parts[OPERATOR_ARGUMENTS_MAX + 3], size_t *ret_count)
{
    size_t count = 0;
    char *line;

    while ((line = strsep(&text, "\n"))) {
        if (count == OPERATOR_ARGUMENTS_MAX + 3)
            return false;
        parts[count++] = line;
    }
    *ret_count = count;
    return count >= 3 && strcmp(parts[0], FIRST_LINE) == 0;
}

/* ------------------------------------------------------------------ signatures */

static EVP_PKEY *public_key(const struct operator_key *o)
{
    unsigned char point[POINT] = { 4 };
    char curve[] = CURVE;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, curve, 0),
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)),
        OSSL_PARAM_construct_end(),
    };
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    EVP_PKEY *key = NULL;

    memcpy(point + 1, o->point, sizeof(o->point));
    if (!ctx || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(ctx);
    return key;
}

/* Writes the two numbers of the signature in DER, as OpenSSL wants them. Returns the length, or
 * 0. */
static size_t to_der(const unsigned char signature[OPERATOR_SIGNATURE], unsigned char der[DER_MAX])
{
    ECDSA_SIG *sig = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(signature, OPERATOR_NUMBER, NULL);
    BIGNUM *s = BN_bin2bn(signature + OPERATOR_NUMBER, OPERATOR_NUMBER, NULL);
    int len = 0;

    if (sig && r && s && ECDSA_SIG_set0(sig, r, s) == 1) {
        r = s = NULL; /* the signature owns them from here on */
        len = i2d_ECDSA_SIG(sig, NULL);
        len = len > 0 && len <= DER_MAX ? i2d_ECDSA_SIG(sig, &der) : 0;
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(sig);
    return len > 0 ? (size_t)len : 0;
}

static bool is_signed(const struct operator_key *o, const void *text, size_t len,
                      const unsigned char signature[OPERATOR_SIGNATURE])
{
    unsigned char der[DER_MAX];
    size_t der_len = to_der(signature, der);
    EVP_PKEY *key = public_key(o);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = key && md && der_len > 0 &&
              EVP_DigestVerifyInit(md, NULL, EVP_sha256(), NULL, key) == 1 &&
              EVP_DigestVerify(md, der, der_len, text, len) == 1;

    EVP_MD_CTX_free(md);
    EVP_PKEY_free(key);
    return ok;
}

int operators_check(const struct operators *o, const char *name, const void *text, size_t len,
                    const unsigned char signature[OPERATOR_SIGNATURE], struct cove_err *e)
{
    const struct operator_key *one = find(o, name);

    if (one && is_signed(one, text, len, signature))
        return 0;
    return cove_fail(e, COVE_FORBIDDEN, "this is not the signature of an operator of this server");
}
