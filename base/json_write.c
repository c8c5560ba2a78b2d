/* JSON out: a writer that knows where commas go, and tables of fields on top of it. */
#include "cove/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cove/base64.h"

static_assert(JSON_PIECE_BYTES % 3 == 0,
              "the base64 of a piece must not end inside a group of three");

void json_writer_init(struct json_writer *w, struct buf *out)
{
    *w = (struct json_writer){ .out = out };
}

/* ------------------------------------------------------------------ values */

/* Hands the buffer over when it is full enough. A buffer that overflowed is not handed over: the caller sees the
 * overflow and can still reply with an error. */
static void drain(struct json_writer *w)
{
    if (w->drain && !w->stopped && !w->out->overflow && w->out->len >= w->drain_at &&
        w->drain(w->drain_arg) != 0)
        w->stopped = true;
    if (w->stopped)
        buf_clear(w->out);
}

/* Writes what comes before a value: a comma, the value's name. */
static void begin(struct json_writer *w, const char *name)
{
    drain(w);
    if (w->comma)
        buf_add_char(w->out, ',');
    if (name) {
        buf_add_json_str(w->out, name, strlen(name));
        buf_add_char(w->out, ':');
    }
    w->comma = true;
}

void json_open(struct json_writer *w, const char *name, char bracket)
{
    assert(bracket == '{' || bracket == '[');
    begin(w, name);
    buf_add_char(w->out, bracket);
    w->comma = false;
}

void json_close(struct json_writer *w, char bracket)
{
    assert(bracket == '}' || bracket == ']');
    buf_add_char(w->out, bracket);
    w->comma = true;
}

void json_put_str(struct json_writer *w, const char *name, const char *text)
{
    json_put_text(w, name, text, text ? strlen(text) : 0);
}

/* Decides how much of a long string goes into one piece. No character is divided. */
static size_t piece_of(const char *bytes, size_t len)
{
    size_t n = JSON_PIECE_BYTES;

    if (len <= n)
        return len;
    while (n > JSON_PIECE_BYTES - 3 && ((unsigned char)bytes[n] & 0xC0) == 0x80)
        n--;
    return n;
}

void json_text_begin(struct json_writer *w, const char *name)
{
    begin(w, name);
    buf_add_char(w->out, '"');
}

void json_text_add(struct json_writer *w, const char *bytes, size_t len)
{
    while (len > 0 && !w->stopped && !w->out->overflow) {
        size_t n = piece_of(bytes, len);

        buf_add_json_part(w->out, bytes, n);
        bytes += n;
        len -= n;
        drain(w);
    }
}

void json_text_end(struct json_writer *w)
{
    buf_add_char(w->out, '"');
}

void json_put_text(struct json_writer *w, const char *name, const char *bytes, size_t len)
{
    json_text_begin(w, name);
    json_text_add(w, bytes, len);
    json_text_end(w);
}

void json_put_bytes(struct json_writer *w, const char *name, const char *bytes, size_t len)
{
    begin(w, name);
    buf_add_char(w->out, '"');
    while (len > 0 && !w->stopped) {
        size_t n = len < JSON_PIECE_BYTES ? len : JSON_PIECE_BYTES;
        char *at = buf_reserve(w->out, BASE64_LEN(n));

        if (!at)
            break; /* the buffer remembers that something did not fit */
        base64_encode(bytes, n, at);
        w->out->len += BASE64_LEN(n);
        w->out->data[w->out->len] = '\0';
        bytes += n;
        len -= n;
        drain(w);
    }
    buf_add_char(w->out, '"');
}

void json_put_int(struct json_writer *w, const char *name, int64_t number)
{
    begin(w, name);
    buf_addf(w->out, "%" PRId64, number);
}

void json_put_double(struct json_writer *w, const char *name, double number)
{
    begin(w, name);
    if (isfinite(number))
        buf_addf(w->out, "%.15g", number);
    else
        buf_add_str(w->out, "null"); /* JSON has no infinity and no NaN */
}

void json_put_bool(struct json_writer *w, const char *name, bool value)
{
    begin(w, name);
    buf_add_str(w->out, value ? "true" : "false");
}

static void json_put_null(struct json_writer *w, const char *name)
{
    begin(w, name);
    buf_add_str(w->out, "null");
}

void json_put_json(struct json_writer *w, const char *name, const char *text, size_t len)
{
    begin(w, name);
    buf_add(w->out, text, len);
}

static void put_time(struct json_writer *w, const char *name, uint64_t unix_ms)
{
    char text[32];

    text_format_time(unix_ms, text);
    json_put_str(w, name, text);
}

/* ------------------------------------------------------------------ tables */

/* The name of an enum's value, or NULL. */
static const char *json_name_of(const struct json_name *names, int64_t value)
{
    for (; names->name; names++)
        if (names->value == value)
            return names->name;
    return NULL;
}

/* Is the field's value in `from` one that an optional field leaves out? */
static bool json_field_is_empty(const struct json_field *f, const void *from)
{
    const void *at = (const char *)from + f->offset;

    if (f->has)
        return !*(const bool *)((const char *)from + f->has - 1);
    switch (f->kind) {
    case JSON_KIND_STR:
    case JSON_KIND_OBJECT:
        return !*(void *const *)at;
    case JSON_KIND_TEXT:
    case JSON_KIND_BYTES:
    case JSON_KIND_RAW:
        return !((const struct json_text *)at)->bytes;
    case JSON_KIND_INT:
    case JSON_KIND_ENUM:
        return *(const int64_t *)at == 0;
    case JSON_KIND_TIME:
        return *(const uint64_t *)at == 0;
    case JSON_KIND_DOUBLE:
        return *(const double *)at == 0;
    case JSON_KIND_BOOL:
        return !*(const bool *)at;
    case JSON_KIND_STR_ARRAY:
        return ((const struct json_strings *)at)->count == 0;
    case JSON_KIND_STR_MAP:
        return ((const struct json_map *)at)->count == 0;
    case JSON_KIND_OBJECTS:
        return ((const struct json_array *)at)->count == 0;
    case JSON_KIND_END:
        break;
    }
    return true;
}

static void write_enum(struct json_writer *w, const struct json_field *f, int64_t value)
{
    const char *name = json_name_of(f->names, value);

    if (name)
        json_put_str(w, f->name, name);
    else
        json_put_int(w, f->name, value);
}

static void write_strings(struct json_writer *w, const struct json_field *f,
                          const struct json_strings *list)
{
    json_open(w, f->name, '[');
    for (size_t i = 0; i < list->count; i++)
        json_put_str(w, NULL, list->items[i]);
    json_close(w, ']');
}

static void write_map(struct json_writer *w, const struct json_field *f, const struct json_map *map)
{
    json_open(w, f->name, '{');
    for (size_t i = 0; i < map->count; i++)
        json_put_str(w, map->items[i].name, map->items[i].value);
    json_close(w, '}');
}

static void write_objects(struct json_writer *w, const struct json_field *f,
                          const struct json_array *list)
{
    json_open(w, f->name, '[');
    for (size_t i = 0; i < list->count; i++)
        json_put_object(w, NULL, f->fields, (const char *)list->items + i * f->size);
    json_close(w, ']');
}

static void write_text(struct json_writer *w, const struct json_field *f, const struct json_text *t)
{
    if (f->kind == JSON_KIND_BYTES)
        json_put_bytes(w, f->name, t->bytes, t->len);
    else if (f->kind == JSON_KIND_RAW)
        json_put_json(w, f->name, t->bytes ? t->bytes : "null", t->bytes ? t->len : 4);
    else
        json_put_text(w, f->name, t->bytes, t->bytes ? t->len : 0);
}

/* Writes an object. One that is always written but was not given has no members. */
static void write_object(struct json_writer *w, const struct json_field *f, const void *from)
{
    static const struct json_field none[] = { JSON_END };

    json_put_object(w, f->name, from ? f->fields : none, from);
}

static void write_field(struct json_writer *w, const struct json_field *f, const void *at)
{
    switch (f->kind) {
    case JSON_KIND_STR:
        json_put_str(w, f->name, *(const char *const *)at);
        break;
    case JSON_KIND_TEXT:
    case JSON_KIND_BYTES:
    case JSON_KIND_RAW:
        write_text(w, f, at);
        break;
    case JSON_KIND_INT:
        json_put_int(w, f->name, *(const int64_t *)at);
        break;
    case JSON_KIND_ENUM:
        write_enum(w, f, *(const int64_t *)at);
        break;
    case JSON_KIND_TIME:
        put_time(w, f->name, *(const uint64_t *)at);
        break;
    case JSON_KIND_DOUBLE:
        json_put_double(w, f->name, *(const double *)at);
        break;
    case JSON_KIND_BOOL:
        json_put_bool(w, f->name, *(const bool *)at);
        break;
    case JSON_KIND_STR_ARRAY:
        write_strings(w, f, at);
        break;
    case JSON_KIND_STR_MAP:
        write_map(w, f, at);
        break;
    case JSON_KIND_OBJECT:
        write_object(w, f, *(void *const *)at);
        break;
    case JSON_KIND_OBJECTS:
        write_objects(w, f, at);
        break;
    case JSON_KIND_END:
        break;
    }
}

void json_put_members(struct json_writer *w, const struct json_field *fields, const void *from)
{
    for (const struct json_field *f = fields; f->kind != JSON_KIND_END; f++) {
        bool may_lack = f->need == JSON_OPTIONAL || f->need == JSON_NULLABLE;

        if (!may_lack || !json_field_is_empty(f, from))
            write_field(w, f, (const char *)from + f->offset);
        else if (f->need == JSON_NULLABLE)
            json_put_null(w, f->name);
    }
}

void json_put_object(struct json_writer *w, const char *name, const struct json_field *fields,
                     const void *from)
{
    json_open(w, name, '{');
    json_put_members(w, fields, from);
    json_close(w, '}');
}
