/* fcgi/connect.c and fcgi/connect_json.c: both codecs, envelopes, the head of a call, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "fcgi/connect.h"
#include "fcgi/proto/filesystem.pb-c.h"
#include "fcgi/proto/process.pb-c.h"
#include "tests/unit/fcgi_request.h"

#define START (&process__start_request__descriptor)

/* ------------------------------------------------------------------ JSON in, JSON out */

static const struct {
    const ProtobufCMessageDescriptor *type;
    const char *in, *out, *because;
} good_cases[] = {
    { START, "{}", "{}", "nothing is set, nothing is told" },
    { START,
      "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"echo hi\"],\"envs\":{\"X\":"
      "\"1\"},\"cwd\":\"/tmp\"},\"stdin\":false}",
      "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"echo hi\"],\"envs\":{\"X\":"
      "\"1\"},\"cwd\":\"/tmp\"},\"stdin\":false}",
      "a false that is set is told" },
    { START, "{\"unknown\":[1,{\"a\":2}],\"tag\":null}", "{}",
      "unknown names and null are nothing" },
    { START, "{\"pty\":{\"size\":{\"cols\":\"80\",\"rows\":24.0}}}",
      "{\"pty\":{\"size\":{\"cols\":80,\"rows\":24}}}", "numbers as strings and as 24.0" },
    { START, "{\"tag\":\"a\",\"tag\":\"b\"}", "{\"tag\":\"b\"}", "the last one counts" },
    { &process__send_input_request__descriptor, "{\"input\":{\"stdin\":\"-_8\"}}",
      "{\"input\":{\"stdin\":\"+/8=\"}}", "URL-safe base64 without padding" },
    { &process__send_input_request__descriptor, "{\"input\":{\"stdin\":\"\"}}",
      "{\"input\":{\"stdin\":\"\"}}", "a chosen member that is empty is told" },
    { &process__send_signal_request__descriptor, "{\"signal\":15}",
      "{\"signal\":\"SIGNAL_SIGTERM\"}", "an enum by its number" },
    { &process__send_signal_request__descriptor, "{\"signal\":77}", "{\"signal\":77}",
      "a number that has no name stays one" },
    { &process__stream_input_request__descriptor, "{\"keepalive\":{}}", "{\"keepalive\":{}}",
      "an empty message that is set" },
    { &filesystem__watch_request__descriptor, "{\"include_entry\":true}", "{\"includeEntry\":true}",
      "snake_case is read, camelCase is written" },
    { &filesystem__entry_info__descriptor, "{\"size\":\"9007199254740993\",\"mode\":420}",
      "{\"size\":\"9007199254740993\",\"mode\":420}", "64 bits are a string" },
};

static void json_comes_back_as_it_should(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good_cases); i++) {
        struct arena a = { 0 };
        struct cove_err e = { 0 };
        ProtobufCMessage *m, *again;
        struct buf json, binary;

        buf_init(&json, 4096);
        buf_init(&binary, 4096);
        if (connect_decode(&a, CONNECT_JSON, good_cases[i].type, good_cases[i].in,
                           strlen(good_cases[i].in), &m, &e) < 0)
            fail_msg("%s: %s", good_cases[i].because, e.msg);
        /* By way of the binary form: both codecs say the same. */
        assert_int_equal(connect_encode(CONNECT_PROTO, m, &binary), 0);
        assert_int_equal(connect_decode(&a, CONNECT_PROTO, good_cases[i].type,
                                        binary.data ? binary.data : "", binary.len, &again, &e),
                         0);
        assert_int_equal(connect_encode(CONNECT_JSON, again, &json), 0);
        assert_string_equal(json.data, good_cases[i].out);
        buf_done(&json);
        buf_done(&binary);
        arena_done(&a);
    }
}

static const struct {
    const ProtobufCMessageDescriptor *type;
    const char *in, *message;
} bad_cases[] = {
    { START, "", "body: empty, a JSON object is expected" },
    { START, "[]", "body: must be a JSON object" },
    { START, "{\"process\":3}", "ProcessConfig: must be an object" },
    { START, "{\"process\":{\"cmd\":3}}", "cmd: must be a string" },
    { START, "{\"process\":{\"cmd\":\"a\\u0000b\"}}", "cmd: must not contain a NUL character" },
    { START, "{\"process\":{\"args\":\"x\"}}", "args: must be an array" },
    { START, "{\"process\":{\"args\":[null]}}", "args: must be a string" },
    { START, "{\"process\":{\"envs\":[]}}", "envs: must be an object" },
    { START, "{\"process\":{\"envs\":{\"A\":1}}}", "envs: must be a string" },
    { START, "{\"stdin\":1}", "stdin: must be true or false" },
    { START, "{\"pty\":{\"size\":{\"cols\":-1}}}", "cols: the number is out of range" },
    { START, "{\"pty\":{\"size\":{\"cols\":1.5}}}", "cols: must be a whole number" },
    { START, "{\"pty\":{\"size\":{\"cols\":\"1x\"}}}", "cols: must be a whole number" },
    { START, "{\"pty\":{\"size\":{\"cols\":4294967296}}}", "cols: the number is out of range" },
    { &process__send_input_request__descriptor, "{\"input\":{\"stdin\":\"a!b\"}}",
      "stdin: is not base64" },
    { &process__send_input_request__descriptor, "{\"input\":{\"stdin\":\"YQ==\",\"pty\":\"YQ==\"}}",
      "pty: another member of the same choice is given too" },
    { &process__send_signal_request__descriptor, "{\"signal\":\"SIGNAL_SIGHUP\"}",
      "signal: is not a value of this enum" },
};

static void bad_json_names_its_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad_cases); i++) {
        struct arena a = { 0 };
        struct cove_err e = { 0 };
        ProtobufCMessage *m;

        assert_int_equal(connect_decode(&a, CONNECT_JSON, bad_cases[i].type, bad_cases[i].in,
                                        strlen(bad_cases[i].in), &m, &e),
                         -1);
        assert_string_equal(e.msg, bad_cases[i].message);
        assert_int_equal(e.code, COVE_INVALID);
        arena_done(&a);
    }
}

/* exit_code is a sint32: -1 is one byte, 0x01. */
static void binary_is_what_other_implementations_write(void **state)
{
    Process__ProcessEvent__EndEvent end = PROCESS__PROCESS_EVENT__END_EVENT__INIT;
    Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
    Process__EventResponse m = PROCESS__EVENT_RESPONSE__INIT;
    struct buf out;

    (void)state;
    end.has_exit_code = 1;
    end.exit_code = -1;
    end.status = (char *)"signal: killed";
    event.event_case = PROCESS__PROCESS_EVENT__EVENT_END;
    event.end = &end;
    m.event = &event;
    buf_init(&out, 4096);
    assert_int_equal(connect_encode(CONNECT_PROTO, &m.base, &out), 0);
    assert_int_equal(out.len, 22);
    assert_memory_equal(out.data, "\x0a\x14\x1a\x12\x08\x01\x1a\x0esignal: killed", 22);
    buf_done(&out);
}

static void binary_garbage_is_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        { "\xff", 1 },
        { "\x0a\x05\x0a\x7f", 4 },                                  /* a length beyond the end */
        { "\x0a\xff\xff\xff\xff\x0f", 6 },                          /* 4 GiB of it */
        { "\x0b", 1 },                                              /* a group */
        { "\x22\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12 }, /* a varint without an end */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct arena a = { 0 };
        struct cove_err e = { 0 };
        ProtobufCMessage *m;

        assert_int_equal(
            connect_decode(&a, CONNECT_PROTO, START, cases[i].bytes, cases[i].len, &m, &e), -1);
        assert_int_equal(e.code, COVE_INVALID);
        arena_done(&a);
    }
}

static void times_are_rfc_3339(void **state)
{
    Filesystem__Timestamp t = FILESYSTEM__TIMESTAMP__INIT;
    struct buf out;

    (void)state;
    t.has_seconds = t.has_nanos = 1;
    t.seconds = 1767323045;
    t.nanos = 678000001;
    buf_init(&out, 100);
    assert_int_equal(connect_json_encode(&t.base, &out), 0);
    assert_string_equal(out.data, "\"2026-01-02T03:04:05.678000001Z\"");
    buf_done(&out);
}

/* ------------------------------------------------------------------ envelopes */

static void an_envelope_is_read_back(void **state)
{
    static const char bytes[] = "\0\0\0\0\x09{\"pid\":7}\2\0\0\0\2{}";
    struct connect_envelope env;
    size_t used, all = sizeof(bytes) - 1;
    struct cove_err e;

    (void)state;
    for (size_t len = 0; len < CONNECT_PREFIX_BYTES + 9; len++) /* any piece of it: wait for more */
        assert_int_equal(connect_envelope_read(bytes, len, 100, &env, &used, &e), 0);
    assert_int_equal(connect_envelope_read(bytes, all, 100, &env, &used, &e), 1);
    assert_int_equal(env.flags, 0);
    assert_int_equal(env.len, 9);
    assert_memory_equal(env.payload, "{\"pid\":7}", 9);
    assert_int_equal(connect_envelope_read(bytes + used, all - used, 100, &env, &used, &e), 1);
    assert_int_equal(env.flags, CONNECT_END);
    assert_memory_equal(env.payload, "{}", 2);
}

static void bad_envelopes_are_refused(void **state)
{
    struct connect_envelope env;
    struct cove_err e;
    size_t used;

    (void)state;
    assert_int_equal(connect_envelope_read("\4\0\0\0\0", 5, 100, &env, &used, &e), -1);
    assert_int_equal(e.code, COVE_INVALID);
    assert_int_equal(connect_envelope_read("\0\xff\xff\xff\xff", 5, 100, &env, &used, &e), -1);
    assert_int_equal(e.code, COVE_TOO_LARGE);
}

static void a_stream_ends_with_its_error(void **state)
{
    struct cove_err e = { .code = COVE_NOT_FOUND, .msg = "no \"x\"" };
    struct buf out;

    (void)state;
    buf_init(&out, 200);
    assert_int_equal(connect_end_add(&e, connect_code(e.code), &out), 0);
    assert_string_equal(out.data,
                        "{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\"}}");
    buf_done(&out);
}

/* ------------------------------------------------------------------ compression */

static size_t gzip(const char *text, size_t len, unsigned char *out, size_t size)
{
    z_stream z = { 0 };

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)text;
    z.avail_in = (unsigned)len;
    z.next_out = out;
    z.avail_out = (unsigned)size;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size -= z.avail_out;
    deflateEnd(&z);
    return size;
}

static void gzip_is_unpacked_within_bounds(void **state)
{
    static char zeros[100000];
    unsigned char packed[4096];
    size_t len = gzip(zeros, sizeof(zeros), packed, sizeof(packed));
    struct cove_err e;
    struct buf out;

    (void)state;
    buf_init(&out, 200000);
    assert_int_equal(connect_gunzip((char *)packed, len, 100001, &out, &e), 0);
    assert_int_equal(out.len, sizeof(zeros));
    buf_clear(&out);
    assert_int_equal(connect_gunzip((char *)packed, len, 99999, &out, &e), -1);
    assert_int_equal(e.code, COVE_TOO_LARGE);
    buf_clear(&out);
    assert_int_equal(connect_gunzip((char *)packed, len - 3, 200000, &out, &e), -1);
    assert_int_equal(e.code, COVE_INVALID);
    buf_clear(&out);
    assert_int_equal(connect_gunzip("hello", 5, 100, &out, &e), -1);
    assert_int_equal(e.code, COVE_INVALID);
    buf_done(&out);
}

/* ------------------------------------------------------------------ the head */

static const struct {
    const char *param;
    int code; /* 0: taken */
    bool stream;
    enum connect_codec codec;
} heads[] = {
    { "CONTENT_TYPE=application/json", 0, false, CONNECT_JSON },
    { "CONTENT_TYPE=Application/JSON; charset=utf-8", 0, false, CONNECT_JSON },
    { "CONTENT_TYPE=application/proto", 0, false, CONNECT_PROTO },
    { "CONTENT_TYPE=application/connect+json", 0, true, CONNECT_JSON },
    { "CONTENT_TYPE=application/connect+proto", 0, true, CONNECT_PROTO },
    { "CONTENT_TYPE=application/grpc", COVE_UNSUPPORTED, false, CONNECT_JSON },
    { "CONTENT_TYPE=application/jsonx", COVE_UNSUPPORTED, false, CONNECT_JSON },
    { "CONTENT_TYPE=", COVE_UNSUPPORTED, false, CONNECT_JSON },
};

static void the_content_type_decides(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        struct fake_request f;
        struct connect_call call;
        struct cove_err e = { 0 };

        assert_int_equal(fake_init(&f, "POST", "/x", heads[i].param, &e), 0);
        assert_int_equal(connect_head(&f.req, &call, &e), heads[i].code ? -1 : 0);
        assert_int_equal(e.code, heads[i].code);
        if (!heads[i].code) {
            assert_int_equal(call.stream, heads[i].stream);
            assert_int_equal(call.codec, heads[i].codec);
        }
        request_done(&f.req);
    }
}

static void every_error_has_a_code_and_a_status(void **state)
{
    (void)state;
    for (int code = COVE_INVALID; code < COVE_CODE_COUNT; code++)
        assert_string_not_equal(connect_code(code), "unknown");
    assert_int_equal(connect_http_status("not_found"), 404);
    assert_int_equal(connect_http_status("deadline_exceeded"), 504);
    assert_int_equal(connect_http_status("internal"), 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_comes_back_as_it_should),
        cmocka_unit_test(bad_json_names_its_field),
        cmocka_unit_test(binary_is_what_other_implementations_write),
        cmocka_unit_test(binary_garbage_is_refused),
        cmocka_unit_test(times_are_rfc_3339),
        cmocka_unit_test(an_envelope_is_read_back),
        cmocka_unit_test(bad_envelopes_are_refused),
        cmocka_unit_test(a_stream_ends_with_its_error),
        cmocka_unit_test(gzip_is_unpacked_within_bounds),
        cmocka_unit_test(the_content_type_decides),
        cmocka_unit_test(every_error_has_a_code_and_a_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
