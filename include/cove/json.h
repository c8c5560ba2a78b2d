/*
 * JSON both ways. One table of fields describes an object: json_read() fills a struct from a parsed
 * text, json_put_object() writes the struct as text. A message about a bad text names the field:
 * "commands[3]: must be a string", "network.allow[0].port: 0 is below 1".
 *
 *     static const struct json_field box_fields[] = {
 *         JSON_STR(struct box_reply, id, "sandboxId", JSON_REQUIRED, MAX_NAME),
 *         JSON_INT(struct box_reply, cpus, "cpuCount", JSON_OPTIONAL, 1, 64),
 *         JSON_OBJECT(struct box_reply, end, "ended", JSON_OPTIONAL, end_fields),
 *         JSON_END
 *     };
 *
 * What follows the last named argument of a macro goes into struct json_field as it is: `.has` names
 * the bool that tells "not given" from 0 (JSON_HAS).
 *
 * Reading: fields that are missing or null leave the struct as it was, unless they are
 * JSON_REQUIRED. Unknown fields are ignored; of fields given twice the last one counts. Strings
 * point into the parsed tree, arrays and objects lie in the arena.
 */
#ifndef COVE_JSON_H
#define COVE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/err.h"
#include "cove/mem.h"
#include "cove/text.h"

struct json_object; /* json-c's tree */

/* ------------------------------------------------------------------ the table */

enum json_kind {
    JSON_KIND_END,
    JSON_KIND_STR,       /* const char *; NULL = not given */
    JSON_KIND_TEXT,      /* struct json_text; .bytes NULL = not given */
    JSON_KIND_BYTES,     /* struct json_text, base64 in JSON */
    JSON_KIND_INT,       /* int64_t */
    JSON_KIND_DOUBLE,    /* double */
    JSON_KIND_BOOL,      /* bool */
    JSON_KIND_ENUM,      /* int64_t, a name of .names in JSON */
    JSON_KIND_TIME,      /* uint64_t, unix milliseconds; RFC 3339 in JSON */
    JSON_KIND_STR_ARRAY, /* struct json_strings */
    JSON_KIND_STR_MAP,   /* struct json_map */
    JSON_KIND_OBJECT,    /* a pointer to the struct that .fields describe; NULL = not given */
    JSON_KIND_OBJECTS,   /* struct json_array of such structs */
    JSON_KIND_RAW,       /* struct json_text that is JSON already; written only, never read */
};

enum json_need {
    JSON_OPTIONAL, /* read: may be missing. Written: left out when it is NULL, 0, false or empty */
    JSON_REQUIRED, /* read: must be there. Written: always */
    JSON_ALWAYS,   /* read: may be missing. Written: always */
    JSON_NULLABLE, /* read: may be missing. Written: null when it is NULL, 0, false or empty */
};

struct json_text { /* a string that may hold NUL characters, or JSON (JSON_RAW) */
    const char *bytes;
    size_t len;
};

struct json_strings {
    const char **items; /* NULL-terminated; NULL itself when the field was not given */
    size_t count;
};

struct json_map {
    struct pair *items;
    size_t count;
};

struct json_array { /* of structs, one behind the other */
    void *items;
    size_t count;
};

struct json_name {    /* one value of an enum */
    const char *name; /* NULL ends the list */
    int64_t value;
};

struct json_field {
    const char *name;
    enum json_kind kind;
    enum json_need need;
    size_t offset;
    int64_t min, max; /* of a number. `max` is also the bytes of a string, the entries of a list */
    size_t item_max;  /* bytes of an array's or map's strings */
    const struct json_field *fields; /* of an object, or of an array's objects */
    size_t size;                     /* of the struct that `fields` describe */
    const struct json_name *names;
    size_t has; /* 1 + the offset of a bool: read sets it, write looks at it; 0 = there is none */
};

/* As a maximum: the size of the whole text is the only bound. */
#define JSON_ANY ((int64_t)(SIZE_MAX / 2))

#define JSON_FIELD_(s, f, type)                                                                    \
    (offsetof(s, f) + 0 * sizeof(char[_Generic(((s *)0)->f, type : 1, default : -1)]))
#define JSON_ROW_(s, f, type, name_, kind_, need_, ...)                                            \
    {                                                                                              \
        .name = (name_), .kind = (kind_), .need = (need_), .offset = JSON_FIELD_(s, f, type),      \
        __VA_ARGS__                                                                                \
    }

#define JSON_STR(s, f, name, need, most, ...)                                                      \
    JSON_ROW_(s, f, const char *, name, JSON_KIND_STR, need, .max = (most), ##__VA_ARGS__)
#define JSON_TEXT(s, f, name, need, most, ...)                                                     \
    JSON_ROW_(s, f, struct json_text, name, JSON_KIND_TEXT, need, .max = (most), ##__VA_ARGS__)
#define JSON_BYTES(s, f, name, need, most, ...)                                                    \
    JSON_ROW_(s, f, struct json_text, name, JSON_KIND_BYTES, need, .max = (most), ##__VA_ARGS__)
#define JSON_INT(s, f, name, need, least, most, ...)                                               \
    JSON_ROW_(s, f, int64_t, name, JSON_KIND_INT, need, .min = (least), .max = (most),             \
              ##__VA_ARGS__)
#define JSON_DOUBLE(s, f, name, need, ...)                                                         \
    JSON_ROW_(s, f, double, name, JSON_KIND_DOUBLE, need, ##__VA_ARGS__)
#define JSON_BOOL(s, f, name, need, ...)                                                           \
    JSON_ROW_(s, f, bool, name, JSON_KIND_BOOL, need, ##__VA_ARGS__)
#define JSON_ENUM(s, f, name, need, list, ...)                                                     \
    JSON_ROW_(s, f, int64_t, name, JSON_KIND_ENUM, need, .names = (list), ##__VA_ARGS__)
#define JSON_TIME(s, f, name, need, ...)                                                           \
    JSON_ROW_(s, f, uint64_t, name, JSON_KIND_TIME, need, ##__VA_ARGS__)
#define JSON_STR_ARRAY(s, f, name, need, most, each_most, ...)                                     \
    JSON_ROW_(s, f, struct json_strings, name, JSON_KIND_STR_ARRAY, need, .max = (most),           \
              .item_max = (each_most), ##__VA_ARGS__)
#define JSON_STR_MAP(s, f, name, need, most, each_most, ...)                                       \
    JSON_ROW_(s, f, struct json_map, name, JSON_KIND_STR_MAP, need, .max = (most),                 \
              .item_max = (each_most), ##__VA_ARGS__)
/* s.f is a pointer to the struct that `table` describes. */
#define JSON_OBJECT(s, f, name_, need_, table, ...)                                                \
    {                                                                                              \
        .name = (name_), .kind = JSON_KIND_OBJECT, .need = (need_), .offset = offsetof(s, f),      \
        .fields = (table), .size = sizeof(*((s *)0)->f), ##__VA_ARGS__                             \
    }
#define JSON_OBJECTS(s, f, type, name, need, table, most, ...)                                     \
    JSON_ROW_(s, f, struct json_array, name, JSON_KIND_OBJECTS, need, .max = (most),               \
              .fields = (table), .size = sizeof(type), ##__VA_ARGS__)
/* A value that is JSON already, such as the id of a JSON-RPC request; .bytes NULL = not given. */
#define JSON_RAW(s, f, name, need, ...)                                                            \
    JSON_ROW_(s, f, struct json_text, name, JSON_KIND_RAW, need, ##__VA_ARGS__)
#define JSON_HAS(s, f) .has = 1 + JSON_FIELD_(s, f, bool)
#define JSON_END                                                                                   \
    {                                                                                              \
        .kind = JSON_KIND_END                                                                      \
    }

/* ------------------------------------------------------------------ reading (json_parse.c, json_read.c) */

/*
 * Bounds on any text. A tree takes up to 250 times the room of its text ("{},{},{}"), so what makes
 * it large is counted before it is built.
 */
enum { JSON_DEPTH_MAX = 32, JSON_CONTAINERS_MAX = 10000, JSON_VALUES_MAX = 200000 };

/* The text of one object as a tree, which json_free() releases. Messages begin with "body:". */
int json_parse(const char *text, size_t len, struct json_object **ret, struct cove_err *e);
void json_free(struct json_object *tree);
/* How much memory the tree of this text may take, so that a caller can charge a budget before parsing. */
size_t json_weight(const char *text, size_t len);

/* On failure *out may be filled in part. */
int json_read(struct arena *a, struct json_object *tree, const struct json_field *fields, void *out,
              struct cove_err *e);

/* ------------------------------------------------------------------ writing (json_write.c) */

/* How many bytes of a string are written at a time. As JSON they may be six times as many. */
enum { JSON_PIECE_BYTES = 9 * 1024 };

/*
 * Writes into a buffer; `name` is NULL for the outermost value and for an array's entries. With a
 * drain, the buffer is handed over whenever it holds `drain_at` bytes or more, in the middle of a
 * long string too, so a reply of any size needs no more room than that and one piece. The drain takes
 * what it can out of the buffer; non-zero: the reader is gone, and everything after is thrown away.
 */
struct json_writer {
    struct buf *out;
    bool comma; /* the next value follows another one */
    bool stopped;
    size_t drain_at;
    int (*drain)(void *arg);
    void *drain_arg;
};

void json_writer_init(struct json_writer *w, struct buf *out);

void json_open(struct json_writer *w, const char *name, char bracket); /* '{' or '[' */
void json_close(struct json_writer *w, char bracket);                  /* '}' or ']' */
void json_put_str(struct json_writer *w, const char *name, const char *text);
void json_put_text(struct json_writer *w, const char *name, const char *bytes, size_t len);
void json_put_bytes(struct json_writer *w, const char *name, const char *bytes,
                    size_t len); /* base64 */
/* A string that comes in parts; no character may be divided between two of them. Between two parts
 * the caller may give the writer another buffer. */
void json_text_begin(struct json_writer *w, const char *name);
void json_text_add(struct json_writer *w, const char *bytes, size_t len);
void json_text_end(struct json_writer *w);
void json_put_int(struct json_writer *w, const char *name, int64_t number);
void json_put_double(struct json_writer *w, const char *name, double number);
void json_put_bool(struct json_writer *w, const char *name, bool value);
/* A value that is JSON already, such as the id of a JSON-RPC request. */
void json_put_json(struct json_writer *w, const char *name, const char *text, size_t len);

/* Writes the members of `from` by its table into the object that is open. */
void json_put_members(struct json_writer *w, const struct json_field *fields, const void *from);
/* Writes `from` as a whole object. */
void json_put_object(struct json_writer *w, const char *name, const struct json_field *fields,
                     const void *from);

#endif
