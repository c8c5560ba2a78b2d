/* JSON schemas of tools' arguments and results, from the tables that read and write them. */
#include <assert.h>
#include <string.h>

#include "fcgi/dialects/mcp.h"

enum { LISTED_MAX = 32 }; /* fields of one table, names of one enum */

static void add(struct json_strings *list, const char *text)
{
    assert(list->count < LISTED_MAX);
    list->items[list->count++] = text;
}

static const char *text_of(const struct mcp_about *about, const char *field)
{
    for (; about && about->field; about++)
        if (strcmp(about->field, field) == 0)
            return about->text;
    return NULL;
}

static const char *type_of(enum json_kind kind)
{
    switch (kind) {
    case JSON_KIND_INT:
        return "integer";
    case JSON_KIND_DOUBLE:
        return "number";
    case JSON_KIND_BOOL:
        return "boolean";
    case JSON_KIND_STR_ARRAY:
    case JSON_KIND_OBJECTS:
        return "array";
    case JSON_KIND_STR_MAP:
    case JSON_KIND_OBJECT:
        return "object";
    default:
        return "string";
    }
}

struct each { /* what every entry of an array or a map is */
    const char *type;
};

static const struct json_field each_fields[] = {
    JSON_STR(struct each, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

struct property {
    const char *type, *text, *format;
    int64_t min, max;
    bool has_min, has_max;
    struct json_strings names;
    const struct each *items, *values;
};

static const struct json_field property_fields[] = {
    JSON_STR(struct property, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct property, text, "description", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct property, min, "minimum", JSON_OPTIONAL, INT64_MIN, INT64_MAX,
             JSON_HAS(struct property, has_min)),
    JSON_INT(struct property, max, "maximum", JSON_OPTIONAL, INT64_MIN, INT64_MAX,
             JSON_HAS(struct property, has_max)),
    JSON_STR(struct property, format, "format", JSON_OPTIONAL, JSON_ANY),
    JSON_STR_ARRAY(struct property, names, "enum", JSON_OPTIONAL, JSON_ANY, JSON_ANY),
    JSON_OBJECT(struct property, items, "items", JSON_OPTIONAL, each_fields),
    JSON_OBJECT(struct property, values, "additionalProperties", JSON_OPTIONAL, each_fields),
    JSON_END,
};

static void put_property(struct json_writer *w, const struct json_field *f,
                         const struct mcp_about *about)
{
    static const struct each string = { "string" };
    const char *names[LISTED_MAX];
    struct property p = {
        .type = type_of(f->kind),
        .text = text_of(about, f->name),
        .format = f->kind == JSON_KIND_TIME ? "date-time" : NULL,
        .min = f->min,
        .max = f->max,
        .has_min = f->kind == JSON_KIND_INT && f->min != INT64_MIN,
        .has_max = f->kind == JSON_KIND_INT && f->max < INT32_MAX,
        .names = { .items = names },
        .items = f->kind == JSON_KIND_STR_ARRAY ? &string : NULL,
        .values = f->kind == JSON_KIND_STR_MAP ? &string : NULL,
    };

    for (const struct json_name *n = f->names; n && n->name; n++)
        add(&p.names, n->name);
    json_open(w, f->name, '{');
    json_put_members(w, property_fields, &p);
    if (f->kind == JSON_KIND_OBJECTS)
        mcp_put_schema(w, "items", f->fields, about, false);
    json_close(w, '}');
}

struct object {
    const char *type;
    struct json_strings required;
    bool strict, others;
};

static const struct json_field object_fields[] = {
    JSON_STR(struct object, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_STR_ARRAY(struct object, required, "required", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_BOOL(struct object, others, "additionalProperties", JSON_OPTIONAL,
              JSON_HAS(struct object, strict)),
    JSON_END,
};

void mcp_put_schema(struct json_writer *w, const char *name, const struct json_field *fields,
                    const struct mcp_about *about, bool strict)
{
    const char *required[LISTED_MAX];
    struct object o = { .type = "object", .required = { .items = required }, .strict = strict };

    for (const struct json_field *f = fields; f->kind != JSON_KIND_END; f++)
        if (f->need == JSON_REQUIRED)
            add(&o.required, f->name);
    json_open(w, name, '{');
    json_put_members(w, object_fields, &o);
    json_open(w, "properties", '{');
    for (const struct json_field *f = fields; f->kind != JSON_KIND_END; f++)
        put_property(w, f, about);
    json_close(w, '}');
    json_close(w, '}');
}
