/* JSON schemas of tools' arguments and results, from the tables that read and write them. */
#include <string.h>

#include "fcgi/dialects/mcp.h"

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

static void put_bounds(struct json_writer *w, const struct json_field *f)
{
    if (f->kind == JSON_KIND_INT && f->min != INT64_MIN)
        json_put_int(w, "minimum", f->min);
    if (f->kind == JSON_KIND_INT && f->max < INT32_MAX)
        json_put_int(w, "maximum", f->max);
    if (f->kind == JSON_KIND_TIME)
        json_put_str(w, "format", "date-time");
}

static void put_names(struct json_writer *w, const struct json_name *names)
{
    json_open(w, "enum", '[');
    for (; names->name; names++)
        json_put_str(w, NULL, names->name);
    json_close(w, ']');
}

static void put_type(struct json_writer *w, const char *name, const char *type)
{
    json_open(w, name, '{');
    json_put_str(w, "type", type);
    json_close(w, '}');
}

static void put_property(struct json_writer *w, const struct json_field *f,
                         const struct mcp_about *about)
{
    const char *text = text_of(about, f->name);

    json_open(w, f->name, '{');
    json_put_str(w, "type", type_of(f->kind));
    if (text)
        json_put_str(w, "description", text);
    put_bounds(w, f);
    if (f->kind == JSON_KIND_ENUM)
        put_names(w, f->names);
    if (f->kind == JSON_KIND_STR_ARRAY)
        put_type(w, "items", "string");
    if (f->kind == JSON_KIND_STR_MAP)
        put_type(w, "additionalProperties", "string");
    if (f->kind == JSON_KIND_OBJECTS)
        mcp_put_schema(w, "items", f->fields, about, false);
    json_close(w, '}');
}

void mcp_put_schema(struct json_writer *w, const char *name, const struct json_field *fields,
                    const struct mcp_about *about, bool strict)
{
    json_open(w, name, '{');
    json_put_str(w, "type", "object");
    json_open(w, "properties", '{');
    for (const struct json_field *f = fields; f->kind != JSON_KIND_END; f++)
        put_property(w, f, about);
    json_close(w, '}');
    json_open(w, "required", '[');
    for (const struct json_field *f = fields; f->kind != JSON_KIND_END; f++)
        if (f->need == JSON_REQUIRED)
            json_put_str(w, NULL, f->name);
    json_close(w, ']');
    if (strict)
        json_put_bool(w, "additionalProperties", false);
    json_close(w, '}');
}
