/* JSON text into json-c's tree. What makes a tree large is counted before it is built. */
#include <json-c/json.h>
#include <limits.h>

#include "cove/json.h"

struct shape {
    size_t depth, containers, values;
};

/*
 * Skips a string whose opening quote is at `at`. Returns its closing quote, or the end of the text.
 * NULL: the string has a raw control character, which json-c would let pass.
 */
static const char *skip_string(const char *at, const char *end)
{
    for (at++; (at += text_plain_run(at, (size_t)(end - at))) < end && *at != '"'; at++) {
        if ((unsigned char)*at < ' ')
            return NULL;
        if (*at == '\\' && ++at == end)
            break;
    }
    return at;
}

static int count_char(struct shape *s, char c, struct cove_err *e)
{
    switch (c) {
    case '{':
    case '[':
        if (++s->depth > JSON_DEPTH_MAX)
            return cove_fail(e, COVE_INVALID, "body: nested deeper than %d", JSON_DEPTH_MAX);
        if (++s->containers > JSON_CONTAINERS_MAX)
            return cove_fail(e, COVE_INVALID, "body: more than %d objects and arrays",
                             JSON_CONTAINERS_MAX);
        break;
    case '}':
    case ']':
        s->depth -= s->depth > 0;
        break;
    case ',':
        if (++s->values > JSON_VALUES_MAX)
            return cove_fail(e, COVE_INVALID, "body: more than %d values", JSON_VALUES_MAX);
        break;
    }
    return 0;
}

/* Only counts: text that is not JSON passes here and fails in the parser. */
static int check_shape(const char *text, size_t len, struct cove_err *e)
{
    struct shape shape = { 0 };
    const char *end = text + len;

    for (const char *at = text; at < end; at++) {
        if (*at == '"' && !(at = skip_string(at, end)))
            return cove_fail(e, COVE_INVALID,
                             "body: not JSON: a raw control character in a string");
        if (at < end && count_char(&shape, *at, e) < 0)
            return -1;
    }
    return 0;
}

/* How much json-c allocates for a container and for a value, with malloc's overhead, rounded up. */
enum { CONTAINER_BYTES = 1024, VALUE_BYTES = 160 };

size_t json_weight(const char *text, size_t len)
{
    size_t containers = 0, values = 0;
    const char *end = text + len;

    /* A text beyond the bounds is refused before any tree is built. */
    for (const char *at = text; at && at < end && containers < JSON_CONTAINERS_MAX; at++) {
        if (*at == '"' && (!(at = skip_string(at, end)) || at == end))
            break;
        containers += *at == '{' || *at == '[';
        values += *at == ',' && values < JSON_VALUES_MAX;
    }
    return 2 * len + containers * CONTAINER_BYTES + values * VALUE_BYTES;
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
        at++;
    return at;
}

static int parse_with(struct json_tokener *tok, const char *text, size_t len,
                      struct json_object **ret, struct cove_err *e)
{
    struct json_object *root;
    size_t stop;

    json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS |
                                    JSON_TOKENER_VALIDATE_UTF8);
    root = json_tokener_parse_ex(tok, text, (int)len);
    stop = json_tokener_get_parse_end(tok);
    if (!root) {
        enum json_tokener_error why = json_tokener_get_error(tok);

        if (why == json_tokener_continue)
            return cove_fail(e, COVE_INVALID, "body: not JSON: it ends too early");
        return cove_fail(e, COVE_INVALID, "body: not JSON: %s at byte %zu",
                         json_tokener_error_desc(why), stop);
    }
    if (skip_blanks(text + stop, text + len) < text + len) {
        json_object_put(root);
        return cove_fail(e, COVE_INVALID, "body: not JSON: text after its end at byte %zu", stop);
    }
    *ret = root;
    return 0;
}

int json_parse(const char *text, size_t len, struct json_object **ret, struct cove_err *e)
{
    const char *start = text ? skip_blanks(text, text + len) : NULL;
    struct json_tokener *tok;
    int rc;

    if (!text || start == text + len)
        return cove_fail(e, COVE_INVALID, "body: empty, a JSON object is expected");
    if (*start != '{')
        return cove_fail(e, COVE_INVALID, "body: must be a JSON object");
    if (len > INT_MAX)
        return cove_fail(e, COVE_INVALID, "body: %zu bytes are more than %d", len, INT_MAX);
    if (check_shape(text, len, e) < 0)
        return -1;
    tok =
        json_tokener_new_ex(JSON_DEPTH_MAX + 1); /* json-c counts the innermost value as a level */
    if (!tok)
        return cove_fail(e, COVE_BUSY,
                         "body: the server has no memory for it, try again in a second");
    rc = parse_with(tok, text, len, ret, e);
    json_tokener_free(tok);
    return rc;
}

void json_free(struct json_object *tree)
{
    json_object_put(tree);
}
