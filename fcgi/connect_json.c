/*
 * Protobuf messages as JSON, by descriptor. Names are lowerCamelCase (snake_case is taken too), bytes
 * are base64, 64-bit numbers are strings, enum values are names, a list of messages called ...Entry
 * is a map, a Timestamp is RFC 3339. What is not set is left out; what is null counts as not set;
 * unknown names are ignored.
 */
#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cove/base64.h"
#include "cove/json.h"
#include "fcgi/connect.h"

#define NAME_MAX_BYTES 64

/* exit_code is exitCode */
static void camel_name(const char *snake, char out[NAME_MAX_BYTES])
{
    size_t n = 0;

    for (; *snake && n < NAME_MAX_BYTES - 1; snake++) {
        if (*snake == '_' && snake[1])
            out[n++] = (char)toupper((unsigned char)*++snake);
        else
            out[n++] = *snake;
    }
    out[n] = '\0';
}

static bool is_map(const ProtobufCFieldDescriptor *f)
{
    const ProtobufCMessageDescriptor *type = f->descriptor;
    size_t len;

    if (f->label != PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;
    len = strlen(type->short_name);
    return len > 5 && strcmp(type->short_name + len - 5, "Entry") == 0;
}

static bool is_timestamp(const ProtobufCMessageDescriptor *type)
{
    return strcmp(type->short_name, "Timestamp") == 0;
}

/* ------------------------------------------------------------------ writing */

static bool is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const char *base = (const char *)m;

    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(base + f->quantifier_offset) == f->id;
    if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(void *const *)(base + f->offset) != NULL;
    return *(const protobuf_c_boolean *)(base + f->quantifier_offset);
}

static void add_enum(struct json_writer *w, const char *name, const ProtobufCEnumDescriptor *type,
                     int32_t value)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);

    if (v)
        json_put_str(w, name, v->name);
    else
        json_put_int(w, name, value);
}

static void add_timestamp(struct json_writer *w, const char *name, const ProtobufCMessage *m)
{
    const ProtobufCMessageDescriptor *type = m->descriptor;
    int64_t seconds = *(const int64_t *)((const char *)m + type->fields[0].offset);
    int32_t nanos = *(const int32_t *)((const char *)m + type->fields[1].offset);
    time_t when = (time_t)seconds;
    char day[32], text[64] = "1970-01-01T00:00:00Z";
    struct tm tm;

    if (gmtime_r(&when, &tm) && strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm) > 0)
        snprintf(text, sizeof(text), "%s.%09" PRId32 "Z", day, nanos);
    json_put_str(w, name, text);
}

static void add_message(struct json_writer *w, const char *name, const ProtobufCMessage *m);

/* A 64-bit number is a string in protobuf's JSON. */
static void add_long(struct json_writer *w, const char *name, int64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, number);
    json_put_str(w, name, text);
}

static void add_value(struct json_writer *w, const char *name, const ProtobufCFieldDescriptor *f,
                      const void *at)
{
    const ProtobufCBinaryData *data = at;

    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        json_put_str(w, name, *(char *const *)at);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        json_put_bytes(w, name, (const char *)data->data, data->len);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        json_put_bool(w, name, *(const protobuf_c_boolean *)at);
        break;
    case PROTOBUF_C_TYPE_UINT32:
        json_put_int(w, name, *(const uint32_t *)at);
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
        json_put_int(w, name, *(const int32_t *)at);
        break;
    case PROTOBUF_C_TYPE_INT64:
        add_long(w, name, *(const int64_t *)at);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        add_enum(w, name, f->descriptor, *(const int32_t *)at);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        add_message(w, name, *(ProtobufCMessage *const *)at);
        break;
    default:
        assert(!"a type that no message of ours has");
    }
}

/* An entry of a map: its first field is the key, the second one the value; both are strings. */
static void add_entry(struct json_writer *w, const ProtobufCMessage *entry)
{
    const ProtobufCFieldDescriptor *fields = entry->descriptor->fields;
    const char *key = *(char *const *)((const char *)entry + fields[0].offset);
    const char *value = *(char *const *)((const char *)entry + fields[1].offset);

    json_put_str(w, key ? key : "", value ? value : "");
}

static size_t item_size(const ProtobufCFieldDescriptor *f)
{
    return f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE
               ? sizeof(void *)
               : sizeof(int32_t);
}

static void add_list(struct json_writer *w, const char *name, const ProtobufCMessage *m,
                     const ProtobufCFieldDescriptor *f)
{
    size_t count = *(const size_t *)((const char *)m + f->quantifier_offset);
    const char *items = *(char *const *)((const char *)m + f->offset);
    bool map = is_map(f);

    json_open(w, name, map ? '{' : '[');
    for (size_t i = 0; i < count; i++) {
        const void *at = items + i * item_size(f);

        if (map)
            add_entry(w, *(ProtobufCMessage *const *)at);
        else
            add_value(w, NULL, f, at);
    }
    json_close(w, map ? '}' : ']');
}

static void add_field(struct json_writer *w, const ProtobufCMessage *m,
                      const ProtobufCFieldDescriptor *f)
{
    bool list = f->label == PROTOBUF_C_LABEL_REPEATED;
    char name[NAME_MAX_BYTES];

    if (list ? *(const size_t *)((const char *)m + f->quantifier_offset) == 0 : !is_set(m, f))
        return;
    camel_name(f->name, name);
    if (list)
        add_list(w, name, m, f);
    else
        add_value(w, name, f, (const char *)m + f->offset);
}

static void add_message(struct json_writer *w, const char *name, const ProtobufCMessage *m)
{
    if (is_timestamp(m->descriptor)) {
        add_timestamp(w, name, m);
        return;
    }
    json_open(w, name, '{');
    for (unsigned i = 0; i < m->descriptor->n_fields; i++)
        add_field(w, m, &m->descriptor->fields[i]);
    json_close(w, '}');
}

int connect_json_encode(const ProtobufCMessage *m, struct buf *out)
{
    struct json_writer w;

    json_writer_init(&w, out);
    add_message(&w, NULL, m);
    return out->overflow ? -1 : 0;
}

/* ------------------------------------------------------------------ reading */

static int bad(const ProtobufCFieldDescriptor *f, const char *what, struct cove_err *e)
{
    char name[NAME_MAX_BYTES];

    camel_name(f->name, name);
    return cove_fail(e, COVE_INVALID, "%s: %s", name, what);
}

static int get_string(struct arena *a, const ProtobufCFieldDescriptor *f, struct json_object *from,
                      char **ret, struct cove_err *e)
{
    const char *text;
    size_t len;

    if (!json_object_is_type(from, json_type_string))
        return bad(f, "must be a string", e);
    text = json_object_get_string(from);
    len = (size_t)json_object_get_string_len(from);
    if (strlen(text) != len)
        return bad(f, "must not contain a NUL character", e);
    *ret = arena_strndup(a, text, len);
    return 0;
}

/* Takes base64 in the standard and in the URL-safe alphabet, with or without padding. */
static int get_bytes(struct arena *a, const ProtobufCFieldDescriptor *f, struct json_object *from,
                     ProtobufCBinaryData *ret, struct cove_err *e)
{
    char *text;
    size_t len;

    if (get_string(a, f, from, &text, e) < 0)
        return -1;
    len = strlen(text);
    while (len > 0 && text[len - 1] == '=')
        len--;
    text = memcpy(arena_alloc(a, len + 4), text, len);
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    while (len % 4)
        text[len++] = '=';
    if (base64_decode(text, len, text, &ret->len) < 0)
        return bad(f, "is not base64", e);
    ret->data = (uint8_t *)text;
    return 0;
}

/* Takes a number that is written as a number (1, 1.0) or as a string ("1"). */
static int get_number(const ProtobufCFieldDescriptor *f, struct json_object *from, int64_t min,
                      int64_t max, int64_t *ret, struct cove_err *e)
{
    enum json_type type = json_object_get_type(from);
    int64_t value = json_object_get_int64(from);

    if (type == json_type_double) {
        double number = json_object_get_double(from);

        if (number != floor(number) || number < -9e15 || number > 9e15)
            return bad(f, "must be a whole number", e);
        value = (int64_t)number;
    } else if (type == json_type_string) {
        const char *text = json_object_get_string(from);
        char *end;

        value = strtoll(text, &end, 10);
        if (!(*text == '-' || isdigit((unsigned char)*text)) || *end)
            return bad(f, "must be a whole number", e);
    } else if (type != json_type_int) {
        return bad(f, "must be a number", e);
    }
    if (value < min || value > max)
        return bad(f, "the number is out of range", e);
    *ret = value;
    return 0;
}

static int get_enum(const ProtobufCFieldDescriptor *f, struct json_object *from, int32_t *ret,
                    struct cove_err *e)
{
    const ProtobufCEnumValue *v;
    int64_t number;

    if (json_object_is_type(from, json_type_string)) {
        v = protobuf_c_enum_descriptor_get_value_by_name(f->descriptor,
                                                         json_object_get_string(from));
        if (!v)
            return bad(f, "is not a value of this enum", e);
        *ret = v->value;
        return 0;
    }
    if (get_number(f, from, INT32_MIN, INT32_MAX, &number, e) < 0)
        return -1;
    *ret = (int32_t)number;
    return 0;
}

static int get_value(struct arena *a, const ProtobufCFieldDescriptor *f, struct json_object *from,
                     void *at, struct cove_err *e)
{
    int64_t number = 0;

    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        return get_string(a, f, from, at, e);
    case PROTOBUF_C_TYPE_BYTES:
        return get_bytes(a, f, from, at, e);
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_object_is_type(from, json_type_boolean))
            return bad(f, "must be true or false", e);
        *(protobuf_c_boolean *)at = json_object_get_boolean(from);
        return 0;
    case PROTOBUF_C_TYPE_UINT32:
        if (get_number(f, from, 0, UINT32_MAX, &number, e) < 0)
            return -1;
        *(uint32_t *)at = (uint32_t)number;
        return 0;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
        if (get_number(f, from, INT32_MIN, INT32_MAX, &number, e) < 0)
            return -1;
        *(int32_t *)at = (int32_t)number;
        return 0;
    case PROTOBUF_C_TYPE_INT64:
        return get_number(f, from, INT64_MIN, INT64_MAX, at, e);
    case PROTOBUF_C_TYPE_ENUM:
        return get_enum(f, from, at, e);
    case PROTOBUF_C_TYPE_MESSAGE:
        return connect_json_decode(a, f->descriptor, from, at, e);
    default:
        assert(!"a type that no message of ours has");
        return -1;
    }
}

static int get_map(struct arena *a, const ProtobufCFieldDescriptor *f, struct json_object *from,
                   ProtobufCMessage **items, struct cove_err *e)
{
    const ProtobufCMessageDescriptor *type = f->descriptor;
    size_t i = 0;

    json_object_object_foreach(from, key, value)
    {
        ProtobufCMessage *entry = arena_alloc(a, type->sizeof_message);

        type->message_init(entry);
        *(char **)((char *)entry + type->fields[0].offset) = arena_strdup(a, key);
        if (get_string(a, f, value, (char **)((char *)entry + type->fields[1].offset), e) < 0)
            return -1;
        items[i++] = entry;
    }
    return 0;
}

static int get_list(struct arena *a, const ProtobufCFieldDescriptor *f, struct json_object *from,
                    ProtobufCMessage *m, struct cove_err *e)
{
    bool map = is_map(f);
    size_t count;
    char *items;

    if (!json_object_is_type(from, map ? json_type_object : json_type_array))
        return bad(f, map ? "must be an object" : "must be an array", e);
    count = map ? (size_t)json_object_object_length(from) : json_object_array_length(from);
    items = arena_alloc(a, count * item_size(f) + 1);
    *(size_t *)((char *)m + f->quantifier_offset) = count;
    *(void **)((char *)m + f->offset) = items;
    if (map)
        return get_map(a, f, from, (ProtobufCMessage **)items, e);
    for (size_t i = 0; i < count; i++)
        if (get_value(a, f, json_object_array_get_idx(from, i), items + i * item_size(f), e) < 0)
            return -1;
    return 0;
}

static int get_field(struct arena *a, const ProtobufCFieldDescriptor *f, struct json_object *from,
                     ProtobufCMessage *m, struct cove_err *e)
{
    char *base = (char *)m;

    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return get_list(a, f, from, m, e);
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        if (*(uint32_t *)(base + f->quantifier_offset) != 0)
            return bad(f, "another member of the same choice is given too", e);
        *(uint32_t *)(base + f->quantifier_offset) = f->id;
    } else if (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE) {
        *(protobuf_c_boolean *)(base + f->quantifier_offset) = 1;
    }
    return get_value(a, f, from, base + f->offset, e);
}

int connect_json_decode(struct arena *a, const ProtobufCMessageDescriptor *type,
                        struct json_object *from, ProtobufCMessage **ret, struct cove_err *e)
{
    ProtobufCMessage *m;

    if (!json_object_is_type(from, json_type_object))
        return cove_fail(e, COVE_INVALID, "%s: must be an object", type->short_name);
    m = arena_alloc(a, type->sizeof_message);
    type->message_init(m);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        struct json_object *value = NULL;
        char name[NAME_MAX_BYTES];

        camel_name(f->name, name);
        if (!json_object_object_get_ex(from, name, &value))
            json_object_object_get_ex(from, f->name, &value);
        if (value && get_field(a, f, value, m, e) < 0)
            return -1;
    }
    *ret = m;
    return 0;
}
