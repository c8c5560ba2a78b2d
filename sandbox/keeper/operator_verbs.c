/* What operators may ask for. Each verb is the words of one `cove` command, with places for arguments. */
#include <stdio.h>
#include <string.h>

#include "cove/mem.h"
#include "sandbox/keeper/operator.h"

static const struct operator_verb verbs[] = {
    { "status", false, { "status", "--json" } },
    { "doctor", false, { "doctor", "--json" } },
    { "tenants", false, { "tenant", "list", "--json" } },
    { "templates", false, { "template", "ls", "--json" } },
    { "builds", false, { "template", "builds", "--json" } },
    { "keys", false, { "key", "list", "--json" } },
    { "audit",
      false,
      { "policy", "log", "--all", "--json", "--lines=?", "--tenant=?", "--rule=?" } },
    { "audit-verify", false, { "audit", "verify", "--json" } },
    { "key-create",
      true,
      { "key", "create", "--json", "--hash=", "--name=?", "--expires=?", "--dialects=?",
        "--projects=?", "--requests=?", "--sandboxes=?", "--processes=?", "--", "$" } },
    { "key-rotate", true, { "key", "rotate", "--json", "--hash=", "--grace=?", "--", "$" } },
    { "key-revoke", true, { "key", "revoke", "--json", "--", "$" } },
};

const struct operator_verb *operator_verb_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static bool add_word(struct operator_command *c, const char *word, size_t word_len,
                     const char *value)
{
    size_t len = word_len + strlen(value) + 1;
    char *at = c->text + c->used;

    if (len > sizeof(c->text) - c->used)
        return false;
    snprintf(at, len, "%.*s%s", (int)word_len, word, value);
    c->used += len;
    c->argv[c->count++] = at;
    return true;
}

enum arg_place { ARG_NONE, ARG_REQUIRED, ARG_OPTIONAL };

/* Tells how a word of the table takes an argument, and how many characters of the word stay in front of it. */
static enum arg_place place_of(const char *word, size_t *ret_kept)
{
    size_t len = strlen(word);

    *ret_kept = len;
    if (strcmp(word, "$") == 0) {
        *ret_kept = 0;
        return ARG_REQUIRED;
    }
    if (len > 2 && strcmp(word + len - 2, "=?") == 0) {
        *ret_kept = len - 1;
        return ARG_OPTIONAL;
    }
    return word[len - 1] == '=' ? ARG_REQUIRED : ARG_NONE;
}

int operator_verb_build(const struct keeper *k, const struct operator_verb *v,
                        const char *const *arguments, size_t count, struct operator_command *ret,
                        struct cove_err *e)
{
    size_t next = 0;
    bool fits = true;

    *ret = (struct operator_command){ .argv = { "cove" }, .count = 1 };
    if (k->config_path)
        fits = add_word(ret, "-c", 2, "") && add_word(ret, "", 0, k->config_path);
    for (size_t i = 0; i < OPERATOR_WORDS_MAX && v->words[i]; i++) {
        size_t kept;
        enum arg_place place = place_of(v->words[i], &kept);
        const char *value = place && next < count ? arguments[next++] : "";

        if (place == ARG_REQUIRED && !*value)
            return cove_fail(e, COVE_INVALID, "arguments: number %zu of %s is missing", next,
                             v->name);
        if (place != ARG_OPTIONAL || *value)
            fits &= add_word(ret, v->words[i], kept, value);
    }
    if (next < count)
        return cove_fail(e, COVE_INVALID, "arguments: %s takes %zu of them", v->name, next);
    return fits ? 0 : cove_fail(e, COVE_TOO_LARGE, "arguments: too long");
}
