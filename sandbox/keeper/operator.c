/*
 * Requests of operators: they ask over HTTP for what `cove` does for root, and have signed their request.
 *
 * A request comes by way of a worker, and a worker may be in hostile hands. So the request is believed only if
 * the signature on its text is that of an operator (keys/operators.c), and only once: the text repeats a nonce
 * that this keeper has made within the last minutes, and the first request with a good signature uses the nonce
 * up. operator_verbs.c has the table of what may be asked for: each verb is one `cove` command, which runs as a
 * child (operator_run.c).
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/operator.h"

enum {
    RUNS_MAX = 4, /* operators' commands at a time */
    NONCE_MS = 2 * 60000,
    NONCES_USED = 512, /* within NONCE_MS; only a program in a loop needs more */
    SECRET_BYTES = 32,
};

/* ------------------------------------------------------------------ nonces */

struct operator_desk {
    unsigned char secret[SECRET_BYTES]; /* this keeper signs its nonces with it */
    struct {
        char nonce[KEEPER_NONCE_MAX];
        uint64_t until_ms;
    } used[NONCES_USED];
    struct operator_run runs[RUNS_MAX];
};

static struct operator_desk *desk_of(struct keeper *k)
{
    if (!k->operators && (k->operators = calloc(1, sizeof(*k->operators))))
        text_random(k->operators->secret, SECRET_BYTES);
    return k->operators;
}

/* "MILLISECONDS-RANDOM-MAC" */
static void seal_nonce(const struct operator_desk *d, const char *body, char ret[KEEPER_NONCE_MAX])
{
    unsigned char mac[32];
    char hex[2 * sizeof(mac) + 1];

    HMAC(EVP_sha256(), d->secret, SECRET_BYTES, (const unsigned char *)body, strlen(body), mac,
         NULL);
    text_hex(mac, sizeof(mac), hex);
    snprintf(ret, KEEPER_NONCE_MAX, "%s-%.32s", body, hex);
}

void operator_nonce(struct keeper *k, struct keeper_nonce *ret)
{
    struct operator_desk *d = desk_of(k);
    unsigned char random[16];
    char hex[2 * sizeof(random) + 1], body[KEEPER_NONCE_MAX / 2];

    *ret = (struct keeper_nonce){ 0 };
    if (!d)
        return;
    text_random(random, sizeof(random));
    text_hex(random, sizeof(random), hex);
    snprintf(body, sizeof(body), "%llx-%s", (unsigned long long)clock_boot_ms(), hex);
    seal_nonce(d, body, ret->nonce);
}

static bool nonce_is_ours(const struct operator_desk *d, const char *nonce)
{
    char body[KEEPER_NONCE_MAX], again[KEEPER_NONCE_MAX] = "";
    char *mac = text_copy(body, sizeof(body), nonce) ? strrchr(body, '-') : NULL;
    uint64_t made_ms = strtoull(nonce, NULL, 16), now_ms = clock_boot_ms();

    if (!mac)
        return false;
    *mac = '\0';
    if (strlen(body) >= KEEPER_NONCE_MAX / 2)
        return false;
    seal_nonce(d, body, again);
    return strlen(again) == strlen(nonce) && CRYPTO_memcmp(again, nonce, strlen(again)) == 0 &&
           made_ms <= now_ms && now_ms - made_ms < NONCE_MS;
}

/* Called after the signature was checked, so that nobody but an operator can fill this table. */
static int use_nonce(struct operator_desk *d, const char *nonce, struct cove_err *e)
{
    uint64_t now_ms = clock_boot_ms();
    size_t room = NONCES_USED;

    for (size_t i = 0; i < NONCES_USED; i++) {
        if (d->used[i].until_ms <= now_ms)
            room = i;
        else if (strcmp(d->used[i].nonce, nonce) == 0)
            return cove_fail(e, COVE_CONFLICT, "this request was made before: sign a new one");
    }
    if (room == NONCES_USED)
        return cove_fail(e, COVE_BUSY, "operators have asked too much: try again in a minute");
    text_copy(d->used[room].nonce, sizeof(d->used[room].nonce), nonce);
    d->used[room].until_ms = now_ms + NONCE_MS;
    return 0;
}

/* ------------------------------------------------------------------ who asks */

/* Reads the copy in run_dir, which the keeper itself has written: workers can read it, and only root can
 * write it. */
static int check_signature(struct keeper *k, const struct keeper_operator *ask, const char *text,
                           struct cove_err *e)
{
    struct operators all;
    char path[320];
    int rc;

    snprintf(path, sizeof(path), "%s/" OPERATORS_FILE, k->config.run_dir);
    if (operators_load(path, &all, e) < 0)
        return -1;
    rc = operators_check(&all, ask->name, text, strlen(text), ask->signature, e);
    operators_done(&all);
    return rc;
}

static int note(struct keeper *k, const char *who, const struct operator_command *c,
                struct cove_err *e)
{
    AUTO_BUF struct buf line = BUF(OPERATOR_TEXT_MAX * 2);
    struct audit_entry entry = { .event = "operator",
                                 .dialect = dialect_name(DIALECT_OF_OPERATORS),
                                 .key = who };

    for (size_t i = k->config_path ? 3 : 1; i < c->count; i++)
        buf_addf(&line, "%s%s", line.len ? " " : "", c->argv[i]);
    entry.command = line.data;
    entry.command_len = line.len;
    entry.always = true;
    log_event(LOG_LEVEL_INFO, "an operator changes something", LOG_S("operator", who),
              LOG_S("command", line.data));
    return k->audit ? audit_append(k->audit, &entry, e) : 0;
}

/* ------------------------------------------------------------------ the request */

struct operator_run *operator_run_at(const struct keeper *k, uint32_t index)
{
    return &k->operators->runs[index];
}

static int find_free_run(const struct operator_desk *d, uint32_t *ret)
{
    for (uint32_t i = 0; i < RUNS_MAX; i++)
        if (!d->runs[i].busy) {
            *ret = i;
            return 0;
        }
    return -1;
}

static int obey(struct keeper *k, const struct keeper_operator *ask, char *text,
                const struct waiter *w, struct cove_err *e)
{
    const char *parts[OPERATOR_ARGUMENTS_MAX + 3];
    struct operator_desk *d = desk_of(k);
    const struct operator_verb *verb;
    struct operator_command command;
    uint32_t run;
    size_t count;

    if (!d || find_free_run(d, &run) < 0)
        return cove_fail(e, COVE_BUSY, "requests of other operators are under way: try again");
    if (check_signature(k, ask, text, e) < 0)
        return -1;
    if (!operator_cut(text, parts, &count) || !nonce_is_ours(d, parts[1]))
        return cove_fail(e, COVE_CONFLICT, "the nonce is too old: sign the request again");
    verb = operator_verb_find(parts[2]);
    if (!verb)
        return cove_fail(e, COVE_INVALID, "verb: '%.40s' is not known", parts[2]);
    if (use_nonce(d, parts[1], e) < 0 ||
        operator_verb_build(k, verb, parts + 3, count - 3, &command, e) < 0 ||
        (verb->changes && note(k, ask->name, &command, e) < 0))
        return -1;
    return operator_run_start(k, run, &command, w, e);
}

void operator_ask(struct keeper *k, const struct keeper_operator *ask, char *text,
                  const struct waiter *w)
{
    struct cove_err err = { 0 };

    if (obey(k, ask, text, w, &err) < 0)
        keeper_answer_error(k, w, &err);
}
