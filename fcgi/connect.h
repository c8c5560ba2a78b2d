/*
 * The Connect protocol: remote calls over plain HTTP, as JSON or as binary protobuf. A unary call is
 * one message in each body. A stream is a row of envelopes (a byte of flags, four bytes of length,
 * the message) whose last one says how the stream ended.
 *
 * Messages are protobuf-c structs (fcgi/proto/). Their descriptors tell both codecs which fields
 * there are, so a handler does not know which of the two its client speaks. All that is decoded
 * lives in the caller's arena.
 */
#ifndef COVE_FCGI_CONNECT_H
#define COVE_FCGI_CONNECT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/err.h"
#include "cove/mem.h"

struct json_object;
struct request;

enum connect_codec { CONNECT_JSON, CONNECT_PROTO };

struct connect_call { /* what the head of a request says about its body */
    enum connect_codec codec;
    bool stream;         /* the body is envelopes */
    bool gzip;           /* the body, or envelopes flagged so, are compressed */
    uint64_t timeout_ms; /* 0 = none given */
};

/* COVE_UNSUPPORTED: the content type is not one of the protocol's (HTTP's status 415). */
int connect_head(const struct request *req, struct connect_call *ret, struct cove_err *e);
const char *connect_content_type(const struct connect_call *call);

/* ------------------------------------------------------------------ messages */

/* COVE_INVALID: the error's text names the field that is wrong. An empty body is a valid message in protobuf, and an
 * error in JSON. */
int connect_decode(struct arena *a, enum connect_codec codec,
                   const ProtobufCMessageDescriptor *type, const char *bytes, size_t len,
                   ProtobufCMessage **ret, struct cove_err *e);
int connect_encode(enum connect_codec codec, const ProtobufCMessage *m, struct buf *out);

/* connect_json.c: the JSON form of protobuf. */
int connect_json_decode(struct arena *a, const ProtobufCMessageDescriptor *type,
                        struct json_object *from, ProtobufCMessage **ret, struct cove_err *e);
int connect_json_encode(const ProtobufCMessage *m, struct buf *out);

/* Decompresses to at most `max` bytes. COVE_TOO_LARGE: there are more; COVE_INVALID: the bytes are not gzip. */
int connect_gunzip(const char *bytes, size_t len, size_t max, struct buf *out, struct cove_err *e);

/* ------------------------------------------------------------------ envelopes */

enum { CONNECT_COMPRESSED = 1, CONNECT_END = 2, CONNECT_PREFIX_BYTES = 5 };

struct connect_envelope {
    unsigned flags;
    const char *payload;
    size_t len;
};

/*
 * Reads the envelope at the start of `bytes`. 1: it is whole, and takes *ret_used bytes; 0: more bytes are needed;
 * -1: COVE_INVALID for flags that do not exist, COVE_TOO_LARGE for a length above max.
 */
int connect_envelope_read(const char *bytes, size_t len, size_t max, struct connect_envelope *ret,
                          size_t *ret_used, struct cove_err *e);
/* Reads the length of an envelope from its prefix. */
size_t connect_envelope_len(const char prefix[CONNECT_PREFIX_BYTES]);
/* Writes the content of a stream's last envelope: how the stream ended. e NULL: it ended well. Envelopes themselves
 * are written by framing_connect (stream.h). */
int connect_end_add(const struct cove_err *e, const char *code, struct buf *out);

/* ------------------------------------------------------------------ bad news */

/* The protocol's name for one of our error codes, such as "not_found". */
const char *connect_code(enum cove_code code);
int connect_http_status(const char *code);
/* {"code":"not_found","message":"..."} */
int connect_error_add(const char *code, const struct cove_err *e, struct buf *out);

#endif
