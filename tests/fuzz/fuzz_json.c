/*
 * Any bytes as a request's JSON: base/json_read.c by a table with every kind of field, and
 * base/json_write.c back. What was understood and written is understood again, and the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cove/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct inner {
    const char *word;
    int64_t number;
};

struct outer {
    const char *word;
    struct json_text text, bytes;
    int64_t number, choice;
    double real;
    bool flag;
    uint64_t when;
    struct json_strings list;
    struct json_map map;
    struct inner *one;
    struct json_array many;
};

static const struct json_name choices[] = { { "first", 1 }, { "second", 2 }, { NULL, 0 } };

static const struct json_field inner_fields[] = {
    JSON_STR(struct inner, word, "word", JSON_OPTIONAL, 100),
    JSON_INT(struct inner, number, "number", JSON_ALWAYS, -1000, 1000),
    JSON_END,
};

static const struct json_field outer_fields[] = {
    JSON_STR(struct outer, word, "word", JSON_OPTIONAL, 100),
    JSON_TEXT(struct outer, text, "text", JSON_OPTIONAL, 1000),
    JSON_BYTES(struct outer, bytes, "bytes", JSON_OPTIONAL, 1000),
    JSON_INT(struct outer, number, "number", JSON_ALWAYS, -1000000, 1000000),
    JSON_ENUM(struct outer, choice, "choice", JSON_OPTIONAL, choices),
    JSON_DOUBLE(struct outer, real, "real", JSON_OPTIONAL),
    JSON_BOOL(struct outer, flag, "flag", JSON_ALWAYS),
    JSON_TIME(struct outer, when, "when", JSON_OPTIONAL),
    JSON_STR_ARRAY(struct outer, list, "list", JSON_OPTIONAL, 50, 100),
    JSON_STR_MAP(struct outer, map, "map", JSON_OPTIONAL, 50, 100),
    JSON_OBJECT(struct outer, one, "one", JSON_OPTIONAL, inner_fields),
    JSON_OBJECTS(struct outer, many, struct inner, "many", JSON_OPTIONAL, inner_fields, 50),
    JSON_END,
};

/* The text's object, written again; 0 if it was not understood. */
static int rewrite(const char *text, size_t len, struct buf *out)
{
    struct json_object *tree = NULL;
    struct arena a = { 0 };
    struct outer value = { 0 };
    struct cove_err e = { 0 };
    struct json_writer w;
    int rc = json_parse(text, len, &tree, &e);

    if (rc == 0)
        rc = json_read(&a, tree, outer_fields, &value, &e);
    if (rc < 0 && e.msg[0] == '\0')
        abort(); /* a refusal always says why */
    if (rc == 0) {
        json_writer_init(&w, out);
        json_put_object(&w, NULL, outer_fields, &value);
    }
    json_free(tree);
    arena_done(&a);
    return rc == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf first = BUF(1 << 20), second = BUF(1 << 20);

    (void)json_weight((const char *)data, size);
    if (!rewrite((const char *)data, size, &first))
        return 0;
    if (first.overflow || !rewrite(first.data, first.len, &second) || first.len != second.len ||
        memcmp(first.data, second.data, first.len) != 0)
        abort();
    return 0;
}
