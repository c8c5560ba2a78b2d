/*
 * JSON bodies into structs, by a table of fields. A message names the field: "commands[3]: must be
 * a string".
 *
 *     static const struct json_field create_fields[] = {
 *         JSON_STR(struct create_args, template, "template", JSON_OPTIONAL, MAX_NAME),
 *         JSON_INT(struct create_args, timeout_s, "timeout", JSON_OPTIONAL, 1, 3600),
 *         JSON_END
 *     };
 *
 * Optional fields that are missing or null leave the struct as it was. Unknown fields are ignored,
 * of fields given twice the last one counts. Strings point into the request's JSON tree, arrays
 * into its arena.
 */
#ifndef COVE_FCGI_JSON_H
#define COVE_FCGI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/err.h"
#include "fcgi/http.h"

/*
 * Bounds on any body. A tree takes up to 250 times the room of its text ("{},{},{}"), so what makes
 * it large is counted before it is built.
 */
enum { JSON_DEPTH_MAX = 32, JSON_CONTAINERS_MAX = 10000, JSON_VALUES_MAX = 200000 };

enum json_kind {
    JSON_KIND_END,
    JSON_KIND_STR,       /* const char * */
    JSON_KIND_TEXT,      /* struct json_text */
    JSON_KIND_INT,       /* int64_t */
    JSON_KIND_BOOL,      /* bool */
    JSON_KIND_STR_ARRAY, /* struct json_strings */
    JSON_KIND_STR_MAP,   /* struct json_map */
};

enum json_need { JSON_OPTIONAL, JSON_REQUIRED };

struct json_text { /* a string that may hold NUL characters */
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

struct json_field {
    const char *name;
    enum json_kind kind;
    enum json_need need;
    size_t offset;
    int64_t min,
        max; /* of a number; max is also the bytes of a string, the entries of an array or map */
    size_t item_max; /* bytes of an array's or map's strings */
};

#define JSON_FIELD_(s, f, type)                                                                    \
    (offsetof(s, f) + 0 * sizeof(char[_Generic(((s *)0)->f, type : 1, default : -1)]))

#define JSON_STR(s, f, name, need, max)                                                            \
    {                                                                                              \
        (name), JSON_KIND_STR, (need), JSON_FIELD_(s, f, const char *), 0, (max), 0                \
    }
#define JSON_TEXT(s, f, name, need, max)                                                           \
    {                                                                                              \
        (name), JSON_KIND_TEXT, (need), JSON_FIELD_(s, f, struct json_text), 0, (max), 0           \
    }
#define JSON_INT(s, f, name, need, min, max)                                                       \
    {                                                                                              \
        (name), JSON_KIND_INT, (need), JSON_FIELD_(s, f, int64_t), (min), (max), 0                 \
    }
#define JSON_BOOL(s, f, name, need)                                                                \
    {                                                                                              \
        (name), JSON_KIND_BOOL, (need), JSON_FIELD_(s, f, bool), 0, 0, 0                           \
    }
#define JSON_STR_ARRAY(s, f, name, need, max, item_max)                                            \
    {                                                                                              \
        (name), JSON_KIND_STR_ARRAY, (need), JSON_FIELD_(s, f, struct json_strings), 0, (max),     \
            (item_max)                                                                             \
    }
#define JSON_STR_MAP(s, f, name, need, max, item_max)                                              \
    {                                                                                              \
        (name), JSON_KIND_STR_MAP, (need), JSON_FIELD_(s, f, struct json_map), 0, (max),           \
            (item_max)                                                                             \
    }
#define JSON_END                                                                                   \
    {                                                                                              \
        0                                                                                          \
    }

int json_parse(const char *text, size_t len, struct json_object **ret, struct cove_err *e);

/* Parse the body (once, kept in req->json) and fill *out. On failure *out may be filled in part. */
int json_decode(struct request *req, const struct json_field *fields, void *out,
                struct cove_err *e);

#endif
