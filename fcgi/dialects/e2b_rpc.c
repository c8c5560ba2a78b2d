/* Remote calls to envd: from a body to a message, to a handler, and back. */
#include <fcgiapp.h>
#include <stdlib.h>
#include <string.h>

#include "fcgi/dialects/e2b.h"

enum {
    MESSAGE_MAX_BYTES = 8 * 1024 * 1024,
    STALLED_MS = 5 * 60 * 1000, /* a client that takes nothing for this long is given up */
    IDLE_DEFAULT_S = 90,
    IDLE_MIN_S = 1,
    IDLE_MAX_S = 3600,
};

/* ------------------------------------------------------------------ what came */

static int unpack(struct rpc *r, const char *bytes, size_t len, const char **ret, size_t *ret_len,
                  struct cove_err *e)
{
    struct buf out;
    int rc;

    buf_init(&out, MESSAGE_MAX_BYTES + 1);
    rc = connect_gunzip(bytes, len, MESSAGE_MAX_BYTES, &out, e);
    *ret = arena_strndup(&r->req->arena, out.data ? out.data : "", 0);
    if (rc == 0) {
        char *copy = arena_alloc(&r->req->arena, out.len + 1);

        memcpy(copy, out.data, out.len);
        *ret = copy;
        *ret_len = out.len;
    }
    buf_done(&out);
    return rc;
}

/* Reads the one envelope that the request of a server stream consists of. */
static int open_envelope(struct rpc *r, const char **bytes, size_t *len, bool *gzip,
                         struct cove_err *e)
{
    struct connect_envelope env;
    size_t used;
    int n = connect_envelope_read(*bytes, *len, MESSAGE_MAX_BYTES, &env, &used, e);

    if (n < 0)
        return -1;
    if (n == 0 || (env.flags & CONNECT_END) || used != *len)
        return cove_fail(e, COVE_INVALID, "body: must be exactly one envelope");
    if ((env.flags & CONNECT_COMPRESSED) && !r->call.gzip)
        return cove_fail(e, COVE_INVALID, "envelope: compressed, but no compression was announced");
    *bytes = env.payload;
    *len = env.len;
    *gzip = env.flags & CONNECT_COMPRESSED;
    return 0;
}

/* Reads exactly `len` bytes of the body. 0: the body has ended. */
static int read_bytes(struct rpc *r, char *out, size_t len, struct cove_err *e)
{
    int n = FCGX_GetStr(out, (int)len, r->req->in);

    if (n == 0 && !FCGX_GetError(r->req->in))
        return 0;
    return (size_t)n == len ? 1 : cove_fail(e, COVE_INVALID, "body: ends inside an envelope");
}

static int unpack_envelope(struct rpc *r, const struct connect_envelope *env,
                           const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret,
                           struct cove_err *e)
{
    const char *bytes = env->payload;
    size_t len = env->len;

    if ((env->flags & CONNECT_COMPRESSED) && !r->call.gzip)
        return cove_fail(e, COVE_INVALID, "envelope: compressed, but no compression was announced");
    if ((env->flags & CONNECT_COMPRESSED) && unpack(r, bytes, len, &bytes, &len, e) < 0)
        return -1;
    return connect_decode(&r->req->arena, r->call.codec, type, bytes, len, ret, e) < 0 ? -1 : 1;
}

int rpc_next(struct rpc *r, const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret,
             struct cove_err *e)
{
    char prefix[CONNECT_PREFIX_BYTES], *bytes;
    struct connect_envelope env;
    size_t used, len;
    int n = read_bytes(r, prefix, sizeof(prefix), e);

    if (n <= 0)
        return n;
    /* Finds out how long the envelope is, or what is wrong with it; 0 means that only its prefix has come. */
    n = connect_envelope_read(prefix, sizeof(prefix), MESSAGE_MAX_BYTES, &env, &used, e);
    if (n < 0)
        return -1;
    len = connect_envelope_len(prefix);
    bytes = arena_alloc(&r->req->arena, len + 1);
    if (len > 0 && read_bytes(r, bytes, len, e) <= 0)
        return cove_fail(e, COVE_INVALID, "body: ends inside an envelope");
    env = (struct connect_envelope){ .flags = (unsigned char)prefix[0], bytes, len };
    return env.flags & CONNECT_END ? 0 : unpack_envelope(r, &env, type, ret, e);
}

static int decode(struct rpc *r, const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret,
                  struct cove_err *e)
{
    const char *bytes = r->req->body.data ? r->req->body.data : "";
    size_t len = r->req->body.len;
    bool gzip = r->call.gzip;

    if (r->call.stream && open_envelope(r, &bytes, &len, &gzip, e) < 0)
        return -1;
    if (gzip && unpack(r, bytes, len, &bytes, &len, e) < 0)
        return -1;
    return connect_decode(&r->req->arena, r->call.codec, type, bytes, len, ret, e);
}

/* ------------------------------------------------------------------ what goes back */

int rpc_answer(struct rpc *r, const ProtobufCMessage *m, struct cove_err *e)
{
    r->rep->content_type = connect_content_type(&r->call);
    if (connect_encode(r->call.codec, m, &r->rep->body) < 0)
        return cove_fail(e, COVE_LIMIT, "the answer is too large");
    if (r->rep->body.len == 0) /* an empty message of protobuf has a type all the same */
        reply_header(r->rep, "Content-Type", r->rep->content_type);
    return 0;
}

static uint64_t idle_ms(const struct rpc *r)
{
    const char *given = request_param(r->req, "HTTP_KEEPALIVE_PING_INTERVAL");
    long seconds = *given ? strtol(given, NULL, 10) : IDLE_DEFAULT_S;

    if (seconds < IDLE_MIN_S || seconds > IDLE_MAX_S)
        seconds = IDLE_DEFAULT_S;
    return (uint64_t)seconds * 1000;
}

void rpc_begin(struct rpc *r)
{
    if (r->begun)
        return;
    r->begun = true;
    reply_header(r->rep, "Content-Type", connect_content_type(&r->call));
    stream_init(&r->stream, r->req, r->rep, &framing_connect);
    r->stream.idle_ms = idle_ms(r);
    r->stream.stall_ms = STALLED_MS;
    r->stream.heartbeat = r->heartbeat;
    r->stream.heartbeat_arg = r;
    stream_begin(&r->stream);
}

void rpc_tell(struct rpc *r, const ProtobufCMessage *m)
{
    struct buf *out = stream_open_frame(&r->stream, &(struct frame){ 0 });

    if (!out)
        return;
    connect_encode(r->call.codec, m, out);
    stream_close_frame(&r->stream);
}

/* ------------------------------------------------------------------ the end */

static const char *code_of(const struct rpc_method *m, const struct cove_err *e)
{
    return e->code == COVE_CONFLICT && m->conflict ? m->conflict : connect_code(e->code);
}

static int end_unary(struct rpc *r, const struct rpc_method *m, int rc, const struct cove_err *e)
{
    const char *code;

    if (rc == 0)
        return 0;
    code = code_of(m, e);
    buf_clear(&r->rep->body);
    r->rep->content_type = NULL;
    r->rep->status = connect_http_status(code);
    e2b_tell_retry(r->rep, rpc_is_one_too_many(e));
    connect_error_add(code, e, &r->rep->body);
    return 0;
}

/*
 * A sandbox that ended under a stream cuts the stream: clients take a proper end without a result
 * for a fault of the server, and after a cut ask /health whether the sandbox is still there.
 */
static int end_stream(struct rpc *r, const struct rpc_method *m, int rc, const struct cove_err *e)
{
    struct buf *out;

    if (rc < 0 && e->code == COVE_GONE && r->begun) {
        stream_cut(&r->stream);
        return 0;
    }
    rpc_begin(r);
    out = stream_open_frame(&r->stream, &(struct frame){ .flags = CONNECT_END });
    if (out) {
        connect_end_add(rc < 0 ? e : NULL, rc < 0 ? code_of(m, e) : NULL, out);
        stream_close_frame(&r->stream);
    }
    stream_end(&r->stream);
    return 0;
}

static int run(struct rpc *r, const struct rpc_method *m, struct cove_err *e)
{
    ProtobufCMessage *in = NULL;

    if ((!m->asks && decode(r, m->in, &in, e) < 0) || envd_user(r->envd, NULL, e) < 0)
        return -1;
    return m->handle(r, in, e);
}

static int call(struct rpc *r, const struct rpc_method *m, struct cove_err *e)
{
    int rc;

    if (r->call.stream != m->stream) {
        r->rep->status = 415;
        return 0;
    }
    rc = run(r, m, e);
    if (rc < 0)
        r->req->note.cause = cove_code_name(e->code);
    return m->stream ? end_stream(r, m, rc, e) : end_unary(r, m, rc, e);
}

static const struct rpc_method *find(const struct rpc_method *methods, size_t count,
                                     const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(methods[i].name, name) == 0)
            return &methods[i];
    return NULL;
}

int rpc_serve(struct request *req, struct reply *rep, const struct rpc_method *methods,
              size_t count, struct cove_err *e)
{
    const struct rpc_method *m = find(methods, count, request_capture(req, "method"));

    if (!m)
        return cove_fail(e, COVE_NOT_FOUND, "no such method: %.60s", req->path);
    return rpc_serve_method(req, rep, m, e);
}

bool rpc_is_one_too_many(const struct cove_err *e)
{
    return e->code == COVE_BUSY || e->code == COVE_QUOTA;
}

bool rpc_refuse(struct request *req, struct reply *rep, const struct cove_err *e)
{
    struct rpc r = { .req = req, .rep = rep };
    struct rpc_method any = { 0 };
    struct cove_err ignored;
    size_t start = rep->body.len;

    if (connect_head(req, &r.call, &ignored) < 0)
        return false;
    if (!r.call.stream)
        return end_unary(&r, &any, -1, e) == 0;
    rep->status = 200;
    rep->content_type = connect_content_type(&r.call);
    framing_connect.open(&rep->body, &(struct frame){ .flags = CONNECT_END });
    connect_end_add(e, connect_code(e->code), &rep->body);
    framing_connect.close(&rep->body, start);
    return true;
}

int rpc_serve_method(struct request *req, struct reply *rep, const struct rpc_method *m,
                     struct cove_err *e)
{
    struct rpc r = { .req = req, .rep = rep };
    struct envd d;
    int rc;

    req->note.operation = m->name;
    if (connect_head(req, &r.call, e) < 0) {
        if (e->code != COVE_UNSUPPORTED)
            return end_unary(&r, m, -1, e);
        rep->status = 415;
        return 0;
    }
    if (envd_open(req, rep, ENVD_TOKEN, &d, e) < 0)
        return -1;
    r.envd = &d;
    rc = call(&r, m, e);
    envd_close(&d);
    return rc;
}
