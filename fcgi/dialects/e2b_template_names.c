/* How clients name templates, tags and builds, and how the states of a build are called. */
#include <ctype.h>
#include <openssl/sha.h>
#include <string.h>

#include "fcgi/dialects/e2b_templates.h"

const char *e2b_template_word(struct request *req, const char *given)
{
    const char *colon = strchr(given, ':');

    return colon && strcmp(colon, ":default") == 0
               ? arena_strndup(&req->arena, given, (size_t)(colon - given))
               : given;
}

static bool is_word(const char *word)
{
    size_t len = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789-_.");

    return len > 0 && len < COVE_TAG_MAX && !word[len];
}

/* The form of a build's id: 8-4-4-4-12 hexadecimal digits. */
static bool is_uuid(const char *word)
{
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

    for (size_t i = 0; i < sizeof(form) - 1; i++)
        if (form[i] == 'x' ? !isxdigit((unsigned char)word[i]) : word[i] != '-')
            return false;
    return word[sizeof(form) - 1] == '\0';
}

int e2b_check_tag(const char *field, const char *tag, struct cove_err *e)
{
    if (is_word(tag) && !is_uuid(tag))
        return 0;
    return cove_fail(
        e, COVE_INVALID,
        "%s: tag '%.60s' must be lower-case letters, digits, '-', '_', '.', and not a UUID", field,
        tag);
}

static bool is_name(const char *name)
{
    return is_word(name) && name[0] != '.' && name[0] != '-' && !text_is_id(name);
}

int e2b_template_split(struct request *req, const char *field, const char *given,
                       const char **ret_name, const char **ret_tag, struct cove_err *e)
{
    const char *word = core_template_word(req->tenant, given), *colon = strchr(word, ':');
    const char *name = colon ? arena_strndup(&req->arena, word, (size_t)(colon - word)) : word;
    const char *tag = colon ? colon + 1 : "";

    if (strchr(name, '/'))
        return cove_fail(e, COVE_INVALID, "%s: a template of this tenant is %.63s/NAME", field,
                         req->tenant);
    if (!is_name(name))
        return cove_fail(
            e, COVE_INVALID,
            "%s: '%.60s' must be 1 to 63 lower-case letters, digits, '-', '_', and not "
            "look like an id",
            field, name);
    if (colon && e2b_check_tag(field, tag, e) < 0)
        return -1;
    *ret_name = name;
    *ret_tag = tag;
    return 0;
}

int e2b_template_name(struct request *req, const char **ret, struct cove_err *e)
{
    const char *given = request_capture(req, "template"), *tag;

    if (e2b_template_split(req, "templateID", given, ret, &tag, NULL) < 0)
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given);
    return 0;
}

const char *e2b_template_id(struct request *req, const char *name)
{
    return arena_printf(&req->arena, "%s/%s", req->tenant, name);
}

const char *e2b_build_id(struct request *req, const struct keeper_snapshot *s)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char hex[33];

    if (s->build[0])
        return arena_strdup(&req->arena, s->build);
    SHA256((const unsigned char *)s->id, strlen(s->id), hash);
    text_hex(hash, 16, hex);
    return arena_printf(&req->arena, "%.8s-%.4s-4%.3s-8%.3s-%.12s", hex, hex + 8, hex + 13,
                        hex + 17, hex + 20);
}

struct json_strings e2b_words(struct arena *a, const char *list)
{
    char *rest = list ? arena_strdup(a, list) : NULL, *word;
    struct json_strings ret = { 0 };

    ret.items = arena_alloc(a, ((list ? strlen(list) : 0) / 2 + 2) * sizeof(*ret.items));
    while ((word = strsep(&rest, " ")))
        if (*word)
            ret.items[ret.count++] = word;
    return ret;
}

const char *e2b_build_state(uint32_t state)
{
    static const char *const names[] = { "waiting", "waiting", "building", "ready", "error" };

    return state < ARRAY_SIZE(names) ? names[state] : "error";
}
