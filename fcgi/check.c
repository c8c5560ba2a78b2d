/* Checks of fields that several dialects have. */
#include "fcgi/check.h"

#include <string.h>

#include "cove/base64.h"
#include "cove/config.h"
#include "cove/manifest.h"
#include "cove/msg.h"
#include "cove/text.h"

static bool is_control(const char *s, size_t len)
{
    unsigned char c = (unsigned char)*s;

    return c < ' ' || c == 127 || (len == 2 && c == 0xC2 && (unsigned char)s[1] < 0xA0);
}

int check_project(const char *field, const char *name, struct cove_err *e)
{
    size_t left = strlen(name);

    if (left == 0)
        return cove_fail(e, COVE_INVALID, "%s: must not be empty", field);
    if (left > PROJECT_MAX_BYTES)
        return cove_fail(e, COVE_INVALID, "%s: longer than %d bytes", field, PROJECT_MAX_BYTES);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return cove_fail(e, COVE_INVALID, "%s: must not be '.' or '..'", field);
    while (left > 0) {
        size_t len = text_utf8_seq(name, left);

        if (len == 0)
            return cove_fail(e, COVE_INVALID, "%s: must be valid UTF-8", field);
        if (is_control(name, len))
            return cove_fail(e, COVE_INVALID, "%s: must not contain control characters", field);
        if (*name == '/' || *name == '\\')
            return cove_fail(e, COVE_INVALID, "%s: must not contain '%c'", field, *name);
        name += len;
        left -= len;
    }
    return 0;
}

int check_extension(int64_t seconds, const struct cove_config *config, struct cove_err *e)
{
    int64_t most = (int64_t)(config->lifetime_ms / 1000);

    if (seconds > most)
        return cove_fail(e, COVE_INVALID, "seconds: %lld is above %lld", (long long)seconds,
                         (long long)most);
    return 0;
}

int check_template(const char *field, const char *name, struct cove_err *e)
{
    if (name && !manifest_is_name(name))
        return cove_fail(e, COVE_INVALID,
                         "%s: must be 1 to 63 lower-case letters, digits, '.', '_', '-'", field);
    return 0;
}

int check_cwd(const char *cwd, struct cove_err *e)
{
    if (cwd && *cwd != '/')
        return cove_fail(e, COVE_INVALID, "cwd: must begin with '/'");
    return 0;
}

int check_query_path(const char *field, const char *path, struct cove_err *e)
{
    if (!path || !*path)
        return cove_fail(e, COVE_INVALID, "%s: is missing from the query", field);
    if (strlen(path) >= MSG_PATH_MAX)
        return cove_fail(e, COVE_INVALID, "%s: longer than %d bytes", field, MSG_PATH_MAX - 1);
    return 0;
}

int check_encoding(const char *encoding, bool *ret_base64, struct cove_err *e)
{
    bool base64 = encoding && strcmp(encoding, "base64") == 0;

    if (encoding && !base64 && strcmp(encoding, "utf-8") != 0)
        return cove_fail(e, COVE_INVALID, "encoding: must be utf-8 or base64");
    *ret_base64 = base64;
    return 0;
}

int check_base64(struct arena *a, const char *field, struct json_text *text, struct cove_err *e)
{
    char *bytes = arena_alloc(a, text->len / 4 * 3 + 1);

    if (base64_decode(text->bytes, text->len, bytes, &text->len) < 0)
        return cove_fail(e, COVE_INVALID, "%s: is not base64", field);
    text->bytes = bytes;
    return 0;
}

static bool is_env_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

    return *name && strchr(letters, *name) && name[strspn(name, all)] == '\0';
}

int check_env(struct arena *a, const struct json_map *env, const char *const **ret,
              struct cove_err *e)
{
    const char **strings = arena_alloc(a, (env->count + 1) * sizeof(*strings));
    size_t total = 0;

    for (size_t i = 0; i < env->count; i++) {
        const struct pair *p = &env->items[i];

        if (!is_env_name(p->name))
            return cove_fail(e, COVE_INVALID,
                             "env: '%.60s' is not a name of letters, digits and '_'", p->name);
        strings[i] = arena_printf(a, "%s=%s", p->name, p->value);
        total += strlen(strings[i]) + 1;
    }
    if (total > ENV_MAX_BYTES)
        return cove_fail(e, COVE_INVALID, "env: %zu bytes are more than %d", total, ENV_MAX_BYTES);
    *ret = strings;
    return 0;
}
