/* A WebSocket: see websocket.h. */
#include "helpers/gate/websocket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"

enum {
    TURN_BYTES = 64 * 1024, /* read from one socket before others have their turn */
    SEND_LOW = 64 * 1024,   /* while less than this waits to be sent, there is room for more */
    SEND_HIGH = 256 * 1024, /* while more than this waits to be sent, nothing is read */
    FRAGMENTS_MAX = 1024,   /* of one message */
    CLOSE_MS = 5000,        /* a peer may take this long to answer our close */
    DRAIN_MS = 30000,       /* and this long to read what was sent before the close */
};

static void timer_fired(struct timer *t);

/* ------------------------------------------------------------------ the end */

/* The user's gone() is called in the next turn of the loop. */
static void mark_broken(struct websocket *ws)
{
    if (ws->broken)
        return;
    ws->broken = true;
    watch_want(&ws->watch, 0);
    timer_start(ws->loop, &ws->timer, 0, timer_fired);
}

static size_t reason_length(const char *reason)
{
    size_t len = 0, seq;

    while (reason[len] && (seq = text_utf8_seq(reason + len, strlen(reason + len))) &&
           len + seq <= WEBSOCKET_REASON_MAX)
        len += seq;
    return len;
}

static void begin_closing(struct websocket *ws, unsigned code, const char *reason, uint64_t wait_ms)
{
    size_t len = reason_length(reason);

    ws->closing = true;
    ws->wants_room = false;
    ws->close_code = (uint16_t)code;
    memcpy(ws->close_reason, reason, len);
    ws->close_reason[len] = '\0';
    timer_start(ws->loop, &ws->timer, wait_ms, timer_fired);
}

/* libwslay sends a close before the messages that wait, and never sends those: so ours is queued last. */
static void send_close(struct websocket *ws)
{
    const char *reason = ws->close_reason;

    if (wslay_event_queue_close(ws->wslay, ws->close_code, (const uint8_t *)reason,
                                strlen(reason)) != 0)
        mark_broken(ws);
    ws->close_code = 0;
}

void websocket_close(struct websocket *ws, unsigned code, const char *reason)
{
    if (!ws->closing && !ws->broken)
        begin_closing(ws, code, reason, DRAIN_MS);
}

void websocket_close_now(struct websocket *ws, unsigned code, const char *reason)
{
    if (ws->closing || ws->broken)
        return;
    begin_closing(ws, code, reason, CLOSE_MS);
    send_close(ws);
}

/* ------------------------------------------------------------------ libwslay's callbacks */

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags, void *arg)
{
    struct websocket *ws = arg;
    ssize_t n;

    (void)flags;
    if (len > ws->read_budget)
        len = ws->read_budget;
    n = len ? recv(ws->watch.fd, buf, len, MSG_DONTWAIT) : -1;
    if (len == 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    if (n <= 0) {
        wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
        ws->cut = true;
        return -1;
    }
    ws->read_budget -= (size_t)n;
    ws->bytes_in += (uint64_t)n;
    ws->heard_ms = clock_boot_ms();
    return n;
}

static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *bytes, size_t len, int flags,
                       void *arg)
{
    struct websocket *ws = arg;
    ssize_t n = send(ws->watch.fd, bytes, len,
                     MSG_NOSIGNAL | MSG_DONTWAIT | (flags & WSLAY_MSG_MORE ? MSG_MORE : 0));

    if (n > 0)
        ws->bytes_out += (uint64_t)n;
    else
        wslay_event_set_error(ctx, n < 0 && (errno == EAGAIN || errno == EINTR)
                                       ? WSLAY_ERR_WOULDBLOCK
                                       : WSLAY_ERR_CALLBACK_FAILURE);
    return n > 0 ? n : -1;
}

static void give_back(struct websocket *ws)
{
    budget_give(ws->budget, ws->receiving);
    ws->receiving = 0;
}

static void stop_reading(struct websocket *ws, unsigned code, const char *reason)
{
    wslay_event_shutdown_read(ws->wslay);
    ws->read_budget = 0;
    websocket_close_now(ws, code, reason);
}

/* The length is what the peer claims; libwslay has checked it against message_max. */
static void on_frame(wslay_event_context_ptr ctx,
                     const struct wslay_event_on_frame_recv_start_arg *frame, void *arg)
{
    struct websocket *ws = arg;

    (void)ctx;
    if (wslay_is_ctrl_frame(frame->opcode))
        return;
    ws->fragments++;
    if (ws->fragments > FRAGMENTS_MAX) {
        stop_reading(ws, WEBSOCKET_POLICY, "the message has too many fragments");
    } else if (frame->payload_length > ws->user->message_max ||
               !budget_take(ws->budget, (size_t)frame->payload_length)) {
        stop_reading(ws, WEBSOCKET_BUSY, "no memory for the message, try again later");
    } else {
        ws->receiving += (size_t)frame->payload_length;
    }
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m,
                       void *arg)
{
    struct websocket *ws = arg;

    (void)ctx;
    if (wslay_is_ctrl_frame(m->opcode))
        return;
    ws->fragments = 0;
    give_back(ws);
    if (!ws->closing)
        ws->user->message(ws, m->opcode == WSLAY_TEXT_FRAME, (const char *)m->msg, m->msg_length);
    if (ws->paused)
        ws->read_budget = 0;
}

/* ------------------------------------------------------------------ in the loop */

static bool is_over(const struct websocket *ws)
{
    return ws->broken || (!wslay_event_want_read(ws->wslay) && !wslay_event_want_write(ws->wslay));
}

static bool may_read(const struct websocket *ws)
{
    return (!ws->paused || ws->closing) && wslay_event_want_read(ws->wslay) &&
           wslay_event_get_queued_msg_length(ws->wslay) < SEND_HIGH;
}

static void want(struct websocket *ws)
{
    bool writes = wslay_event_want_write(ws->wslay) || ws->wants_room;

    if (watch_want(&ws->watch, (may_read(ws) ? EPOLLIN : 0) | (writes ? EPOLLOUT : 0)) < 0)
        mark_broken(ws);
}

void websocket_flush(struct websocket *ws)
{
    if (ws->broken)
        return;
    if (wslay_event_want_write(ws->wslay) && wslay_event_send(ws->wslay) != 0)
        mark_broken(ws);
    else if (ws->close_code && wslay_event_get_queued_msg_count(ws->wslay) == 0) {
        send_close(ws);
        websocket_flush(ws);
    } else if (is_over(ws))
        mark_broken(ws);
    else
        want(ws);
}

/* When the bytes are no proper frames, libwslay has put a close without a code into its queue. */
static void read_frames(struct websocket *ws)
{
    if (wslay_event_recv(ws->wslay) == 0)
        return;
    if (ws->cut) {
        mark_broken(ws);
        return;
    }
    wslay_event_shutdown_read(ws->wslay);
    ws->closing = true;
    timer_start(ws->loop, &ws->timer, CLOSE_MS, timer_fired);
}

static void socket_ready(struct watch *w, uint32_t events)
{
    struct websocket *ws = container_of(w, struct websocket, watch);
    bool reads = may_read(ws);

    ws->read_budget = reads ? TURN_BYTES : 0;
    if (reads && (events & (EPOLLIN | EPOLLHUP)))
        read_frames(ws);
    else if ((events & EPOLLERR) || (!reads && (events & EPOLLHUP)))
        mark_broken(ws); /* the peer is gone */
    if (!ws->broken && ws->wants_room && websocket_has_room(ws))
        ws->user->room(ws);
    websocket_flush(ws);
}

static void timer_fired(struct timer *t)
{
    struct websocket *ws = container_of(t, struct websocket, timer);
    struct wslay_event_msg ping = { .opcode = WSLAY_PING };

    if (!ws->closing && !may_read(ws))
        ws->heard_ms = clock_boot_ms(); /* nothing was read meanwhile, so silence proves nothing */
    if (ws->broken || ws->closing || clock_boot_ms() - ws->heard_ms > 2 * ws->ping_ms + 1000) {
        ws->user->gone(ws);
        return;
    }
    timer_start(ws->loop, t, ws->ping_ms, timer_fired);
    if (wslay_event_queue_msg(ws->wslay, &ping) != 0)
        mark_broken(ws);
    websocket_flush(ws);
}

/* ------------------------------------------------------------------ for its user */

int websocket_init(struct websocket *ws, const struct websocket_user *user, struct loop *loop,
                   int fd, struct budget *budget, uint64_t ping_ms)
{
    static const struct wslay_event_callbacks callbacks = {
        .recv_callback = on_recv,
        .send_callback = on_send,
        .on_frame_recv_start_callback = on_frame,
        .on_msg_recv_callback = on_message,
    };

    *ws = (struct websocket){ .user = user,
                              .loop = loop,
                              .budget = budget,
                              .ping_ms = ping_ms,
                              .heard_ms = clock_boot_ms() };
    if (wslay_event_context_server_init(&ws->wslay, &callbacks, ws) != 0 ||
        watch_start(loop, &ws->watch, fd, EPOLLIN, socket_ready) < 0) {
        close(fd);
        websocket_done(ws);
        return -1;
    }
    wslay_event_config_set_max_recv_msg_length(ws->wslay, user->message_max);
    timer_start(loop, &ws->timer, ping_ms, timer_fired);
    return 0;
}

void websocket_done(struct websocket *ws)
{
    timer_stop(&ws->timer);
    watch_close(&ws->watch);
    give_back(ws);
    if (ws->wslay)
        wslay_event_context_free(take_ptr(ws->wslay));
}

int websocket_greet(struct websocket *ws, const char *accept, const char *protocol)
{
    char head[512];
    int len = snprintf(head, sizeof(head),
                       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                       "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s%s%s\r\n",
                       accept, *protocol ? "Sec-WebSocket-Protocol: " : "", protocol,
                       *protocol ? "\r\n" : "");

    /* The head is smaller than any socket's buffer, and nothing was sent before. */
    return len < (int)sizeof(head) &&
                   send(ws->watch.fd, head, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) == len
               ? 0
               : -1;
}

bool websocket_has_room(const struct websocket *ws)
{
    return !ws->closing && !ws->broken && !ws->pulling &&
           wslay_event_get_queued_msg_length(ws->wslay) < SEND_LOW;
}

void websocket_want_room(struct websocket *ws, bool wanted)
{
    ws->wants_room = wanted && !ws->closing;
}

void websocket_send(struct websocket *ws, bool text, const char *bytes, size_t len)
{
    struct wslay_event_msg m = { .opcode = text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME,
                                 .msg = (const uint8_t *)bytes,
                                 .msg_length = len };

    if (!ws->closing && !ws->broken && wslay_event_queue_msg(ws->wslay, &m) != 0)
        mark_broken(ws);
}

static ssize_t pull(wslay_event_context_ptr ctx, uint8_t *buf, size_t len,
                    const union wslay_event_msg_source *source, int *eof, void *arg)
{
    struct websocket *ws = arg;
    ssize_t n = ws->user->pull(ws, (char *)buf, len, eof);

    (void)source;
    if (n < 0)
        wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
    if (n < 0 || *eof)
        ws->pulling = false;
    return n;
}

void websocket_send_pulled(struct websocket *ws)
{
    struct wslay_event_fragmented_msg m = { .opcode = WSLAY_TEXT_FRAME, .read_callback = pull };

    if (ws->closing || ws->broken)
        return;
    ws->pulling = true;
    if (wslay_event_queue_fragmented_msg(ws->wslay, &m) != 0)
        mark_broken(ws);
}

void websocket_pause(struct websocket *ws, bool paused)
{
    ws->paused = paused;
}
