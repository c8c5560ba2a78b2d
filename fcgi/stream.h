/*
 * A reply that goes on for as long as there is something to send: a command's output, a process's
 * log, a file. The head is sent at once, frames follow as they are made. Frames gather in the stream's
 * buffer (the reply's body) and are sent as fast as the client takes them:
 *
 *     stream_init(&s, req, rep, &framing_sse);
 *     stream_begin(&s);                                     the head leaves
 *     stream_event(&s, &(struct frame){ .id = "7", .name = "output" }, fields, &event);
 *     stream_send(&s);                                      what the client takes at once
 *     ...
 *     stream_end(&s);                                       all of it, and the proper end
 *
 * Code that feeds a stream for long (run.c, core_logs.c) waits in poll() for its own source and for the
 * client together, and asks the stream what to wait for: stream_backlog(), stream_wait_ms(). A client
 * that takes nothing for stall_ms is given up; after idle_ms without a frame a heartbeat is sent,
 * because proxies cut what looks dead.
 *
 * A stream that is not ended by stream_end() is cut: the client sees a broken transfer, never a
 * shortened reply that looks whole. After the head has left bad news is a frame of the dialect's, or a
 * cut.
 *
 * The framing says what stands around a message: the lines of Server-Sent Events, Connect's envelopes, or
 * nothing at all. A new one is a struct framing in stream_framing.c.
 */
#ifndef COVE_FCGI_STREAM_H
#define COVE_FCGI_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct json_field;
struct reply;
struct request;

enum {
    STREAM_IDLE_MS = 15000,
    STREAM_STALL_MS = 60000,
    STREAM_BEHIND_BYTES = 128 * 1024, /* what a client may leave unread before its source waits */
    STREAM_BUFFER_MAX = 4 * 1024 * 1024, /* frames of one piece of input; more than that is a cut */
};

struct frame {
    const char *id, *name; /* for Server-Sent Events; NULL = none */
    unsigned char flags;   /* Connect: 2 = the last message */
};

struct framing {
    const char *content_type; /* NULL: the handler sets the header */
    const char *greeting;     /* the first bytes, for nginx keeps a head until a body follows */
    const char *heartbeat;    /* NULL: this framing has none */
    void (*open)(struct buf *out, const struct frame *frame);
    void (*close)(struct buf *out, size_t start); /* `start`: where open() began to write */
};

extern const struct framing framing_sse, framing_connect, framing_bytes;

struct stream {
    const struct request *req;
    struct reply *rep;
    const struct framing *framing;
    uint64_t idle_ms, stall_ms;
    /* Instead of the framing's heartbeat: writes a frame, as the dialect has it. */
    void (*heartbeat)(struct stream *s, void *arg);
    void *heartbeat_arg;
    bool keep; /* the source goes on when the client has left, and what it tells is thrown away;
                * heartbeat() above is still called, so that it can end that */
    /* Asked once a second: may the caller still read this? If not, the stream is cut. NULL: it is not asked. */
    bool (*stands)(const struct request *req);
    uint64_t stood_ms; /* when it was asked last */
    bool gone;         /* the client has left or was given up */
    uint64_t sent_ms;  /* when bytes last left, or the backlog began */
    size_t frame_start;
};

void stream_init(struct stream *s, const struct request *req, struct reply *rep,
                 const struct framing *framing);
/* Sends the head: status and headers of the reply. */
void stream_begin(struct stream *s);

/* Begins a message: the framing's first part is written, and the caller writes the message into the buffer. NULL: the
 * client is gone. */
struct buf *stream_open_frame(struct stream *s, const struct frame *frame);
void stream_close_frame(struct stream *s);
/* The same for a message that a table describes. */
void stream_event(struct stream *s, const struct frame *frame, const struct json_field *fields,
                  const void *from);

/* Adds frames that were made elsewhere. */
void stream_put(struct stream *s, const char *frames, size_t len);

/* Each of these returns non-zero when the client is gone, so that the source should end. */
int stream_send(struct stream *s);  /* sends what the client takes at once; the rest stays */
int stream_drain(struct stream *s); /* sends everything, however slowly the client reads */
/* sends a heartbeat, or gives the client up, if it is time for that */
int stream_tick(struct stream *s);
int stream_lost(struct stream *s); /* the client has hung up */

enum stream_backlog {
    STREAM_CLEAR,
    STREAM_BEHIND, /* stream_send() when the client takes more (POLLOUT) */
    STREAM_FULL,   /* the same, and the source must wait until then */
};
enum stream_backlog stream_backlog(const struct stream *s);
int stream_wait_ms(const struct stream *s); /* until stream_tick() is due; -1 = never */

/* Ends the stream properly: sends everything that is left. Non-zero: the client did not get all of it. */
int stream_end(struct stream *s);
/* Cuts the stream: the client sees a broken transfer. */
void stream_cut(struct stream *s);
/* Called after a handler: cuts a streamed reply that the handler neither ended nor cut. */
void stream_cut_unended(const struct request *req, struct reply *rep);

#endif
