/*
 * One connection: a client's socket, the sandbox's socket, and a target.
 *
 * Bytes go socket - pipe - socket by splice() and never through our memory. A direction is filled only
 * when its pipe is empty, so what we wait for is always clear: input when it is empty, room at the
 * other end when it is not. An idle connection holds no pipe at all: pipes come from a common store
 * while bytes are on their way, because the kernel limits the pages that all pipes of a user may have.
 *
 * How the sandbox's socket comes about: its init is asked to connect (BOX_CONNECT). Questions to one
 * init are limited; further connections wait for their turn. Nothing here waits in a system call.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/attach.h"
#include "helpers/gate/gate_private.h"

enum { SPLICE_BYTES = 1 << 20, RETRY_MS = 50 };

/* ------------------------------------------------------------------ pipes */

static struct pipe_pair *take_pipe(struct gate *g)
{
    struct pipe_pair *p = SLIST_FIRST(&g->pipes);

    if (p) {
        SLIST_REMOVE_HEAD(&g->pipes, link);
        return p;
    }
    p = calloc(1, sizeof(*p));
    if (p && pipe2(p->end, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(p);
        return NULL;
    }
    return p;
}

static void give_pipe(struct gate *g, struct direction *d)
{
    if (!d->pipe)
        return;
    if (d->held) { /* bytes that nobody will fetch */
        close(d->pipe->end[0]);
        close(d->pipe->end[1]);
        free(d->pipe);
    } else {
        SLIST_INSERT_HEAD(&g->pipes, d->pipe, link);
    }
    d->pipe = NULL;
}

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
        watch_want(listener, 0); /* until the next sweep: trying at once is no use */
    return NULL;
}

static void stop_asking(struct relay *r)
{
    if (r->stage == RELAY_WAITING)
        TAILQ_REMOVE(&r->usage->waiting, r, turn);
    if (watch_is_on(&r->asking))
        r->usage->connecting--;
    watch_close(&r->asking);
}

/* From here on the relay has nothing to do with any sandbox. */
static void leave_sandbox(struct relay *r)
{
    struct usage *u = r->usage;

    timer_stop(&r->timer);
    if (!u)
        return;
    stop_asking(r);
    watch_close(&r->end[BOX]);
    u->open--;
    r->usage = NULL;
    r->stage = RELAY_NEW;
    if (!TAILQ_EMPTY(&u->waiting) && !r->gate->turns.set)
        timer_start(&r->gate->loop, &r->gate->turns, 0, relays_take_turns);
}

void relay_close(struct relay *r)
{
    struct gate *g = r->gate;

    if (r->viewer)
        viewer_free(take_ptr(r->viewer));
    leave_sandbox(r);
    for (int i = 0; i < 2; i++) {
        watch_close(&r->end[i]);
        give_pipe(g, &r->way[i]);
    }
    buf_done(&r->head);
    LIST_REMOVE(r, link);
    g->relay_count--;
    free(r);
    gate_room_changed(g);
    gate_stop_if_idle(g);
}

/* The sandbox cannot be reached: what the client is told depends on its way in. */
static void refuse(struct relay *r, const struct cove_err *why)
{
    leave_sandbox(r);
    r->way_in->refused(r, why);
}

static void refuse_with(struct relay *r, enum cove_code code, const char *text)
{
    struct cove_err e;

    cove_fail(&e, code, "%s", text);
    refuse(r, &e);
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
    uint64_t most_ms = r->gate->config.port_idle_ms;

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

void relays_sweep(struct gate *g)
{
    struct relay *r = LIST_FIRST(&g->relays);
    struct box_info info;
    uint32_t index;

    while (r) {
        struct relay *next = LIST_NEXT(r, link);

        if (r->usage && !state_find_id_any(g->state, r->target.id, &index, &info))
            sandbox_ended(r);
        else if (is_idle(r))
            end_idle(r);
        r = next;
    }
}

/* ------------------------------------------------------------------ moving bytes */

static bool would_block(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* -1: the connection is broken. */
static int fill(struct relay *r, int from)
{
    struct direction *d = &r->way[from];
    ssize_t n;

    if (!d->pipe && !(d->pipe = take_pipe(r->gate)))
        return -1;
    n = splice(r->end[from].fd, NULL, d->pipe->end[1], NULL, SPLICE_BYTES,
               SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0 && !would_block(n))
        return -1;
    d->ended = n == 0;
    d->held = n > 0 ? (size_t)n : 0;
    if (n > 0)
        r->moved_ms = clock_boot_ms();
    if (n > 0)
        *(from == CLIENT ? &r->usage->bytes_in : &r->usage->bytes_out) += (uint64_t)n;
    return 0;
}

/* 1: all of it is on its way, 0: the other end has no room, -1: broken. */
static int drain(struct direction *d, int out)
{
    while (d->held > 0) {
        ssize_t n =
            splice(d->pipe->end[0], NULL, out, NULL, d->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

        if (would_block(n))
            return 0;
        if (n <= 0)
            return -1;
        d->held -= (size_t)n;
    }
    return 1;
}

/* What was read from the client before the sandbox was connected goes first. */
static int send_head(struct relay *r)
{
    while (r->head_sent < r->head.len) {
        ssize_t n = send(r->end[BOX].fd, r->head.data + r->head_sent, r->head.len - r->head_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (would_block(n))
            return 0;
        if (n < 0)
            return -1;
        r->head_sent += (size_t)n;
    }
    buf_done(&r->head);
    r->head_sent = 0;
    return 1;
}

static int pump(struct relay *r, int from)
{
    struct direction *d = &r->way[from];
    int rc = from == CLIENT ? send_head(r) : 1;

    if (rc == 1 && d->held == 0 && !d->ended)
        rc = fill(r, from) < 0 ? -1 : 1;
    if (rc == 1)
        rc = drain(d, r->end[!from].fd);
    if (d->held == 0)
        give_pipe(r->gate, d);
    if (rc == 1 && d->ended && !d->shut) {
        if (from == CLIENT && !r->way_in->half_close)
            return -1; /* the client has left */
        shutdown(r->end[!from].fd, SHUT_WR);
        d->shut = true;
    }
    return rc < 0 ? -1 : 0;
}

static uint32_t wanted(const struct relay *r, int end)
{
    const struct direction *reads = &r->way[end], *writes = &r->way[!end];
    bool head = r->head.len > 0, writing = writes->held > 0 || (end == BOX && head);
    bool reading = reads->held == 0 && !reads->ended && !(end == CLIENT && head);

    return (reading ? EPOLLIN : 0) | (writing ? EPOLLOUT : 0);
}

static void move(struct relay *r, uint32_t events)
{
    bool broken = events & EPOLLERR;

    for (int i = 0; i < 2; i++)
        broken = pump(r, i) < 0 || broken;
    if (broken || (r->way[0].shut && r->way[1].shut)) {
        relay_close(r);
        return;
    }
    for (int i = 0; i < 2; i++)
        watch_want(&r->end[i], wanted(r, i));
}

static void client_ready(struct watch *w, uint32_t events)
{
    move(container_of(w, struct relay, end[CLIENT]), events);
}

static void box_ready(struct watch *w, uint32_t events)
{
    move(container_of(w, struct relay, end[BOX]), events);
}

static void begin(struct relay *r, int box_fd)
{
    int one = 1;

    timer_stop(&r->timer);
    fcntl(box_fd, F_SETFL, O_NONBLOCK);
    setsockopt(box_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(r->end[CLIENT].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (watch_start(&r->gate->loop, &r->end[BOX], box_fd, EPOLLIN, box_ready) < 0) {
        close(box_fd);
        refuse_with(r, COVE_BUSY, "out of memory");
        return;
    }
    r->stage = RELAY_MOVING;
    r->moved_ms = clock_boot_ms();
    r->end[CLIENT].ready = client_ready;
    r->usage->connections++;
    move(r, 0);
}

/* ------------------------------------------------------------------ asking init */

static bool is_socket(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

static void timer_fired(struct timer *t);
static void next_turn(struct usage *u);

/* In a sandbox that is just starting nothing listens yet: then it is asked again in a moment. */
static void on_error(struct relay *r, const struct cove_err *e)
{
    if (e->code == COVE_NOT_FOUND && clock_boot_ms() < r->retry_until_ms) {
        r->stage = RELAY_RETRYING;
        timer_start(&r->gate->loop, &r->timer, RETRY_MS, timer_fired);
        return;
    }
    refuse(r, e);
}

/* What init sends is bytes from inside a sandbox: one answer of a known shape, or the connection
 * ends. */
static void answer_ready(struct watch *w, uint32_t events)
{
    static const struct msg_rule answers[] = { { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
                                               { MSG_DONE, 0, 0, 1, 1 },
                                               { 0 } };
    struct relay *r = container_of(w, struct relay, asking);
    struct usage *u = r->usage;
    struct cove_err e = { 0 };
    char buf[1024];
    struct msg m;
    int rc = msg_recv(w->fd, buf, sizeof(buf), answers, MSG_DONTWAIT, &m, &e);

    (void)events;
    if (rc < 0 && e.code == COVE_BUSY)
        return;
    stop_asking(r);
    r->stage = RELAY_NEW;
    if (rc != 1) {
        refuse_with(r, COVE_GONE, "the sandbox ended");
    } else if (m.head.type == MSG_ERROR) {
        memcpy(&e, m.body, sizeof(e));
        cove_err_sanitize(&e);
        on_error(r, &e);
    } else if (is_socket(m.fds[0])) {
        begin(r, take_fd(&m.fds[0]));
    } else {
        msg_close_fds(&m);
        refuse_with(r, COVE_GONE, "the sandbox did not hand out a socket");
    }
    next_turn(u);
}

static void ask_box(struct relay *r)
{
    struct box_connect ask = { .port = r->target.port };
    char path[160];
    AUTO_CLOSE int sock = -1;

    snprintf(path, sizeof(path), "%s/boxes/%s", r->gate->config.run_dir, r->target.id);
    sock = unix_connect(path, SOCK_SEQPACKET | SOCK_NONBLOCK);
    if (sock < 0 ||
        msg_send(sock, BOX_CONNECT, 1, &ask, sizeof(ask), NULL, 0, NULL, 0,
                 MSG_DONTWAIT | MSG_NOSIGNAL, NULL) < 0 ||
        watch_start(&r->gate->loop, &r->asking, sock, EPOLLIN, answer_ready) < 0) {
        r->stage = RELAY_NEW;
        refuse_with(r, COVE_GONE, "the sandbox cannot be reached");
        return;
    }
    take_fd(&sock);
    r->stage = RELAY_ASKING;
    r->usage->connecting++;
    timer_start(&r->gate->loop, &r->timer, CONNECT_MS, timer_fired);
}

static void next_turn(struct usage *u)
{
    struct relay *r;

    while (u->connecting < MAX_CONNECTING && (r = TAILQ_FIRST(&u->waiting))) {
        TAILQ_REMOVE(&u->waiting, r, turn);
        r->stage = RELAY_NEW;
        ask_box(r);
    }
}

/* A relay that ends makes room for one that waits. That one is not started from within the end of the
 * other, because whoever ends several walks a list of them. */
void relays_take_turns(struct timer *t)
{
    struct gate *g = container_of(t, struct gate, turns);

    for (uint32_t i = 0; i < state_box_count(g->state); i++)
        if (g->usage[i].id[0])
            next_turn(&g->usage[i]);
}

/* Ask now, or wait for a turn. */
static void queue(struct relay *r)
{
    if (r->usage->connecting < MAX_CONNECTING) {
        ask_box(r);
        return;
    }
    r->stage = RELAY_WAITING;
    TAILQ_INSERT_TAIL(&r->usage->waiting, r, turn);
    timer_start(&r->gate->loop, &r->timer, CONNECT_MS, timer_fired);
}

static void timer_fired(struct timer *t)
{
    struct relay *r = container_of(t, struct relay, timer);

    if (r->stage == RELAY_RETRYING)
        queue(r);
    else
        refuse_with(r, COVE_TIMEOUT, "the sandbox does not answer");
}

/* ------------------------------------------------------------------ the target's share */

static void close_all_of(struct gate *g, struct usage *u)
{
    struct relay *r = LIST_FIRST(&g->relays);

    while (r) {
        struct relay *next = LIST_NEXT(r, link);

        if (r->usage == u)
            relay_close(r);
        r = next;
    }
}

/* The slot may have had another sandbox, whose connections the next sweep would have ended. */
static struct usage *usage_of(struct gate *g, uint32_t index, const struct box_info *info)
{
    struct usage *u = &g->usage[index];

    if (strcmp(u->id, info->id) != 0) {
        close_all_of(g, u);
        *u = (struct usage){ 0 };
        TAILQ_INIT(&u->waiting);
        text_copy(u->id, sizeof(u->id), info->id);
        text_copy(u->tenant, sizeof(u->tenant), info->tenant);
    }
    return u;
}

static unsigned open_of_tenant(const struct gate *g, const char *tenant)
{
    unsigned open = 0;

    for (uint32_t i = 0; i < state_box_count(g->state); i++)
        if (g->usage[i].open && strcmp(g->usage[i].tenant, tenant) == 0)
            open += g->usage[i].open;
    return open;
}

static int check_share(const struct gate *g, const struct usage *u, struct cove_err *e)
{
    if (u->open >= g->config.port_connections)
        return cove_fail(e, COVE_QUOTA, "this sandbox has %llu connections, which is the limit",
                         (unsigned long long)g->config.port_connections);
    if (open_of_tenant(g, u->tenant) >= g->config.tenant_connections)
        return cove_fail(e, COVE_QUOTA, "this tenant has %llu connections, which is the limit",
                         (unsigned long long)g->config.tenant_connections);
    return 0;
}

static bool claim(struct relay *r, const struct target *t, struct box_info *ret_info)
{
    struct gate *g = r->gate;
    struct cove_err e = { 0 };
    struct usage *u;
    uint32_t index;

    r->target = *t;
    if (!state_find_id_any(g->state, t->id, &index, ret_info)) {
        refuse_with(r, COVE_GONE, "the sandbox is gone");
        return false;
    }
    u = usage_of(g, index, ret_info);
    if (check_share(g, u, &e) < 0) {
        refuse(r, &e);
        return false;
    }
    r->usage = u;
    u->open++;
    return true;
}

bool relay_claim(struct relay *r, const struct target *t)
{
    struct box_info info;

    return claim(r, t, &info);
}

void relay_connect(struct relay *r, const struct target *t)
{
    struct box_info info;

    if (!claim(r, t, &info))
        return;
    r->retry_until_ms = info.created_ms + r->gate->config.port_wait_ms;
    queue(r);
}
