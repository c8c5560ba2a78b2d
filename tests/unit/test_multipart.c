/* fcgi/multipart.c: forms in pieces of any size, and forms that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "fcgi/multipart.h"

/* What came out, as one text: "name|filename=data;" for each part. */
struct seen {
    char text[4096];
    size_t len;
};

static void add(struct seen *s, const char *bytes, size_t len)
{
    assert_true(s->len + len < sizeof(s->text));
    memcpy(s->text + s->len, bytes, len);
    s->len += len;
    s->text[s->len] = '\0';
}

static int begin(void *arg, const struct multipart_part *part, struct cove_err *e)
{
    char head[300];

    (void)e;
    snprintf(head, sizeof(head), "%.100s|%.100s=", part->name,
             part->filename ? part->filename : "-");
    add(arg, head, strlen(head));
    return 0;
}

static int data(void *arg, const char *bytes, size_t len, struct cove_err *e)
{
    (void)e;
    add(arg, bytes, len);
    return 0;
}

static int end(void *arg, struct cove_err *e)
{
    (void)e;
    add(arg, ";", 1);
    return 0;
}

static int parse(const char *type, const char *body, size_t step, struct seen *seen,
                 struct cove_err *e)
{
    struct multipart m = { .begin = begin, .data = data, .end = end, .arg = seen };
    size_t len = strlen(body);
    int rc = 0;

    *seen = (struct seen){ 0 };
    if (multipart_init(&m, type, e) < 0)
        return -1;
    for (size_t at = 0; rc == 0 && at < len; at += step)
        rc = multipart_feed(&m, body + at, len - at < step ? len - at : step, e);
    if (rc == 0)
        rc = multipart_finish(&m, e);
    multipart_done(&m);
    return rc;
}

#define TYPE "multipart/form-data; boundary=XX"
#define HEAD "Content-Disposition: form-data; name=\"file\"; filename=\"a/b.txt\"\r\n"

static const struct {
    const char *type, *body, *seen, *because;
} good[] = {
    { TYPE, "--XX\r\n" HEAD "\r\nhello\r\n--XX--\r\n", "file|a/b.txt=hello;", "one file" },
    { TYPE, "--XX\r\n" HEAD "\r\n\r\n--XX--\r\n", "file|a/b.txt=;", "an empty file" },
    { TYPE, "before\r\n--XX\r\n" HEAD "\r\nx\r\n--XX--after", "file|a/b.txt=x;",
      "what stands around the parts is nobody's" },
    { TYPE, "--XX\r\n" HEAD "\r\n\r\n--X\r\n-XX\r\n--XX--", "file|a/b.txt=\r\n--X\r\n-XX;",
      "almost a boundary is data" },
    { TYPE,
      "--XX\r\nX-Other: 1\r\ncontent-disposition: form-data; name=k\r\n\r\nv\r\n--XX\r\n" HEAD
      "\r\n1\r\n--XX--",
      "k|-=v;file|a/b.txt=1;", "two parts, a name without quotes" },
    { "multipart/form-data; charset=utf-8; boundary=\"X X\"",
      "--X X\r\nContent-Disposition: form-data; name=\"a\\\"b\"; filename=\"gr\xc3\xb6\xc3\x9f"
      "e\"\r\n\r\n1\r\n--X X--",
      "a\"b|gr\xc3\xb6\xc3\x9f"
      "e=1;",
      "quoted boundary, quoted quote, UTF-8" },
};

static void forms_come_apart_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        for (size_t step = 1; step < 80; step++) {
            struct cove_err e = { 0 };
            struct seen seen;

            if (parse(good[i].type, good[i].body, step, &seen, &e) < 0)
                fail_msg("%s, %zu bytes at a time: %s", good[i].because, step, e.msg);
            assert_string_equal(seen.text, good[i].seen);
        }
    }
}

static const struct {
    const char *type, *body, *because;
} bad[] = {
    { "multipart/form-data", "", "no boundary" },
    { "multipart/form-data; boundary=", "", "an empty boundary" },
    { "text/plain; boundary=XX", "", "another type" },
    { TYPE, "", "nothing" },
    { TYPE, "--XX\r\n" HEAD "\r\nhello", "cut in the data" },
    { TYPE, "--XX\r\n" HEAD "\r\nhello\r\n--XX", "cut in the last boundary" },
    { TYPE, "--XX\r\n\r\nhello\r\n--XX--", "a part without a head" },
    { TYPE, "--XXy\r\n" HEAD "\r\nhello\r\n--XX--", "something behind a boundary" },
};

static void what_is_no_form_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct cove_err e = { 0 };
        struct seen seen;

        if (parse(bad[i].type, bad[i].body, 7, &seen, &e) == 0)
            fail_msg("%s: was taken", bad[i].because);
        assert_int_equal(e.code, COVE_INVALID);
    }
}

static void a_head_without_an_end_is_refused(void **state)
{
    static char body[3 * MULTIPART_HEAD_MAX];
    struct cove_err e = { 0 };
    struct seen seen;

    (void)state;
    memset(body, 'x', sizeof(body) - 1);
    memcpy(body, "--XX\r\n", 6);
    assert_int_equal(parse(TYPE, body, 1000, &seen, &e), -1);
    assert_string_equal(e.msg, "body: the head of a part is too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_come_apart_however_they_are_cut),
        cmocka_unit_test(what_is_no_form_is_refused),
        cmocka_unit_test(a_head_without_an_end_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
