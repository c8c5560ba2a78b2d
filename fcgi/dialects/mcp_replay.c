/*
 * Streams that a client of a session may pick up again when its connection broke: a GET with the id of
 * the last event that arrived (Last-Event-ID). The frames of such a stream are kept in shared memory
 * (cove/replay.h), so that any worker can send on. Event ids are STREAM.OFFSET, where OFFSET is the place
 * of the event in its stream. The command goes on without its client for FORSAKEN_MS.
 *
 * The session's own stream (GET without Last-Event-ID) keeps nothing: its events have the id `watch`, and
 * when it is picked up again, it tells of every subscribed file once, because any may have changed.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/meters.h"
#include "cove/text.h"
#include "fcgi/dialects/mcp.h"

enum {
    FORSAKEN_MS = 30 * 1000, /* a command whose client does not come back ends after this long */
    LOOK_MS = 50,            /* how often a stream that goes on elsewhere is looked at */
    PIECE_BYTES = 16 * 1024,
};

static struct replays *replays_of(const struct mcp_call *c)
{
    struct core *core = c->req->core;

    return core && core->meters ? meters_replays(core->meters) : NULL;
}

static const char *ring_name(struct mcp_call *c, const char *stream)
{
    return arena_printf(&c->req->arena, "%s/%s", c->session, stream);
}

/* ------------------------------------------------------------------ keeping a stream's frames */

void mcp_replay_begin(struct mcp_call *c)
{
    struct replays *all = replays_of(c);
    char stream[COVE_ID_LEN + 1];

    if (!all || !c->session || !c->id.bytes)
        return;
    text_new_id(stream);
    if (!replay_begin(all, c->req->tenant, ring_name(c, stream), &c->replay))
        return; /* no room: this stream has no event ids, and its command ends with its client */
    c->stream_id = arena_strdup(&c->req->arena, stream);
    c->stream.keep = true;
}

struct buf *mcp_replay_open(struct mcp_call *c, const char *event)
{
    char id[COVE_ID_LEN + 24]; /* not in the arena: a stream has any number of events */

    snprintf(id, sizeof(id), "%s.%llu", c->stream_id,
             (unsigned long long)replay_written(&c->replay));
    buf_clear(&c->nowhere);
    c->stream.framing->open(&c->nowhere, &(struct frame){ .id = id, .name = event });
    return &c->nowhere;
}

/* An answer that does not fit into the ring was sent, but cannot be sent again. */
static void keep_apology(struct mcp_call *c)
{
    static const struct mcp_fault too_large = {
        .code = MCP_SERVER,
        .message = "the answer was too large to be kept while the connection was "
                   "broken; ask for less output (max_output_bytes)",
    };
    AUTO_BUF struct buf text = BUF(4096);
    struct json_writer w;

    buf_addf(&text, "id: %s.%llu\nevent: message\ndata: ", c->stream_id,
             (unsigned long long)replay_written(&c->replay));
    json_writer_init(&w, &text);
    mcp_put_fault(&w, &c->id, &too_large);
    buf_add_str(&text, "\n\n");
    replay_write(&c->replay, text.data, text.len);
}

void mcp_replay_close(struct mcp_call *c)
{
    c->stream.framing->close(&c->nowhere, 0);
    if (c->nowhere.overflow) {
        keep_apology(c);
        stream_cut(&c->stream);
        return;
    }
    if (!replay_write(&c->replay, c->nowhere.data, c->nowhere.len))
        keep_apology(c);
    stream_put(&c->stream, c->nowhere.data, c->nowhere.len);
}

/* Revision 2025-11-25: an event without data tells the client an id before there is anything to say. */
void mcp_put_first_id(struct mcp_call *c)
{
    if (!c->version || strcmp(c->version, MCP_LATEST) != 0)
        return;
    if (c->replay.all) {
        mcp_replay_open(c, NULL);
        mcp_replay_close(c);
    } else if (c->event_id) {
        stream_open_frame(&c->stream, &(struct frame){ .id = c->event_id });
        stream_close_frame(&c->stream);
    }
    stream_send(&c->stream);
}

/* The client has left: has it been away for too long, or ended its session? */
bool mcp_is_forsaken(struct mcp_call *c)
{
    uint64_t now_ms = clock_boot_ms(), seen_ms = replay_seen_ms(&c->replay);
    const char *version;

    if (c->lost_ms == 0)
        c->lost_ms = now_ms;
    if (!mcp_session_check(c->req, c->session, &version))
        return true;
    return now_ms > (seen_ms > c->lost_ms ? seen_ms : c->lost_ms) + FORSAKEN_MS;
}

/* ------------------------------------------------------------------ sending on */

struct resumed {
    struct mcp_call *call;
    struct replay_ref replay;
    uint64_t at;
    bool skipping; /* until the end of a frame */
    bool newline;  /* the last byte that was skipped is one */
};

/* Finds the stream of an event id STREAM.OFFSET. It must be one of this session, and still be kept. */
static int find_stream(struct mcp_call *c, const char *last, struct resumed *ret,
                       struct cove_err *e)
{
    const char *dot = strchr(last, '.');
    struct replays *all = replays_of(c);
    char *end = NULL;

    *ret = (struct resumed){ .call = c, .skipping = true };
    if (dot && dot > last && dot - last <= COVE_ID_LEN)
        ret->at = strtoull(dot + 1, &end, 10);
    if (!end || *end || end == dot + 1 || !all ||
        !replay_find(all, c->req->tenant,
                     ring_name(c, arena_strndup(&c->req->arena, last, (size_t)(dot - last))),
                     &ret->replay))
        return cove_fail(e, COVE_INVALID,
                         "Last-Event-ID: no such stream of this session, or it ended long ago");
    return 0;
}

/* Counts how many of these bytes belong to the frame that is skipped. */
static size_t skip(struct resumed *r, const char *bytes, size_t len)
{
    for (size_t i = 0; r->skipping && i < len; i++) {
        bool newline = bytes[i] == '\n';

        if (newline && r->newline) {
            r->skipping = false;
            return i + 1;
        }
        r->newline = newline;
    }
    return r->skipping ? len : 0;
}

enum step { GO_ON, WAIT, FINISHED, VANISHED };

static enum step send_piece(struct resumed *r)
{
    struct stream *stream = &r->call->stream;
    char bytes[PIECE_BYTES];
    bool skipped, ended;
    size_t from;
    long n;

    if (stream_backlog(stream) == STREAM_FULL)
        return WAIT;
    n = replay_read(&r->replay, &r->at, bytes, sizeof(bytes), &skipped, &ended);
    if (n < 0)
        return VANISHED;
    if (skipped) { /* the ring was overwritten: the rest begins in the middle of a frame */
        r->skipping = true;
        r->newline = false;
    }
    from = skip(r, bytes, (size_t)n);
    stream_put(stream, bytes + from, (size_t)n - from);
    if (stream_send(stream) != 0)
        return VANISHED;
    return n > 0 ? GO_ON : ended ? FINISHED : WAIT;
}

/* 1: the client has left. */
static int wait_for_more(struct resumed *r)
{
    struct stream *stream = &r->call->stream;
    short behind = stream_backlog(stream) == STREAM_CLEAR ? 0 : POLLOUT;
    struct pollfd fd = { .fd = stream->req->client_fd, .events = (short)(POLLRDHUP | behind) };

    run_poll(&fd, 1, LOOK_MS);
    if (fd.revents & (POLLRDHUP | POLLHUP | POLLERR))
        return stream_lost(stream), 1;
    if ((fd.revents & POLLOUT) && stream_send(stream) != 0)
        return 1;
    return stream_tick(stream) != 0;
}

int mcp_resume(struct mcp_call *c, const char *last, struct cove_err *e)
{
    struct resumed r;
    enum step step = GO_ON;

    if (find_stream(c, last, &r, e) < 0)
        return -1;
    stream_init(&c->stream, c->req, c->rep, &framing_sse);
    stream_begin(&c->stream);
    while (step == GO_ON || step == WAIT) {
        step = send_piece(&r);
        if (step == WAIT && (mcp_is_leaving(c->req) || wait_for_more(&r)))
            break;
    }
    if (step == VANISHED)
        stream_cut(&c->stream); /* the worker that wrote it has died, or it is too old by now */
    else
        stream_end(&c->stream);
    return 0;
}
