/* The Connect protocol: head, envelopes, both codecs, errors. See connect.h. */
#include "fcgi/connect.h"

#include <arpa/inet.h>
#include <json-c/json.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "cove/json.h"
#include "cove/text.h"
#include "fcgi/http.h"

/* ------------------------------------------------------------------ the head */

static const struct {
    const char *type;
    bool stream;
    enum connect_codec codec;
} content_types[] = {
    { "application/json", false, CONNECT_JSON },
    { "application/proto", false, CONNECT_PROTO },
    { "application/connect+json", true, CONNECT_JSON },
    { "application/connect+proto", true, CONNECT_PROTO },
};

const char *connect_content_type(const struct connect_call *call)
{
    for (size_t i = 0; i < ARRAY_SIZE(content_types); i++)
        if (content_types[i].stream == call->stream && content_types[i].codec == call->codec)
            return content_types[i].type;
    return content_types[0].type;
}

static int find_type(const char *given, struct connect_call *ret, struct cove_err *e)
{
    size_t len = strcspn(given, "; \t"); /* without "; charset=utf-8" */

    for (size_t i = 0; i < ARRAY_SIZE(content_types); i++) {
        if (strlen(content_types[i].type) != len ||
            strncasecmp(content_types[i].type, given, len) != 0)
            continue;
        ret->stream = content_types[i].stream;
        ret->codec = content_types[i].codec;
        return 0;
    }
    return cove_fail(e, COVE_UNSUPPORTED, "Content-Type '%.60s' is none of this protocol", given);
}

static int read_timeout(const char *text, uint64_t *ret, struct cove_err *e)
{
    if (!*text)
        return 0;
    if (strlen(text) > 10 || strspn(text, "0123456789") != strlen(text))
        return cove_fail(e, COVE_INVALID,
                         "Connect-Timeout-Ms: must be a number of up to 10 digits");
    return text_parse_u64(text, ret, e);
}

static int read_encoding(const char *text, bool *ret, struct cove_err *e)
{
    *ret = strcasecmp(text, "gzip") == 0;
    if (*ret || !*text || strcasecmp(text, "identity") == 0)
        return 0;
    return cove_fail(e, COVE_INVALID, "compression '%.40s' is not supported; gzip is", text);
}

int connect_head(const struct request *req, struct connect_call *ret, struct cove_err *e)
{
    const char *version = request_param(req, "HTTP_CONNECT_PROTOCOL_VERSION");
    struct connect_call call = { 0 };

    if (find_type(request_param(req, "CONTENT_TYPE"), &call, e) < 0)
        return -1;
    if (*version && strcmp(version, "1") != 0)
        return cove_fail(e, COVE_INVALID, "Connect-Protocol-Version: must be 1");
    if (read_timeout(request_param(req, "HTTP_CONNECT_TIMEOUT_MS"), &call.timeout_ms, e) < 0 ||
        read_encoding(request_param(req, call.stream ? "HTTP_CONNECT_CONTENT_ENCODING"
                                                     : "HTTP_CONTENT_ENCODING"),
                      &call.gzip, e) < 0)
        return -1;
    *ret = call;
    return 0;
}

/* ------------------------------------------------------------------ messages */

static void *alloc_in_arena(void *arena, size_t size)
{
    return arena_alloc(arena, size);
}

static void free_nothing(void *arena, void *pointer)
{
    (void)arena;
    (void)pointer;
}

static int decode_json(struct arena *a, const ProtobufCMessageDescriptor *type, const char *bytes,
                       size_t len, ProtobufCMessage **ret, struct cove_err *e)
{
    struct json_object *root = NULL;
    int rc;

    if (json_parse(bytes, len, &root, e) < 0)
        return -1;
    rc = connect_json_decode(a, type, root, ret, e);
    if (rc == 0 && a->starved)
        rc = cove_fail(e, COVE_BUSY, "no memory for this message, try again in a second");
    json_object_put(root);
    return rc;
}

int connect_decode(struct arena *a, enum connect_codec codec,
                   const ProtobufCMessageDescriptor *type, const char *bytes, size_t len,
                   ProtobufCMessage **ret, struct cove_err *e)
{
    ProtobufCAllocator allocator = {
        .alloc = alloc_in_arena,
        .free = free_nothing,
        .allocator_data = a,
    };
    ProtobufCMessage *m;

    if (codec == CONNECT_JSON)
        return decode_json(a, type, bytes, len, ret, e);
    m = protobuf_c_message_unpack(type, &allocator, len, (const uint8_t *)bytes);
    if (!m)
        return cove_fail(e, COVE_INVALID, "body: not a protobuf message of type %s", type->name);
    *ret = m;
    return 0;
}

int connect_encode(enum connect_codec codec, const ProtobufCMessage *m, struct buf *out)
{
    size_t size;
    char *at;

    if (codec == CONNECT_JSON)
        return connect_json_encode(m, out);
    size = protobuf_c_message_get_packed_size(m);
    at = buf_reserve(out, size + 1);
    if (!at)
        return -1;
    out->len += protobuf_c_message_pack(m, (uint8_t *)at);
    out->data[out->len] = '\0';
    return 0;
}

/* Inflates all bytes. Anything behind the first gzip member, a second member too, is refused. */
static int inflate_all(z_stream *z, size_t max, struct buf *out, struct cove_err *e)
{
    int rc = Z_OK;

    while (rc == Z_OK) {
        size_t room = max - out->len < 16 * 1024 ? max - out->len : 16 * 1024;
        char *at = buf_reserve(out, room + 1);

        if (!at)
            return cove_fail(e, COVE_TOO_LARGE, "body: larger than %zu bytes unpacked", max);
        z->next_out = (unsigned char *)at;
        z->avail_out = (unsigned)room;
        rc = inflate(z, Z_NO_FLUSH);
        out->len += room - z->avail_out;
        out->data[out->len] = '\0';
        if (rc == Z_OK && out->len == max)
            return cove_fail(e, COVE_TOO_LARGE, "body: larger than %zu bytes unpacked", max);
    }
    if (rc != Z_STREAM_END || z->avail_in > 0)
        return cove_fail(e, COVE_INVALID, "body: not valid gzip");
    return 0;
}

int connect_gunzip(const char *bytes, size_t len, size_t max, struct buf *out, struct cove_err *e)
{
    z_stream z = { .next_in = (unsigned char *)bytes, .avail_in = (unsigned)len };
    int rc;

    if (inflateInit2(&z, 15 + 16) != Z_OK) /* 16: a gzip header is expected */
        return cove_fail(e, COVE_BUSY, "no memory to unpack the body");
    rc = inflate_all(&z, max, out, e);
    inflateEnd(&z);
    return rc;
}

/* ------------------------------------------------------------------ envelopes */

size_t connect_envelope_len(const char prefix[CONNECT_PREFIX_BYTES])
{
    uint32_t length;

    memcpy(&length, prefix + 1, sizeof(length));
    return ntohl(length);
}

int connect_envelope_read(const char *bytes, size_t len, size_t max, struct connect_envelope *ret,
                          size_t *ret_used, struct cove_err *e)
{
    size_t length;

    if (len < CONNECT_PREFIX_BYTES)
        return 0;
    if ((unsigned char)bytes[0] & ~(CONNECT_COMPRESSED | CONNECT_END))
        return cove_fail(e, COVE_INVALID, "envelope: flags %#x are not known",
                         (unsigned char)bytes[0]);
    length = connect_envelope_len(bytes);
    if (length > max)
        return cove_fail(e, COVE_TOO_LARGE, "envelope: %zu bytes are more than %zu", length, max);
    if (len - CONNECT_PREFIX_BYTES < length)
        return 0;
    *ret = (struct connect_envelope){
        .flags = (unsigned char)bytes[0],
        .payload = bytes + CONNECT_PREFIX_BYTES,
        .len = length,
    };
    *ret_used = CONNECT_PREFIX_BYTES + length;
    return 1;
}

/* ------------------------------------------------------------------ bad news */

const char *connect_code(enum cove_code code)
{
    static const char *const names[COVE_CODE_COUNT] = {
        [COVE_INVALID] = "invalid_argument",
        [COVE_UNAUTHORIZED] = "unauthenticated",
        [COVE_FORBIDDEN] = "permission_denied",
        [COVE_NOT_FOUND] = "not_found",
        [COVE_CONFLICT] = "already_exists",
        [COVE_TOO_LARGE] = "resource_exhausted",
        [COVE_TIMEOUT] = "deadline_exceeded",
        [COVE_LIMIT] = "resource_exhausted",
        [COVE_BUSY] =
            "resource_exhausted", /* "unavailable" means to clients that the sandbox is no more */
        [COVE_GONE] = "unavailable",
        [COVE_METHOD] = "unimplemented",
        [COVE_UNSUPPORTED] = "unimplemented",
        [COVE_INTERNAL] = "internal",
        [COVE_QUOTA] = "resource_exhausted",
        [COVE_NOT_READY] = "failed_precondition",
    };

    return code < COVE_CODE_COUNT && names[code] ? names[code] : "unknown";
}

int connect_http_status(const char *code)
{
    static const struct {
        const char *code;
        int status;
    } rows[] = {
        { "canceled", 499 },           { "invalid_argument", 400 },    { "deadline_exceeded", 504 },
        { "not_found", 404 },          { "already_exists", 409 },      { "permission_denied", 403 },
        { "resource_exhausted", 429 }, { "failed_precondition", 400 }, { "aborted", 409 },
        { "out_of_range", 400 },       { "unimplemented", 501 },       { "unavailable", 503 },
        { "unauthenticated", 401 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(rows[i].code, code) == 0)
            return rows[i].status;
    return 500; /* unknown, internal, data_loss */
}

struct connect_error {
    const char *code, *message;
};

static const struct json_field error_fields[] = {
    JSON_STR(struct connect_error, code, "code", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct connect_error, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

struct connect_end { /* the last envelope of a stream */
    struct connect_error *error;
};

static const struct json_field end_fields[] = {
    JSON_OBJECT(struct connect_end, error, "error", JSON_OPTIONAL, error_fields),
    JSON_END,
};

int connect_error_add(const char *code, const struct cove_err *e, struct buf *out)
{
    struct json_writer w;

    json_writer_init(&w, out);
    json_put_object(&w, NULL, error_fields, &(struct connect_error){ code, e->msg });
    return out->overflow ? -1 : 0;
}

int connect_end_add(const struct cove_err *e, const char *code, struct buf *out)
{
    struct connect_error error = { code, e ? e->msg : NULL };
    struct json_writer w;

    json_writer_init(&w, out);
    json_put_object(&w, NULL, end_fields, &(struct connect_end){ e ? &error : NULL });
    return out->overflow ? -1 : 0;
}
