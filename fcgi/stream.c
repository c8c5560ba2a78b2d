/* Replies that go on: see stream.h. */
#include "fcgi/stream.h"

#include <assert.h>
#include <sys/socket.h>

#include "cove/json.h"
#include "cove/text.h"
#include "fcgi/http.h"
#include "fcgi/reply.h"

enum {
    KEPT_BYTES = 128 * 1024, /* a buffer larger than this is given back when it is empty */
    CUT_SNDBUF =
        256 * 1024, /* room for the rest of a record behind what the client leaves unread */
    STANDS_MS = 1000,
    CUT_BYTES = 8, /* as long as the head of a FastCGI record */
};

/* ------------------------------------------------------------------ beginning */

void stream_init(struct stream *s, const struct request *req, struct reply *rep,
                 const struct framing *framing)
{
    *s = (struct stream){
        .req = req,
        .rep = rep,
        .framing = framing,
        .idle_ms = STREAM_IDLE_MS,
        .stall_ms = STREAM_STALL_MS,
        .sent_ms = clock_boot_ms(),
    };
}

/* How long stream_drain() waits for a client (for nginx, on its behalf) that takes nothing. */
static void set_patience(const struct stream *s)
{
    const struct timeval patience = { .tv_sec = (time_t)(s->stall_ms / 1000),
                                      .tv_usec = (suseconds_t)(s->stall_ms % 1000 * 1000) };

    if (s->req->client_fd >= 0)
        setsockopt(s->req->client_fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

void stream_begin(struct stream *s)
{
    set_patience(s);
    if (s->framing->content_type) {
        reply_header(s->rep, "Content-Type", s->framing->content_type);
        reply_header(s->rep, "Cache-Control", "no-cache");
    }
    s->rep->body.max = STREAM_BUFFER_MAX;
    reply_begin(s->rep, s->req);
    s->sent_ms = clock_boot_ms();
    if (s->framing->greeting) {
        buf_add_str(&s->rep->body, s->framing->greeting);
        stream_send(s);
    }
}

/* ------------------------------------------------------------------ the end of a client */

/* The return value of the functions below: should the source go on (0) or end? */
static int verdict(const struct stream *s)
{
    return s->gone && !s->keep ? -1 : 0;
}

/*
 * nginx takes a FastCGI connection that is closed early for the reply's orderly end. Bytes that are no
 * record make it drop the client's connection instead. They must not fall into a record that has
 * begun, so the rest of that record goes first; both fit into the socket, whatever the client leaves
 * unread, because its buffer is widened for them.
 */
static void break_transfer(const struct stream *s)
{
    static const unsigned char no_record[CUT_BYTES] = { 0xff, 0xff, 0xff, 0xff,
                                                        0xff, 0xff, 0xff, 0xff };
    const struct buf *body = &s->rep->body;
    const int room = CUT_SNDBUF;
    int fd = s->req->client_fd;

    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    if (wire_finish_record(&s->rep->wire, body->data, body->len) == 0)
        send(fd, no_record, sizeof(no_record), MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(fd, SHUT_RDWR); /* libfcgi must not add an orderly end */
}

void stream_cut(struct stream *s)
{
    if (s->gone)
        return;
    s->gone = true;
    s->rep->ended = true;
    if (s->req->client_fd >= 0)
        break_transfer(s);
    buf_clear(&s->rep->body);
}

int stream_lost(struct stream *s)
{
    stream_cut(s);
    return verdict(s);
}

/* ------------------------------------------------------------------ frames */

struct buf *stream_open_frame(struct stream *s, const struct frame *frame)
{
    assert(s->rep->streamed && (s->gone || !s->rep->ended));
    if (s->gone)
        return NULL;
    if (s->rep->body.len == 0)
        s->sent_ms = clock_boot_ms(); /* the client has nothing to take before this frame */
    s->frame_start = s->rep->body.len;
    s->framing->open(&s->rep->body, frame);
    return &s->rep->body;
}

void stream_close_frame(struct stream *s)
{
    if (!s->gone)
        s->framing->close(&s->rep->body, s->frame_start);
}

void stream_event(struct stream *s, const struct frame *frame, const struct json_field *fields,
                  const void *from)
{
    struct buf *out = stream_open_frame(s, frame);
    struct json_writer w;

    if (!out)
        return;
    json_writer_init(&w, out);
    json_put_object(&w, NULL, fields, from);
    stream_close_frame(s);
}

void stream_put(struct stream *s, const char *frames, size_t len)
{
    if (s->gone)
        return;
    if (s->rep->body.len == 0)
        s->sent_ms = clock_boot_ms(); /* as in stream_open_frame() */
    buf_add(&s->rep->body, frames, len);
}

/* ------------------------------------------------------------------ sending */

/* Gives back the memory that a burst took, because a stream may live long. */
static void drop(struct buf *body, size_t n)
{
    buf_drop(body, n);
    if (body->len == 0 && body->cap > KEPT_BYTES)
        buf_done(body);
}

/* Cuts the stream of a caller whose key or session has ended since. */
static void check_caller(struct stream *s)
{
    uint64_t now = clock_boot_ms();

    if (s->gone || !s->stands || now < s->stood_ms + STANDS_MS)
        return;
    s->stood_ms = now;
    if (!s->stands(s->req))
        stream_cut(s);
}

static int send_body(struct stream *s, bool wait)
{
    struct buf *body = &s->rep->body;
    size_t taken = 0;

    check_caller(s);
    if (s->gone || (body->len == 0 && !body->overflow))
        return verdict(s);
    if (body->overflow) {
        stream_cut(s);
        return verdict(s);
    }
    if (s->req->client_fd < 0)
        return 0; /* a test reads the body */
    if (wire_send(&s->rep->wire, body->data, body->len, wait, &taken) < 0) {
        drop(body, taken);
        stream_cut(s);
        return verdict(s);
    }
    drop(body, taken);
    if (taken > 0)
        s->sent_ms = clock_boot_ms();
    return 0;
}

int stream_send(struct stream *s)
{
    return send_body(s, false);
}

int stream_drain(struct stream *s)
{
    return send_body(s, true);
}

enum stream_backlog stream_backlog(const struct stream *s)
{
    size_t len = s->gone || s->req->client_fd < 0 ? 0 : s->rep->body.len;

    return len == 0 ? STREAM_CLEAR : len < STREAM_BEHIND_BYTES ? STREAM_BEHIND : STREAM_FULL;
}

/* ------------------------------------------------------------------ time */

static bool has_heartbeat(const struct stream *s)
{
    return s->heartbeat || s->framing->heartbeat;
}

/* The time of the next heartbeat, or of giving up a client that takes nothing; UINT64_MAX = never. */
static uint64_t silence_ms(const struct stream *s)
{
    if (s->gone)
        return s->keep && s->heartbeat ? s->sent_ms + s->idle_ms : UINT64_MAX;
    if (stream_backlog(s) != STREAM_CLEAR)
        return s->sent_ms + s->stall_ms;
    return has_heartbeat(s) ? s->sent_ms + s->idle_ms : UINT64_MAX;
}

int stream_wait_ms(const struct stream *s)
{
    uint64_t due = silence_ms(s), now = clock_boot_ms();

    if (!s->gone && s->stands && s->stood_ms + STANDS_MS < due)
        due = s->stood_ms + STANDS_MS;

    if (due == UINT64_MAX)
        return -1;
    return due > now ? (int)(due - now) : 0;
}

static void send_heartbeat(struct stream *s)
{
    if (s->heartbeat)
        s->heartbeat(s, s->heartbeat_arg);
    else
        buf_add_str(&s->rep->body, s->framing->heartbeat);
    s->sent_ms = clock_boot_ms();
    stream_send(s);
}

int stream_tick(struct stream *s)
{
    uint64_t due;

    check_caller(s);
    due = silence_ms(s);
    if (due == UINT64_MAX || clock_boot_ms() < due)
        return verdict(s);
    if (stream_backlog(s) != STREAM_CLEAR)
        stream_cut(s);
    else
        send_heartbeat(s);
    return verdict(s);
}

/* ------------------------------------------------------------------ the end */

int stream_end(struct stream *s)
{
    stream_drain(s);
    s->rep->ended = true;
    return s->gone ? -1 : 0;
}

void stream_cut_unended(const struct request *req, struct reply *rep)
{
    struct stream s;

    if (!rep->streamed || rep->ended)
        return;
    stream_init(&s, req, rep, &framing_bytes);
    stream_cut(&s);
}
