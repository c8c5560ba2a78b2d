/* base/json_parse.c, base/json_read.c and base/json_write.c: what a body may be, what is said when it is not, and the way
 * back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cove/json.h"
#include "tests/unit/fcgi_request.h"

struct args {
    const char *name;
    int64_t timeout;
    bool flag;
    struct json_strings list;
    struct json_map map;
};

static const struct json_field fields[] = {
    JSON_STR(struct args, name, "name", JSON_REQUIRED, 10),
    JSON_INT(struct args, timeout, "timeout", JSON_OPTIONAL, 1, 60),
    JSON_BOOL(struct args, flag, "flag", JSON_OPTIONAL),
    JSON_STR_ARRAY(struct args, list, "list", JSON_OPTIONAL, 3, 5),
    JSON_STR_MAP(struct args, map, "map", JSON_OPTIONAL, 2, 5),
    JSON_END,
};

static const struct {
    const char *body, *message, *because;
} bad_cases[] = {
    { "", "body: empty, a JSON object is expected", "no body" },
    { " \n", "body: empty, a JSON object is expected", "nothing but blanks" },
    { "[]", "body: must be a JSON object", "an array" },
    { "null", "body: must be a JSON object", "null" },
    { "garbage", "body: must be a JSON object", "a word" },
    { "\x01\x02", "body: must be a JSON object", "binary" },
    { "{}", "name: is missing", "a required field" },
    { "{\"name\":null}", "name: is missing", "null is like not there" },
    { "{\"name\":1}", "name: must be a string", "a number is not a string" },
    { "{\"name\":\"12345678901\"}", "name: 11 bytes are more than 10", "too long" },
    { "{\"name\":\"a\\u0000b\"}", "name: must not contain a NUL character", "NUL" },
    { "{\"name\":\"a\",\"timeout\":0}", "timeout: 0 is below 1", "below" },
    { "{\"name\":\"a\",\"timeout\":99999999999999999999}",
      "timeout: 9223372036854775807 is above 60", "far above" },
    { "{\"name\":\"a\",\"timeout\":1.5}", "timeout: must be a whole number", "a fraction" },
    { "{\"name\":\"a\",\"timeout\":\"5\"}", "timeout: must be a whole number", "a string" },
    { "{\"name\":\"a\",\"flag\":1}", "flag: must be true or false", "1 is not true" },
    { "{\"name\":\"a\",\"list\":\"x\"}", "list: must be an array of strings", "a string" },
    { "{\"name\":\"a\",\"list\":[\"x\",2]}", "list[1]: must be a string", "second entry" },
    { "{\"name\":\"a\",\"list\":[null]}", "list[0]: must be a string", "null in a list" },
    { "{\"name\":\"a\",\"list\":[\"123456\"]}", "list[0]: 6 bytes are more than 5", "long entry" },
    { "{\"name\":\"a\",\"list\":[\"\",\"\",\"\",\"\"]}", "list: 4 entries are more than 3",
      "many" },
    { "{\"name\":\"a\",\"map\":{\"K\":1}}", "map.K: must be a string", "a map's value" },
    { "{\"name\":\"a\",\"map\":[]}", "map: must be an object of strings", "not a map" },
};

static void a_bad_field_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad_cases); i++) {
        struct fake_request f;
        struct args args = { 0 };
        struct cove_err e = { 0 };

        fake_init(&f, "POST", "/", NULL, &e);
        fake_body(&f, bad_cases[i].body, strlen(bad_cases[i].body));
        if (request_json(&f.req, fields, &args, &e) == 0)
            fail_msg("%s: was taken", bad_cases[i].because);
        assert_int_equal(e.code, COVE_INVALID);
        if (strcmp(e.msg, bad_cases[i].message) != 0)
            fail_msg("%s: '%s'", bad_cases[i].because, e.msg);
        request_done(&f.req);
    }
}

/* Text that is no JSON; the parser's own words may change, ours in front of them may not. */
static const struct {
    const char *body;
    size_t len;
    const char *because;
} not_json[] = {
    { "{\"name\":\"a\"", 11, "cut short" },
    { "{\"name\":\"a\"}x", 13, "text after the end" },
    { "{\"name\":\"a\"}{}", 14, "a second object" },
    { "{\"name\":\"a\"}\0", 13, "a NUL after the end" },
    { "{'name':'a'}", 12, "single quotes" },
    { "{\"name\":\"\xff\"}", 12, "not UTF-8" },
    { "{\"name\":\"a\nb\"}", 14, "a raw line feed in a string" },
    { "{name:\"a\"}", 10, "a bare name" },
    { "{\"name\":\"a\",}", 13, "a comma too many" },
};

static void what_is_not_json_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(not_json); i++) {
        struct fake_request f;
        struct args args = { 0 };
        struct cove_err e = { 0 };

        fake_init(&f, "POST", "/", NULL, &e);
        fake_body(&f, not_json[i].body, not_json[i].len);
        if (request_json(&f.req, fields, &args, &e) == 0)
            fail_msg("%s: was taken", not_json[i].because);
        assert_int_equal(e.code, COVE_INVALID);
        if (strncmp(e.msg, "body: not JSON: ", 16) != 0)
            fail_msg("%s: '%s'", not_json[i].because, e.msg);
        request_done(&f.req);
    }
}

static void all_kinds_arrive(void **state)
{
    static const char body[] =
        "{\"unknown\":{},\"name\":\"first\",\"name\":\"last\",\"timeout\":60,"
        "\"flag\":true,\"list\":[\"a\",\"\"],\"map\":{\"K\":\"V\"}} \r\n";
    struct fake_request f;
    struct args args = { 0 };
    struct cove_err e = { 0 };

    (void)state;
    fake_init(&f, "POST", "/", NULL, &e);
    fake_body(&f, body, strlen(body));
    assert_int_equal(request_json(&f.req, fields, &args, &e), 0);
    assert_string_equal(args.name, "last");
    assert_int_equal(args.timeout, 60);
    assert_true(args.flag);
    assert_int_equal(args.list.count, 2);
    assert_string_equal(args.list.items[0], "a");
    assert_string_equal(args.list.items[1], "");
    assert_null(args.list.items[2]);
    assert_int_equal(args.map.count, 1);
    assert_string_equal(args.map.items[0].name, "K");
    assert_string_equal(args.map.items[0].value, "V");
    request_done(&f.req);
}

static void missing_optional_fields_leave_the_defaults(void **state)
{
    struct fake_request f;
    struct args args = { .timeout = 7, .flag = true };
    struct cove_err e = { 0 };

    (void)state;
    fake_init(&f, "POST", "/", NULL, &e);
    fake_body(&f, "{\"name\":\"a\",\"timeout\":null}", 27);
    assert_int_equal(request_json(&f.req, fields, &args, &e), 0);
    assert_int_equal(args.timeout, 7);
    assert_true(args.flag);
    assert_null(args.list.items);
    request_done(&f.req);
}

/* `unit` written `count` times between an opening and a closing text. */
static char *repeated(const char *open, const char *unit, size_t count, const char *close)
{
    size_t unit_len = strlen(unit);
    char *text = malloc(strlen(open) + unit_len * count + strlen(close) + 1);
    char *at = stpcpy(text, open);

    for (size_t i = 0; i < count; i++)
        at = stpcpy(at, unit);
    strcpy(at, close);
    return text;
}

static const struct {
    const char *open, *unit, *close;
    size_t count;
    const char *message, *because;
} shapes[] = {
    { "{\"name\":\"a\",\"x\":", "[", "", 1000000, "body: nested deeper than 32", "a deep hole" },
    { "{\"name\":\"a\",\"x\":[", "{},", "1]}", 20000, "body: more than 10000 objects and arrays",
      "containers cost the most" },
    { "{\"name\":\"a\",\"x\":[", "1,", "1]}", 300000, "body: more than 200000 values", "numbers" },
    { "{\"name\":\"a\",\"x\":\"", "[{,", "\"}", 300000, NULL, "inside a string nothing counts" },
    { "{\"name\":\"a\",\"x\":\"", "\\\"[", "\"}", 300000, NULL, "nor after an escaped quote" },
};

static void what_would_grow_a_huge_tree_is_refused_before_it_is_built(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        char *body = repeated(shapes[i].open, shapes[i].unit, shapes[i].count, shapes[i].close);
        struct fake_request f;
        struct args args = { 0 };
        struct cove_err e = { 0 };
        int rc;

        fake_init(&f, "POST", "/", NULL, &e);
        fake_body(&f, body, strlen(body));
        rc = request_json(&f.req, fields, &args, &e);
        if ((rc == 0) != (shapes[i].message == NULL) ||
            (rc < 0 && strcmp(e.msg, shapes[i].message) != 0))
            fail_msg("%s: %d '%s'", shapes[i].because, rc, e.msg);
        request_done(&f.req);
        free(body);
    }
}

/* Small texts can make large trees: they are paid for before they are built. */
static void a_tree_is_paid_for_and_given_back(void **state)
{
    struct budget budget = { .max = 100000 };
    struct fake_request f;
    struct args args = { 0 };
    struct cove_err e = { 0 };
    char *body = repeated("{\"name\":\"a\",\"x\":[", "{},", 200, "1]}");

    (void)state;
    fake_init(&f, "POST", "/", NULL, &e);
    f.req.body.budget = &budget;
    fake_body(&f, body, strlen(body));
    assert_int_equal(request_json(&f.req, fields, &args, &e), -1);
    assert_int_equal(e.code, COVE_BUSY);
    budget.max = 1000000;
    assert_int_equal(request_json(&f.req, fields, &args, &e), 0);
    assert_true(atomic_load(&budget.used) > 200000);
    request_done(&f.req);
    assert_int_equal(atomic_load(&budget.used), 0);
    free(body);
}

static void depth_32_is_still_fine(void **state)
{
    char *body = repeated("{\"name\":\"a\",\"x\":", "[", 31, "1");
    struct fake_request f;
    struct args args = { 0 };
    struct cove_err e = { 0 };

    (void)state;
    fake_init(&f, "POST", "/", NULL, &e);
    f.req.body.max = 1000;
    buf_add_str(&f.req.body, body);
    for (int i = 0; i < 31; i++)
        buf_add_char(&f.req.body, ']');
    buf_add_char(&f.req.body, '}');
    if (request_json(&f.req, fields, &args, &e) < 0)
        fail_msg("%s", e.msg);
    request_done(&f.req);
    free(body);
}

/* ------------------------------------------------------------------ nested objects, and the way back */

struct port {
    int64_t number;
    const char *name;
};

struct box {
    const char *id;
    struct json_text output;
    struct json_text blob;
    int64_t big, level, color;
    bool has_level;
    double load;
    uint64_t started_unix_ms;
    struct json_strings tags;
    struct json_map env;
    struct port *main;
    struct json_array ports;
    const char *note;
};

static const struct json_field port_fields[] = {
    JSON_INT(struct port, number, "number", JSON_REQUIRED, 1, 65535),
    JSON_STR(struct port, name, "name", JSON_OPTIONAL, 10),
    JSON_END,
};

static const struct json_name colors[] = { { "RED", 1 }, { "BLUE", 2 }, { NULL, 0 } };

static const struct json_field box_fields[] = {
    JSON_STR(struct box, id, "id", JSON_REQUIRED, 10),
    JSON_TEXT(struct box, output, "output", JSON_ALWAYS, 100),
    JSON_BYTES(struct box, blob, "blob", JSON_OPTIONAL, 5),
    JSON_INT(struct box, big, "big", JSON_OPTIONAL, INT64_MIN, INT64_MAX),
    JSON_INT(struct box, level, "level", JSON_OPTIONAL, 0, 9, JSON_HAS(struct box, has_level)),
    JSON_ENUM(struct box, color, "color", JSON_OPTIONAL, colors),
    JSON_DOUBLE(struct box, load, "load", JSON_OPTIONAL),
    JSON_TIME(struct box, started_unix_ms, "started", JSON_OPTIONAL),
    JSON_STR_ARRAY(struct box, tags, "tags", JSON_OPTIONAL, 3, 5),
    JSON_STR_MAP(struct box, env, "env", JSON_OPTIONAL, 3, 5),
    JSON_OBJECT(struct box, main, "main", JSON_OPTIONAL, port_fields),
    JSON_OBJECTS(struct box, ports, struct port, "ports", JSON_ALWAYS, port_fields, 2),
    JSON_STR(struct box, note, "note", JSON_NULLABLE, 10),
    JSON_END,
};

static int read_box(struct arena *a, const char *text, struct json_object **ret_tree,
                    struct box *ret, struct cove_err *e)
{
    *ret_tree = NULL;
    *ret = (struct box){ 0 };
    if (json_parse(text, strlen(text), ret_tree, e) < 0)
        return -1;
    return json_read(a, *ret_tree, box_fields, ret, e);
}

static const char *const same_both_ways[] = {
    "{\"id\":\"a\",\"output\":\"\",\"ports\":[],\"note\":null}",
    "{\"id\":\"a\",\"output\":\"x\\u0000\\n\\\"\",\"blob\":\"AAH/"
    "\",\"big\":-9223372036854775808,"
    "\"level\":0,\"color\":\"BLUE\",\"load\":0.25,\"started\":\"2026-01-02T03:04:05.678Z\","
    "\"tags\":[\"t\",\"\"],\"env\":{\"K\":\"V\",\"L\":\"\"},\"main\":{\"number\":80,\"name\":"
    "\"web\"},"
    "\"ports\":[{\"number\":1},{\"number\":65535,\"name\":\"z\"}],\"note\":\"n\"}",
};

static void one_table_reads_and_writes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(same_both_ways); i++) {
        struct arena arena = { 0 };
        struct json_object *tree;
        struct json_writer w;
        AUTO_BUF struct buf out;
        struct cove_err e;
        struct box box;

        buf_init(&out, 4096);
        json_writer_init(&w, &out);
        if (read_box(&arena, same_both_ways[i], &tree, &box, &e) < 0)
            fail_msg("%s", e.msg);
        json_put_object(&w, NULL, box_fields, &box);
        assert_string_equal(out.data, same_both_ways[i]);
        json_free(tree);
        arena_done(&arena);
    }
}

static const struct {
    const char *text, *message;
} bad_boxes[] = {
    { "{\"id\":\"a\",\"ports\":[{\"number\":1},{\"number\":0}]}", "ports[1].number: 0 is below 1" },
    { "{\"id\":\"a\",\"ports\":[{}]}", "ports[0].number: is missing" },
    { "{\"id\":\"a\",\"ports\":[7]}", "ports[0]: must be an object" },
    { "{\"id\":\"a\",\"ports\":{}}", "ports: must be an array of objects" },
    { "{\"id\":\"a\",\"ports\":[{\"number\":1},{\"number\":1},{\"number\":1}]}",
      "ports: 3 entries are more than 2" },
    { "{\"id\":\"a\",\"main\":[]}", "main: must be an object" },
    { "{\"id\":\"a\",\"main\":{\"number\":1,\"name\":\"12345678901\"}}",
      "main.name: 11 bytes are more than 10" },
    { "{\"id\":\"a\",\"blob\":\"A\"}", "blob: is not base64" },
    { "{\"id\":\"a\",\"blob\":\"AAAAAAAA\"}", "blob: 6 bytes are more than 5" },
    { "{\"id\":\"a\",\"big\":\"12x\"}", "big: must be a whole number" },
    { "{\"id\":\"a\",\"big\":\"\"}", "big: must be a whole number" },
    { "{\"id\":\"a\",\"level\":\"1\"}", "level: must be a whole number" },
    { "{\"id\":\"a\",\"color\":\"GREEN\"}", "color: is none of the values it may have" },
    { "{\"id\":\"a\",\"color\":3}", "color: is none of the values it may have" },
    { "{\"id\":\"a\",\"load\":\"1\"}", "load: must be a number" },
    { "{\"id\":\"a\",\"started\":\"yesterday\"}",
      "started: must be a time like 2026-01-02T03:04:05Z" },
    { "{\"id\":\"a\",\"env\":{\"K\":\"123456\"}}", "env.K: 6 bytes are more than 5" },
};

static void a_bad_field_is_named_with_its_path(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad_boxes); i++) {
        struct arena arena = { 0 };
        struct json_object *tree;
        struct cove_err e = { 0 };
        struct box box;

        if (read_box(&arena, bad_boxes[i].text, &tree, &box, &e) == 0)
            fail_msg("%s was taken", bad_boxes[i].text);
        assert_string_equal(e.msg, bad_boxes[i].message);
        json_free(tree);
        arena_done(&arena);
    }
}

static void an_enum_may_come_as_its_number(void **state)
{
    struct arena arena = { 0 };
    struct json_object *tree;
    struct cove_err e;
    struct box box;

    (void)state;
    assert_int_equal(read_box(&arena, "{\"id\":\"a\",\"color\":1,\"big\":7}", &tree, &box, &e), 0);
    assert_int_equal(box.color, 1);
    assert_int_equal(box.big, 7);
    json_free(tree);
    arena_done(&arena);
}

/* ------------------------------------------------------------------ a writer that drains */

struct drained {
    struct buf *from;
    struct buf to;
    size_t most;
    int answer;
};

static int take_all(void *arg)
{
    struct drained *d = arg;

    d->most = d->from->len > d->most ? d->from->len : d->most;
    buf_add(&d->to, d->from->data, d->from->len);
    buf_clear(d->from);
    return d->answer;
}

/* Characters of two, three and four bytes, a lone byte that is no text, and a control character. */
static char *long_text(size_t want, size_t *ret_len)
{
    static const char unit[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\xa8\xff\x01";
    char *text = malloc(want + sizeof(unit));
    size_t len = 0;

    while (len < want) {
        memcpy(text + len, unit, sizeof(unit) - 1);
        len += sizeof(unit) - 1;
    }
    *ret_len = len;
    return text;
}

static void a_long_string_leaves_in_pieces_and_is_the_same(void **state)
{
    size_t len;
    char *text = long_text(300000, &len);
    AUTO_BUF struct buf whole, part;
    struct json_writer w;
    struct drained d = { .from = &part };

    (void)state;
    buf_init(&whole, 8 << 20);
    buf_init(&part, 256 * 1024);
    buf_init(&d.to, 8 << 20);
    buf_add_json_str(&whole, text, len);
    json_writer_init(&w, &part);
    w.drain = take_all;
    w.drain_arg = &d;
    w.drain_at = 32 * 1024;
    json_put_text(&w, NULL, text, len);
    take_all(&d);
    assert_false(part.overflow);
    assert_int_equal(d.to.len, whole.len);
    assert_memory_equal(d.to.data, whole.data, whole.len);
    assert_in_range(d.most, 1, 32 * 1024 + 6 * JSON_PIECE_BYTES);
    buf_done(&d.to);
    free(text);
}

/* Memory ran out for one piece and was there again for the next: what misses a piece must never leave. */
static void what_misses_a_part_is_not_handed_over(void **state)
{
    size_t len;
    char *text = long_text(300000, &len);
    struct budget budget = { .max = 1024 };
    AUTO_BUF struct buf part;
    struct json_writer w;
    struct drained d = { .from = &part };

    (void)state;
    buf_init_within(&part, 8 << 20, &budget);
    buf_init(&d.to, 8 << 20);
    json_writer_init(&w, &part);
    w.drain = take_all;
    w.drain_arg = &d;
    w.drain_at = 4096;
    json_open(&w, NULL, '{');
    json_put_text(&w, "a", text, len); /* no piece fits */
    budget.max = 0;                    /* now all would */
    json_put_text(&w, "b", text, len);
    json_close(&w, '}');
    assert_int_equal(d.to.len, 0);
    assert_true(part.starved);
    assert_in_range(part.len, 1, 100);
    buf_done(&d.to);
    free(text);
}

static void nothing_is_written_for_a_reader_who_has_left(void **state)
{
    size_t len;
    char *text = long_text(300000, &len);
    AUTO_BUF struct buf part;
    struct json_writer w;
    struct drained d = { .from = &part, .answer = -1 };

    (void)state;
    buf_init(&part, 256 * 1024);
    buf_init(&d.to, 8 << 20);
    json_writer_init(&w, &part);
    w.drain = take_all;
    w.drain_arg = &d;
    w.drain_at = 1000;
    json_open(&w, NULL, '{');
    json_put_text(&w, "a", text, len);
    json_put_text(&w, "b", text, len);
    json_close(&w, '}');
    assert_in_range(d.to.len, 1000, 100000); /* what was written until the reader said no */
    assert_in_range(part.len, 0, 10);
    buf_done(&d.to);
    free(text);
}

struct message {
    struct json_text id, none, must;
};

static const struct json_field message_fields[] = {
    JSON_RAW(struct message, id, "id", JSON_NULLABLE),
    JSON_RAW(struct message, none, "none", JSON_OPTIONAL),
    JSON_RAW(struct message, must, "must", JSON_REQUIRED),
    JSON_END,
};

static void what_is_json_already_is_written_as_it_is(void **state)
{
    AUTO_BUF struct buf given = BUF(100), missing = BUF(100);
    struct json_writer w;

    (void)state;
    json_writer_init(&w, &given);
    json_put_object(&w, NULL, message_fields,
                    &(struct message){ .id = { "[1, \"x\"]!", 8 }, .must = { "7", 1 } });
    assert_string_equal(given.data, "{\"id\":[1, \"x\"],\"must\":7}");
    json_writer_init(&w, &missing);
    json_put_object(&w, NULL, message_fields, &(struct message){ 0 });
    assert_string_equal(missing.data, "{\"id\":null,\"must\":null}");
}

static void a_string_in_parts_goes_on_in_another_buffer(void **state)
{
    AUTO_BUF struct buf first = BUF(100), second = BUF(100);
    struct json_writer w;

    (void)state;
    json_writer_init(&w, &first);
    json_open(&w, NULL, '{');
    json_put_json(&w, "id", "[1, \"x\"]!", 8);
    json_text_begin(&w, "line");
    json_text_add(&w, "a\"", 2);
    w.out = &second;
    json_text_add(&w, "b\n", 2);
    json_text_end(&w);
    json_put_bool(&w, "more", true);
    json_close(&w, '}');
    assert_string_equal(first.data, "{\"id\":[1, \"x\"],\"line\":\"a\\\"");
    assert_string_equal(second.data, "b\\n\",\"more\":true}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_field_is_named),
        cmocka_unit_test(what_is_not_json_is_refused),
        cmocka_unit_test(all_kinds_arrive),
        cmocka_unit_test(missing_optional_fields_leave_the_defaults),
        cmocka_unit_test(what_would_grow_a_huge_tree_is_refused_before_it_is_built),
        cmocka_unit_test(a_tree_is_paid_for_and_given_back),
        cmocka_unit_test(depth_32_is_still_fine),
        cmocka_unit_test(one_table_reads_and_writes),
        cmocka_unit_test(a_bad_field_is_named_with_its_path),
        cmocka_unit_test(an_enum_may_come_as_its_number),
        cmocka_unit_test(a_long_string_leaves_in_pieces_and_is_the_same),
        cmocka_unit_test(what_misses_a_part_is_not_handed_over),
        cmocka_unit_test(nothing_is_written_for_a_reader_who_has_left),
        cmocka_unit_test(what_is_json_already_is_written_as_it_is),
        cmocka_unit_test(a_string_in_parts_goes_on_in_another_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
