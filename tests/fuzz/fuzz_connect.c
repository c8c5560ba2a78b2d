/*
 * What a client of the e2b dialect can send: fcgi/connect.c and fcgi/connect_json.c. The first byte
 * picks the message and the codec, the rest is a row of envelopes, or one message when there is no
 * envelope. Whatever was understood must come back the same by way of the other codec.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fcgi/connect.h"
#include "fcgi/proto/filesystem.pb-c.h"
#include "fcgi/proto/process.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
    &process__start_request__descriptor,       &process__send_input_request__descriptor,
    &process__send_signal_request__descriptor, &process__stream_input_request__descriptor,
    &process__update_request__descriptor,      &filesystem__watch_request__descriptor,
    &filesystem__list_dir_request__descriptor, &filesystem__move_request__descriptor,
};

enum { MESSAGE_MAX = 64 * 1024 };

static int decode(struct arena *a, enum connect_codec codec, const ProtobufCMessageDescriptor *type,
                  const char *bytes, size_t len, ProtobufCMessage **ret)
{
    struct cove_err e;

    return connect_decode(a, codec, type, bytes, len, ret, &e);
}

/* JSON -> message -> binary -> message -> JSON: the same text both times. */
static void check_json(struct arena *a, const ProtobufCMessageDescriptor *type,
                       const ProtobufCMessage *m)
{
    struct buf first, binary, second;
    ProtobufCMessage *again;

    buf_init(&first, 8 * MESSAGE_MAX);
    buf_init(&binary, 8 * MESSAGE_MAX);
    buf_init(&second, 8 * MESSAGE_MAX);
    if (connect_encode(CONNECT_JSON, m, &first) < 0 ||
        connect_encode(CONNECT_PROTO, m, &binary) < 0 ||
        decode(a, CONNECT_PROTO, type, binary.data ? binary.data : "", binary.len, &again) < 0 ||
        connect_encode(CONNECT_JSON, again, &second) < 0 || strcmp(first.data, second.data) != 0)
        abort();
    buf_done(&first);
    buf_done(&binary);
    buf_done(&second);
}

static void one_message(const ProtobufCMessageDescriptor *type, enum connect_codec codec,
                        const char *bytes, size_t len)
{
    struct arena a = { 0 };
    ProtobufCMessage *m;
    struct buf out;

    buf_init(&out, 8 * MESSAGE_MAX);
    if (decode(&a, codec, type, bytes, len, &m) == 0) {
        connect_encode(CONNECT_JSON, m, &out);
        if (codec == CONNECT_JSON)
            check_json(&a, type, m);
    }
    buf_done(&out);
    arena_done(&a);
}

static void unpack(const char *bytes, size_t len)
{
    struct cove_err e;
    struct buf out;

    buf_init(&out, MESSAGE_MAX + 1);
    connect_gunzip(bytes, len, MESSAGE_MAX, &out, &e);
    if (out.len > MESSAGE_MAX)
        abort();
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ProtobufCMessageDescriptor *type;
    enum connect_codec codec;
    struct connect_envelope env;
    const char *at = (const char *)data + 1;
    struct cove_err e;
    size_t used;

    if (size == 0)
        return 0;
    type = types[data[0] % (sizeof(types) / sizeof(types[0]))];
    codec = data[0] & 0x80 ? CONNECT_PROTO : CONNECT_JSON;
    size--;
    if (data[0] & 0x40)
        one_message(type, codec, at, size);
    while (size > 0 && connect_envelope_read(at, size, MESSAGE_MAX, &env, &used, &e) > 0) {
        if (env.flags & CONNECT_COMPRESSED)
            unpack(env.payload, env.len);
        else
            one_message(type, codec, env.payload, env.len);
        at += used;
        size -= used;
    }
    return 0;
}
