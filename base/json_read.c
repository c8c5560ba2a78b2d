/* JSON in: from json-c's tree (json_parse.c) into a struct, by a table of fields. */
#include "cove/json.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cove/base64.h"

/* ------------------------------------------------------------------ where a value stands */

struct where {              /* for messages: "name", "name[3]", "name.key" */
    const struct where *up; /* NULL: the outermost object */
    const char *name;       /* NULL: an array's entry */
    size_t index;
};

static void add_where(const struct where *w, struct buf *out)
{
    if (w->up)
        add_where(w->up, out);
    if (w->name)
        buf_addf(out, "%s%.60s", out->len ? "." : "", w->name);
    else
        buf_addf(out, "[%zu]", w->index);
}

static __attribute__((format(printf, 3, 4))) int bad(const struct where *w, struct cove_err *e,
                                                     const char *fmt, ...)
{
    AUTO_BUF struct buf path;
    char what[120];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    buf_init(&path, sizeof(e->msg));
    add_where(w, &path);
    return cove_fail(e, COVE_INVALID, "%s: %s", path.data, what);
}

/* ------------------------------------------------------------------ from the tree to a struct */

struct reader {
    struct arena *arena;
    struct cove_err *e;
};

static int read_fields(struct reader *r, const struct where *up, struct json_object *tree,
                       const struct json_field *fields, void *out);

static int get_text(struct reader *r, const struct where *w, struct json_object *v, size_t max,
                    struct json_text *ret)
{
    const char *s;
    size_t len;

    if (!json_object_is_type(v, json_type_string))
        return bad(w, r->e, "must be a string");
    s = json_object_get_string(v);
    len = (size_t)json_object_get_string_len(v);
    if (!text_is_utf8(s, len)) /* json-c lets lone surrogates pass */
        return bad(w, r->e, "is not valid UTF-8");
    if (len > max)
        return bad(w, r->e, "%zu bytes are more than %zu", len, max);
    *ret = (struct json_text){ s, len };
    return 0;
}

static int get_str(struct reader *r, const struct where *w, struct json_object *v, size_t max,
                   const char **ret)
{
    struct json_text text;

    if (get_text(r, w, v, max, &text) < 0)
        return -1;
    if (memchr(text.bytes, '\0', text.len))
        return bad(w, r->e, "must not contain a NUL character");
    *ret = text.bytes;
    return 0;
}

static int get_bytes(struct reader *r, const struct where *w, struct json_object *v,
                     const struct json_field *f, struct json_text *ret)
{
    struct json_text text;
    size_t len;
    char *bytes;

    if (get_text(r, w, v, SIZE_MAX, &text) < 0)
        return -1;
    bytes = arena_alloc(r->arena, text.len / 4 * 3 + 1);
    if (base64_decode(text.bytes, text.len, bytes, &len) < 0)
        return bad(w, r->e, "is not base64");
    if (len > (size_t)f->max)
        return bad(w, r->e, "%zu bytes are more than %" PRId64, len, f->max);
    *ret = (struct json_text){ bytes, len };
    return 0;
}

static int get_int(struct reader *r, const struct where *w, struct json_object *v,
                   const struct json_field *f, int64_t *ret)
{
    int64_t n;

    if (!json_object_is_type(v, json_type_int))
        return bad(w, r->e, "must be a whole number");
    /* json-c returns the largest int64_t for larger numbers, so a number that is too large is still found too large */
    n = json_object_get_int64(v);
    if (n < f->min)
        return bad(w, r->e, "%" PRId64 " is below %" PRId64, n, f->min);
    if (n > f->max)
        return bad(w, r->e, "%" PRId64 " is above %" PRId64, n, f->max);
    *ret = n;
    return 0;
}

static int get_double(struct reader *r, const struct where *w, struct json_object *v, double *ret)
{
    if (!json_object_is_type(v, json_type_double) && !json_object_is_type(v, json_type_int))
        return bad(w, r->e, "must be a number");
    *ret = json_object_get_double(v);
    return 0;
}

static int get_bool(struct reader *r, const struct where *w, struct json_object *v, bool *ret)
{
    if (!json_object_is_type(v, json_type_boolean))
        return bad(w, r->e, "must be true or false");
    *ret = json_object_get_boolean(v);
    return 0;
}

/* Takes an enum's value by its name or, as in protobuf's JSON, by its number. */
static int get_enum(struct reader *r, const struct where *w, struct json_object *v,
                    const struct json_field *f, int64_t *ret)
{
    const char *name = json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;

    for (const struct json_name *n = f->names; n->name; n++) {
        if (name ? strcmp(n->name, name) == 0
                 : json_object_is_type(v, json_type_int) && json_object_get_int64(v) == n->value) {
            *ret = n->value;
            return 0;
        }
    }
    return bad(w, r->e, "is none of the values it may have");
}

static int get_time(struct reader *r, const struct where *w, struct json_object *v, uint64_t *ret)
{
    const char *text;

    if (get_str(r, w, v, 40, &text) < 0)
        return -1;
    if (text_parse_time(text, ret) < 0)
        return bad(w, r->e, "must be a time like 2026-01-02T03:04:05Z");
    return 0;
}

static int too_many(struct reader *r, const struct where *w, size_t count, int64_t max)
{
    return bad(w, r->e, "%zu entries are more than %" PRId64, count, max);
}

static int get_strings(struct reader *r, const struct where *w, struct json_object *v,
                       const struct json_field *f, struct json_strings *ret)
{
    struct json_strings list;

    if (!json_object_is_type(v, json_type_array))
        return bad(w, r->e, "must be an array of strings");
    list.count = json_object_array_length(v);
    if (list.count > (size_t)f->max)
        return too_many(r, w, list.count, f->max);
    list.items = arena_alloc(r->arena, (list.count + 1) * sizeof(*list.items));
    for (size_t i = 0; i < list.count; i++) {
        struct where entry = { .up = w, .index = i };

        if (get_str(r, &entry, json_object_array_get_idx(v, i), f->item_max, &list.items[i]) < 0)
            return -1;
    }
    *ret = list;
    return 0;
}

static int get_map(struct reader *r, const struct where *w, struct json_object *v,
                   const struct json_field *f, struct json_map *ret)
{
    struct json_map map = { 0 };
    size_t count;

    if (!json_object_is_type(v, json_type_object))
        return bad(w, r->e, "must be an object of strings");
    count = (size_t)json_object_object_length(v);
    if (count > (size_t)f->max)
        return too_many(r, w, count, f->max);
    map.items = arena_alloc(r->arena, (count + 1) * sizeof(*map.items));
    json_object_object_foreach(v, key, value)
    {
        struct where entry = { .up = w, .name = key };
        struct pair *p = &map.items[map.count++];

        p->name = key;
        if (get_str(r, &entry, value, f->item_max, &p->value) < 0)
            return -1;
    }
    *ret = map;
    return 0;
}

static int get_object(struct reader *r, const struct where *w, struct json_object *v,
                      const struct json_field *f, void **ret)
{
    void *out = arena_alloc(r->arena, f->size);

    if (!json_object_is_type(v, json_type_object))
        return bad(w, r->e, "must be an object");
    if (read_fields(r, w, v, f->fields, out) < 0)
        return -1;
    *ret = out;
    return 0;
}

static int get_objects(struct reader *r, const struct where *w, struct json_object *v,
                       const struct json_field *f, struct json_array *ret)
{
    struct json_array list;

    if (!json_object_is_type(v, json_type_array))
        return bad(w, r->e, "must be an array of objects");
    list.count = json_object_array_length(v);
    if (list.count > (size_t)f->max)
        return too_many(r, w, list.count, f->max);
    list.items = arena_alloc(r->arena, (list.count + 1) * f->size);
    for (size_t i = 0; i < list.count; i++) {
        struct where entry = { .up = w, .index = i };
        struct json_object *item = json_object_array_get_idx(v, i);

        if (!json_object_is_type(item, json_type_object))
            return bad(&entry, r->e, "must be an object");
        if (read_fields(r, &entry, item, f->fields, (char *)list.items + i * f->size) < 0)
            return -1;
    }
    *ret = list;
    return 0;
}

static int get_field(struct reader *r, const struct where *w, const struct json_field *f,
                     struct json_object *v, void *slot)
{
    switch (f->kind) {
    case JSON_KIND_STR:
        return get_str(r, w, v, (size_t)f->max, slot);
    case JSON_KIND_TEXT:
        return get_text(r, w, v, (size_t)f->max, slot);
    case JSON_KIND_BYTES:
        return get_bytes(r, w, v, f, slot);
    case JSON_KIND_INT:
        return get_int(r, w, v, f, slot);
    case JSON_KIND_DOUBLE:
        return get_double(r, w, v, slot);
    case JSON_KIND_BOOL:
        return get_bool(r, w, v, slot);
    case JSON_KIND_ENUM:
        return get_enum(r, w, v, f, slot);
    case JSON_KIND_TIME:
        return get_time(r, w, v, slot);
    case JSON_KIND_STR_ARRAY:
        return get_strings(r, w, v, f, slot);
    case JSON_KIND_STR_MAP:
        return get_map(r, w, v, f, slot);
    case JSON_KIND_OBJECT:
        return get_object(r, w, v, f, slot);
    case JSON_KIND_OBJECTS:
        return get_objects(r, w, v, f, slot);
    case JSON_KIND_RAW: /* is written only */
    case JSON_KIND_END:
        break;
    }
    return 0;
}

static int read_fields(struct reader *r, const struct where *up, struct json_object *tree,
                       const struct json_field *fields, void *out)
{
    for (const struct json_field *f = fields; f->kind != JSON_KIND_END; f++) {
        struct where w = { .up = up, .name = f->name };
        struct json_object *v = NULL;

        json_object_object_get_ex(tree, f->name, &v);
        if (!v && f->need == JSON_REQUIRED)
            return bad(&w, r->e, "is missing");
        if (v && get_field(r, &w, f, v, (char *)out + f->offset) < 0)
            return -1;
        if (v && f->has)
            *(bool *)((char *)out + f->has - 1) = true;
    }
    return 0;
}

int json_read(struct arena *a, struct json_object *tree, const struct json_field *fields, void *out,
              struct cove_err *e)
{
    struct reader r = { .arena = a, .e = e };

    return read_fields(&r, NULL, tree, fields, out);
}
