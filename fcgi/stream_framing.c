/* What stands around a message of a stream. */

#include "cove/buf.h"
#include "fcgi/stream.h"

enum { CONNECT_PREFIX = 5 }; /* flags, and the length as four bytes, the highest first */

/* The id comes first, so that a client that looks for "event: x\ndata: {...}\n\n" finds these lines together, as
 * documented. */
static void sse_open(struct buf *out, const struct frame *frame)
{
    if (frame->id)
        buf_addf(out, "id: %s\n", frame->id);
    if (frame->name)
        buf_addf(out, "event: %s\n", frame->name);
    buf_add_str(out, "data: ");
}

static void sse_close(struct buf *out, size_t start)
{
    (void)start;
    buf_add_str(out, "\n\n");
}

const struct framing framing_sse = {
    .content_type = "text/event-stream",
    .greeting = ": stream begins\n\n",
    .heartbeat = ": still here\n\n",
    .open = sse_open,
    .close = sse_close,
};

static void connect_open(struct buf *out, const struct frame *frame)
{
    const char prefix[CONNECT_PREFIX] = { (char)frame->flags };

    buf_add(out, prefix, sizeof(prefix));
}

static void connect_close(struct buf *out, size_t start)
{
    size_t len = out->len - start - CONNECT_PREFIX;

    if (out->overflow)
        return; /* the prefix itself may be missing; the stream will be cut */
    for (size_t i = 1; i < CONNECT_PREFIX; i++)
        out->data[start + i] = (char)(len >> 8 * (CONNECT_PREFIX - 1 - i));
}

const struct framing framing_connect = {
    .open = connect_open,
    .close = connect_close,
};

static void plain_open(struct buf *out, const struct frame *frame)
{
    (void)out;
    (void)frame;
}

static void bytes_close(struct buf *out, size_t start)
{
    (void)out;
    (void)start;
}

const struct framing framing_bytes = {
    .open = plain_open,
    .close = bytes_close,
};
