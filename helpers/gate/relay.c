/*
 * One connection: a client's socket, the sandbox's socket, and a target.
 *
 * Bytes are read into one buffer that all connections share and are sent on at once. Bytes that the other end
 * has no room for are kept with the connection, and nothing more is read until they were sent: so a direction
 * waits for one thing only. An idle connection holds two sockets and no buffer.
 *
 * Every call says MSG_DONTWAIT. The sandbox's init has made the socket and may keep a copy: with fcntl() it
 * could make the socket blocking again at any time. splice() goes by that shared flag alone, so it would then
 * block, and the whole gate with it.
 *
 * How the sandbox's socket comes about is in connect.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "cove/which.h"
#include "helpers/gate/attach.h"
#include "helpers/gate/gate_private.h"

enum {
    CARRY_BYTES = 128 << 10,
    HELD_ROOM = 64 << 20, /* of all connections: above it only little is read at a time */
    CARRY_LITTLE = 4 << 10,
    THROTTLE_MS = 20,
};

/* ------------------------------------------------------------------ one life */

bool relays_have_room(const struct gate *g)
{
    return g->relay_count < g->relay_max;
}

static void end_unwatched(struct watch *w, uint32_t events)
{
    (void)w;
    (void)events;
}

static struct relay *relay_new(struct gate *g, int client_fd, const struct way_in *way_in)
{
    struct relay *r = calloc(1, sizeof(*r));

    if (!r) {
        close(client_fd);
        return NULL;
    }
    r->gate = g;
    r->way_in = way_in;
    watch_start(&g->loop, &r->end[CLIENT], client_fd, 0, end_unwatched);
    LIST_INSERT_HEAD(&g->relays, r, link);
    g->relay_count++;
    return r;
}

struct relay *relay_accept(struct gate *g, struct watch *listener, const struct way_in *way_in)
{
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0)
        return relay_new(g, fd, way_in);
    if (errno == EMFILE || errno == ENFILE)
        watch_want(listener, 0); /* until the next sweep: trying again at once would fail too */
    return NULL;
}

/* With SO_LINGER, which init could have set, close() would wait for a program that does not read. */
static void close_box_end(struct relay *r)
{
    static const struct linger none;

    if (!watch_is_on(&r->end[BOX]))
        return;
    setsockopt(r->end[BOX].fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    watch_close(&r->end[BOX]);
}

static void stop_waiting(struct relay *r)
{
    if (r->throttled)
        TAILQ_REMOVE(&r->gate->throttled, r, turn);
    r->throttled = false;
}

/* From here on the relay has nothing to do with any sandbox. */
static void leave_sandbox(struct relay *r)
{
    struct box_traffic *u = r->usage;

    timer_stop(&r->timer);
    stop_waiting(r);
    if (!u)
        return;
    connect_stop(r);
    close_box_end(r);
    u->open--;
    r->usage = NULL;
    r->stage = RELAY_NEW;
    if (!TAILQ_EMPTY(&u->waiting) && !r->gate->turns.set)
        timer_start(&r->gate->loop, &r->gate->turns, 0, connect_take_turns);
}

static void drop_held(struct gate *g, struct direction *d)
{
    g->held_bytes -= d->held_len;
    free(d->held);
    d->held = NULL;
    d->held_len = d->held_sent = 0;
}

void relay_close(struct relay *r)
{
    struct gate *g = r->gate;

    if (r->viewer)
        viewer_free(take_ptr(r->viewer));
    leave_sandbox(r);
    watch_close(&r->end[CLIENT]);
    for (int i = 0; i < 2; i++)
        drop_held(g, &r->way[i]);
    buf_done(&r->head);
    LIST_REMOVE(r, link);
    g->relay_count--;
    free(r);
    gate_room_changed(g);
    gate_stop_if_idle(g);
}

/* The sandbox cannot be reached: what the client is told depends on its way in. */
void relay_refuse(struct relay *r, const struct cove_err *why)
{
    leave_sandbox(r);
    r->way_in->refused(r, why);
}

void relay_refuse_with(struct relay *r, enum cove_code code, const char *text)
{
    struct cove_err e;

    cove_fail(&e, code, "%s", text);
    relay_refuse(r, &e);
}

void relays_close_of(struct gate *g, const struct binding *b)
{
    struct relay *r = LIST_FIRST(&g->relays);

    while (r) {
        struct relay *next = LIST_NEXT(r, link);

        if (r->binding == b)
            relay_close(r);
        r = next;
    }
}

/* A WebSocket can say why it ends. */
static void sandbox_ended(struct relay *r)
{
    if (r->viewer)
        viewer_close(r->viewer, WEBSOCKET_SANDBOX_ENDED, "the sandbox ended");
    else
        relay_close(r);
}

static bool is_idle(const struct relay *r)
{
    uint64_t most_ms = r->usage ? r->usage->share->limits.port_idle_ms : 0;

    return most_ms && (r->stage == RELAY_MOVING || r->stage == RELAY_SOCKET) &&
           clock_boot_ms() - r->moved_ms > most_ms;
}

static void end_idle(struct relay *r)
{
    if (r->viewer)
        viewer_close(r->viewer, WEBSOCKET_IDLE, "nothing was said for too long");
    else
        relay_close(r);
}

static void watch_client(struct relay *r);

void relays_sweep(struct gate *g)
{
    struct relay *r = LIST_FIRST(&g->relays);
    struct which found;

    while (r) {
        struct relay *next = LIST_NEXT(r, link);

        if (r->usage && which_sandbox_id(g->state, NULL, r->target.id, &found) != WHICH_HERE)
            sandbox_ended(r);
        else if (is_idle(r))
            end_idle(r);
        else if (r->stage == RELAY_MOVING && r->quiet)
            watch_client(r);
        r = next;
    }
}

/* ------------------------------------------------------------------ moving bytes */

static bool would_block(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static int hold(struct gate *g, struct direction *d, const char *bytes, size_t len)
{
    d->held = malloc(len);
    if (!d->held)
        return -1;
    memcpy(d->held, bytes, len);
    d->held_len = len;
    g->held_bytes += len;
    return 0;
}

/* Sends as much as there is room for. Returns how much that was, or -1 if the connection is broken. */
static ssize_t send_some(int fd, const char *bytes, size_t len)
{
    ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    return would_block(n) ? 0 : n;
}

/* 1: nothing is held any more, 0: the other end has no room, -1: broken. */
static int send_held(struct gate *g, struct direction *d, int out)
{
    while (d->held) {
        ssize_t n = send_some(out, d->held + d->held_sent, d->held_len - d->held_sent);

        if (n <= 0)
            return (int)n;
        d->held_sent += (size_t)n;
        if (d->held_sent == d->held_len)
            drop_held(g, d);
    }
    return 1;
}

/* What was read from the client before the sandbox was connected goes first. */
static int send_head(struct relay *r)
{
    while (r->head_sent < r->head.len) {
        ssize_t n =
            send_some(r->end[BOX].fd, r->head.data + r->head_sent, r->head.len - r->head_sent);

        if (n <= 0)
            return (int)n;
        r->head_sent += (size_t)n;
    }
    buf_done(&r->head);
    r->head_sent = 0;
    return 1;
}

/* Whether this tenant may move bytes now. A second's worth may come at once, and one piece too much is paid
 * back by waiting longer. */
static bool may_move(struct relay *r)
{
    struct tenant_share *share = r->usage->share;
    uint64_t per_s = share->limits.tenant_port_rate_bytes, now_ms;
    int64_t more;

    if (!per_s)
        return true;
    now_ms = clock_boot_ms();
    more = now_ms - share->at_ms > 1000 ? (int64_t)per_s
                                        : (int64_t)(per_s * (now_ms - share->at_ms) / 1000);
    if (more > 0) {
        share->at_ms = now_ms;
        share->left = share->left + more > (int64_t)per_s ? (int64_t)per_s : share->left + more;
    }
    return share->left > 0;
}

static void unthrottle(struct timer *t);

static void throttle(struct relay *r)
{
    struct gate *g = r->gate;

    if (r->throttled)
        return;
    r->throttled = true;
    TAILQ_INSERT_TAIL(&g->throttled, r, turn);
    if (!g->unthrottle.set)
        timer_start(&g->loop, &g->unthrottle, THROTTLE_MS, unthrottle);
}

/* One piece from one end to the other. `last`: the sender sends no more than it has sent by now. -1: the connection is
 * broken. */
static int carry(struct relay *r, int from, bool last)
{
    static char buffer[CARRY_BYTES]; /* the gate has one thread */
    struct gate *g = r->gate;
    struct direction *d = &r->way[from];
    size_t most = g->held_bytes < HELD_ROOM ? sizeof(buffer) : CARRY_LITTLE;
    ssize_t n, sent;

    if (!may_move(r)) {
        throttle(r);
        return 0;
    }
    n = recv(r->end[from].fd, buffer, most, MSG_DONTWAIT);
    if (n <= 0) {
        d->ended = n == 0;
        return n == 0 || would_block(n) ? 0 : -1;
    }
    d->ended = last && (size_t)n < most;
    r->moved_ms = clock_boot_ms();
    if (r->usage->share->limits.tenant_port_rate_bytes)
        r->usage->share->left -= n;
    *(from == CLIENT ? &r->usage->bytes_in : &r->usage->bytes_out) += (uint64_t)n;
    sent = send_some(r->end[!from].fd, buffer, (size_t)n);
    if (sent < 0)
        return -1;
    return sent < n ? hold(g, d, buffer + sent, (size_t)(n - sent)) : 0;
}

/* -1: the connection is broken, or over. */
static int pump(struct relay *r, int from, bool last)
{
    struct direction *d = &r->way[from];
    bool head = from == CLIENT && r->head.len > 0;
    int rc = head ? send_head(r) : send_held(r->gate, d, r->end[!from].fd);

    if (rc == 1 && !head && !d->ended)
        rc = carry(r, from, last) < 0 ? -1 : 1;
    if (rc == 1 && !d->held && d->ended && !d->shut) {
        if (from == CLIENT && !r->way_in->half_close)
            return -1; /* the client has left */
        if (from == BOX && r->kept)
            return -1; /* the request has no body, so nginx sends no more; it reads what was sent */
        shutdown(r->end[!from].fd, SHUT_WR);
        d->shut = true;
    }
    return rc < 0 ? -1 : 0;
}

static uint32_t wanted(const struct relay *r, int end)
{
    const struct direction *reads = &r->way[end], *writes = &r->way[!end];
    bool head = r->head.len > 0, writing = writes->held || (end == BOX && head);
    bool reading =
        !r->throttled && !reads->held && !reads->ended && !(end == CLIENT && (head || r->quiet));

    /* Mostly the end of a reply is there with its bytes, and one recv() less finds it. Not on a bound port: urgent bytes
     * cut a recv() short, and some program may use them there. */
    if (reading && end == BOX && r->kept)
        return EPOLLIN | EPOLLRDHUP | (writing ? EPOLLOUT : 0);
    return (reading ? EPOLLIN : 0) | (writing ? EPOLLOUT : 0);
}

static void watch_client(struct relay *r)
{
    r->quiet = false;
    watch_want(&r->end[CLIENT], wanted(r, CLIENT));
}

/* Something happened at one end: bytes have come there, or there is room for more. */
static void move(struct relay *r, int end, uint32_t events)
{
    bool over = events & EPOLLERR;

    if (events & (EPOLLIN | EPOLLHUP))
        over = pump(r, end, events & EPOLLRDHUP) < 0 || over;
    if (events & EPOLLOUT)
        over = pump(r, !end, false) < 0 || over;
    if (over || (r->way[0].shut && r->way[1].shut)) {
        relay_close(r);
        return;
    }
    for (int i = 0; i < 2; i++)
        watch_want(&r->end[i], wanted(r, i));
}

/* All relays that wait for their tenant's rate try again, the longest-waiting first. A relay that is still
 * too early waits again, at the end. */
static void unthrottle(struct timer *t)
{
    struct gate *g = container_of(t, struct gate, unthrottle);
    struct relay *r, *last = TAILQ_LAST(&g->throttled, relay_queue);
    bool more = last != NULL;

    while (more && (r = TAILQ_FIRST(&g->throttled))) {
        more = r != last;
        stop_waiting(r);
        r->moved_ms = clock_boot_ms();
        move(r, CLIENT, EPOLLIN | EPOLLOUT);
    }
}

static void client_ready(struct watch *w, uint32_t events)
{
    move(container_of(w, struct relay, end[CLIENT]), CLIENT, events);
}

static void box_ready(struct watch *w, uint32_t events)
{
    move(container_of(w, struct relay, end[BOX]), BOX, events);
}

void relay_begin(struct relay *r, int box_fd)
{
    int one = 1;

    timer_stop(&r->timer);
    if (r->binding) /* nginx comes by a unix socket */
        setsockopt(r->end[CLIENT].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (watch_start(&r->gate->loop, &r->end[BOX], box_fd, 0, box_ready) < 0) {
        close(box_fd);
        relay_refuse_with(r, COVE_BUSY, "out of memory");
        return;
    }
    r->stage = RELAY_MOVING;
    r->moved_ms = clock_boot_ms();
    r->end[CLIENT].ready = client_ready;
    r->usage->connections++;
    move(r, BOX, EPOLLOUT);
}
