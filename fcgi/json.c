/* JSON: bounds first, then json-c, then a table of fields. */
#include "fcgi/json.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "cove/text.h"

/* ------------------------------------------------------------------ from text to a tree */

struct shape {
    size_t depth, containers, values;
};

/*
 * Skip a string whose opening quote is at `at`; returns its closing quote or the end. NULL: a
 * control character as it is, which json-c would let pass.
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
    const char *end = text + len;
    const char *start = skip_blanks(text, end);
    struct json_tokener *tok;
    int rc;

    if (start == end)
        return cove_fail(e, COVE_INVALID, "body: empty, a JSON object is expected");
    if (*start != '{')
        return cove_fail(e, COVE_INVALID, "body: must be a JSON object");
    if (check_shape(text, len, e) < 0)
        return -1;
    tok = json_tokener_new_ex(JSON_DEPTH_MAX + 1); /* it counts the innermost value as a level */
    if (!tok)
        return cove_fail(e, COVE_BUSY, "body: no memory for it");
    rc = parse_with(tok, text, len, ret, e);
    json_tokener_free(tok);
    return rc;
}

static int parse_body(struct request *req, struct cove_err *e)
{
    return req->json ? 0 : json_parse(req->body.data, req->body.len, &req->json, e);
}

/* ------------------------------------------------------------------ from the tree to a struct */

struct where { /* for messages: "name", "name[3]" or "name.key" */
    const char *name;
    long index; /* -1 = none */
    const char *key;
};

static int bad(const struct where *w, struct cove_err *e, const char *what)
{
    if (w->key)
        return cove_fail(e, COVE_INVALID, "%s.%.60s: %s", w->name, w->key, what);
    if (w->index >= 0)
        return cove_fail(e, COVE_INVALID, "%s[%ld]: %s", w->name, w->index, what);
    return cove_fail(e, COVE_INVALID, "%s: %s", w->name, what);
}

static int get_text(const struct where *w, struct json_object *v, size_t max, struct json_text *ret,
                    struct cove_err *e)
{
    const char *s;
    size_t len;
    char what[80];

    if (!json_object_is_type(v, json_type_string))
        return bad(w, e, "must be a string");
    s = json_object_get_string(v);
    len = (size_t)json_object_get_string_len(v);
    if (!text_is_utf8(s, len)) /* json-c takes surrogates */
        return bad(w, e, "is not valid UTF-8");
    if (len > max) {
        snprintf(what, sizeof(what), "%zu bytes are more than %zu", len, max);
        return bad(w, e, what);
    }
    *ret = (struct json_text){ s, len };
    return 0;
}

static int get_str(const struct where *w, struct json_object *v, size_t max, const char **ret,
                   struct cove_err *e)
{
    struct json_text text;

    if (get_text(w, v, max, &text, e) < 0)
        return -1;
    if (memchr(text.bytes, '\0', text.len))
        return bad(w, e, "must not contain a NUL character");
    *ret = text.bytes;
    return 0;
}

static int get_int(const struct json_field *f, struct json_object *v, int64_t *ret,
                   struct cove_err *e)
{
    int64_t n;

    if (!json_object_is_type(v, json_type_int))
        return cove_fail(e, COVE_INVALID, "%s: must be a whole number", f->name);
    n = json_object_get_int64(v); /* saturates, so what is too large stays too large */
    if (n < f->min)
        return cove_fail(e, COVE_INVALID, "%s: %" PRId64 " is below %" PRId64, f->name, n, f->min);
    if (n > f->max)
        return cove_fail(e, COVE_INVALID, "%s: %" PRId64 " is above %" PRId64, f->name, n, f->max);
    *ret = n;
    return 0;
}

static int get_bool(const struct json_field *f, struct json_object *v, bool *ret,
                    struct cove_err *e)
{
    if (!json_object_is_type(v, json_type_boolean))
        return cove_fail(e, COVE_INVALID, "%s: must be true or false", f->name);
    *ret = json_object_get_boolean(v);
    return 0;
}

static int too_many(const struct json_field *f, size_t count, struct cove_err *e)
{
    return cove_fail(e, COVE_INVALID, "%s: %zu entries are more than %" PRId64, f->name, count,
                     f->max);
}

static int get_array(struct request *req, const struct json_field *f, struct json_object *v,
                     struct json_strings *ret, struct cove_err *e)
{
    struct json_strings list;

    if (!json_object_is_type(v, json_type_array))
        return cove_fail(e, COVE_INVALID, "%s: must be an array of strings", f->name);
    list.count = json_object_array_length(v);
    if (list.count > (size_t)f->max)
        return too_many(f, list.count, e);
    list.items = arena_alloc(&req->arena, (list.count + 1) * sizeof(*list.items));
    for (size_t i = 0; i < list.count; i++) {
        struct where w = { .name = f->name, .index = (long)i };

        if (get_str(&w, json_object_array_get_idx(v, i), f->item_max, &list.items[i], e) < 0)
            return -1;
    }
    *ret = list;
    return 0;
}

static int get_map(struct request *req, const struct json_field *f, struct json_object *v,
                   struct json_map *ret, struct cove_err *e)
{
    struct json_map map = { 0 };
    size_t count;

    if (!json_object_is_type(v, json_type_object))
        return cove_fail(e, COVE_INVALID, "%s: must be an object of strings", f->name);
    count = (size_t)json_object_object_length(v);
    if (count > (size_t)f->max)
        return too_many(f, count, e);
    map.items = arena_alloc(&req->arena, (count + 1) * sizeof(*map.items));
    json_object_object_foreach(v, key, value)
    {
        struct where w = { .name = f->name, .index = -1, .key = key };
        struct pair *p = &map.items[map.count++];

        p->name = key;
        if (get_str(&w, value, f->item_max, &p->value, e) < 0)
            return -1;
    }
    *ret = map;
    return 0;
}

static int decode_field(struct request *req, const struct json_field *f, struct json_object *v,
                        void *slot, struct cove_err *e)
{
    struct where w = { .name = f->name, .index = -1 };

    switch (f->kind) {
    case JSON_KIND_STR:
        return get_str(&w, v, (size_t)f->max, slot, e);
    case JSON_KIND_TEXT:
        return get_text(&w, v, (size_t)f->max, slot, e);
    case JSON_KIND_INT:
        return get_int(f, v, slot, e);
    case JSON_KIND_BOOL:
        return get_bool(f, v, slot, e);
    case JSON_KIND_STR_ARRAY:
        return get_array(req, f, v, slot, e);
    case JSON_KIND_STR_MAP:
        return get_map(req, f, v, slot, e);
    case JSON_KIND_END:
        break;
    }
    return 0;
}

int json_decode(struct request *req, const struct json_field *fields, void *out, struct cove_err *e)
{
    if (parse_body(req, e) < 0)
        return -1;
    for (const struct json_field *f = fields; f->kind != JSON_KIND_END; f++) {
        struct json_object *v = NULL;

        json_object_object_get_ex(req->json, f->name, &v);
        if (!v && f->need == JSON_REQUIRED)
            return cove_fail(e, COVE_INVALID, "%s: is missing", f->name);
        if (v && decode_field(req, f, v, (char *)out + f->offset, e) < 0)
            return -1;
    }
    return 0;
}
