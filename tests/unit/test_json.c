/* fcgi/json.c: what a body may be, and what is said when it is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcgi/json.h"
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
        if (json_decode(&f.req, fields, &args, &e) == 0)
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
        if (json_decode(&f.req, fields, &args, &e) == 0)
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
    assert_int_equal(json_decode(&f.req, fields, &args, &e), 0);
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
    assert_int_equal(json_decode(&f.req, fields, &args, &e), 0);
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
        rc = json_decode(&f.req, fields, &args, &e);
        if ((rc == 0) != (shapes[i].message == NULL) ||
            (rc < 0 && strcmp(e.msg, shapes[i].message) != 0))
            fail_msg("%s: %d '%s'", shapes[i].because, rc, e.msg);
        request_done(&f.req);
        free(body);
    }
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
    if (json_decode(&f.req, fields, &args, &e) < 0)
        fail_msg("%s", e.msg);
    request_done(&f.req);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_field_is_named),
        cmocka_unit_test(what_is_not_json_is_refused),
        cmocka_unit_test(all_kinds_arrive),
        cmocka_unit_test(missing_optional_fields_leave_the_defaults),
        cmocka_unit_test(what_would_grow_a_huge_tree_is_refused_before_it_is_built),
        cmocka_unit_test(depth_32_is_still_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
