/*
 * One connection: a client's socket, the sandbox's socket, and a pipe each way. Bytes go socket -
 * pipe - socket by splice() and never through our memory. A direction is filled only when its pipe
 * is empty, so what we wait for is always clear: input when it is empty, room at the other side
 * when it is not.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/gate_private.h"

enum { CLIENT, BOX }; /* the sides; direction n is from side n to the other */
enum { SPLICE_BYTES = 1 << 20 };

struct direction {
    int pipe[2];
    size_t held; /* bytes in the pipe */
    bool ended;  /* end of file was read */
    bool shut;   /* and told to the other side */
};

struct relay {
    LIST_ENTRY(relay) link;
    struct binding *binding;
    char id[24]; /* of the sandbox: the binding may move on to another */
    struct watch side[2];
    struct watch asking; /* the control connection, until init has answered */
    struct direction way[2];
    uint64_t deadline_ms; /* of the connect */
    bool closed;
};

/* ------------------------------------------------------------------ the end of one */

static void close_relay(struct gate *g, struct relay *r)
{
    if (r->closed)
        return;
    r->closed = true;
    if (r->asking.fd >= 0)
        r->binding->connecting--;
    watch_stop(g, &r->asking);
    for (int i = 0; i < 2; i++) {
        watch_stop(g, &r->side[i]);
        cove_close(r->way[i].pipe[0]);
        cove_close(r->way[i].pipe[1]);
    }
    LIST_REMOVE(r, link);
    LIST_INSERT_HEAD(&g->closed, r, link); /* an event of this round may still point to it */
    g->relay_count--;
    binding_pause(g, r->binding);
}

void relays_reap(struct gate *g)
{
    struct relay *r;

    while ((r = LIST_FIRST(&g->closed))) {
        LIST_REMOVE(r, link);
        free(r);
    }
}

void relays_close_of(struct gate *g, struct binding *b)
{
    struct relay *r = LIST_FIRST(&g->relays);

    while (r) {
        struct relay *next = LIST_NEXT(r, link);

        if (r->binding == b)
            close_relay(g, r);
        r = next;
    }
}

/* Why the client was turned away stands in the log: it gets nothing but the end of its connection.
 */
static void refuse(struct gate *g, struct relay *r, const char *why)
{
    log_event(LOG_LEVEL_WARN, "proxied connection refused", LOG_S("sandbox", r->binding->rec.id),
              LOG_N("port", r->binding->rec.port), LOG_N("proxy_port", r->binding->rec.proxy_port),
              LOG_S("reason", why));
    close_relay(g, r);
}

void relays_expire(struct gate *g)
{
    struct relay *r = LIST_FIRST(&g->relays);
    uint64_t now = clock_boot_ms();
    struct box_info info;
    uint32_t index;

    while (r) {
        struct relay *next = LIST_NEXT(r, link);

        if (r->asking.fd >= 0 && now >= r->deadline_ms)
            refuse(g, r, "the sandbox does not answer");
        else if (!state_find_id(g->state, r->binding->rec.tenant, r->id, &index, &info))
            close_relay(g, r);
        r = next;
    }
}

/* ------------------------------------------------------------------ moving bytes */

static bool would_block(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* -1: the connection is broken. */
static int pump(struct relay *r, int from)
{
    struct direction *d = &r->way[from];
    int in = r->side[from].fd, out = r->side[!from].fd;
    ssize_t n;

    if (d->held == 0 && !d->ended) {
        n = splice(in, NULL, d->pipe[1], NULL, SPLICE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n < 0 && !would_block(n))
            return -1;
        d->ended = n == 0;
        d->held = n > 0 ? (size_t)n : 0;
    }
    while (d->held > 0) {
        n = splice(d->pipe[0], NULL, out, NULL, d->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (would_block(n))
            return 0;
        if (n <= 0)
            return -1;
        d->held -= (size_t)n;
    }
    if (d->ended && !d->shut) {
        shutdown(out, SHUT_WR); /* half-close: the other direction goes on */
        d->shut = true;
    }
    return 0;
}

static uint32_t wanted(const struct relay *r, int side)
{
    const struct direction *reads = &r->way[side], *writes = &r->way[!side];

    return (reads->held == 0 && !reads->ended ? EPOLLIN : 0) | (writes->held > 0 ? EPOLLOUT : 0);
}

static void side_ready(struct gate *g, struct relay *r, uint32_t events)
{
    bool broken = events & EPOLLERR;

    for (int i = 0; i < 2; i++)
        broken = pump(r, i) < 0 || broken;
    if (broken || (r->way[0].shut && r->way[1].shut)) {
        close_relay(g, r);
        return;
    }
    for (int i = 0; i < 2; i++)
        watch_want(g, &r->side[i], wanted(r, i));
}

static void client_ready(struct gate *g, struct watch *w, uint32_t events)
{
    side_ready(g, container_of(w, struct relay, side[CLIENT]), events);
}

static void box_ready(struct gate *g, struct watch *w, uint32_t events)
{
    side_ready(g, container_of(w, struct relay, side[BOX]), events);
}

/* ------------------------------------------------------------------ reaching the sandbox */

static bool is_socket(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

static int make_pipes(struct relay *r)
{
    for (int i = 0; i < 2; i++)
        if (pipe2(r->way[i].pipe, O_CLOEXEC | O_NONBLOCK) < 0)
            return -1;
    return 0;
}

static void begin(struct gate *g, struct relay *r, int box_fd)
{
    int one = 1, client_fd = r->side[CLIENT].fd;

    fcntl(box_fd, F_SETFL, O_NONBLOCK);
    setsockopt(box_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(client_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (make_pipes(r) < 0 || watch_start(g, &r->side[BOX], box_fd, EPOLLIN, box_ready) < 0) {
        close(box_fd);
        refuse(g, r, "out of descriptors");
        return;
    }
    if (watch_start(g, &r->side[CLIENT], client_fd, EPOLLIN, client_ready) < 0) {
        close(client_fd);
        refuse(g, r, "out of descriptors");
    }
}

/* What init sends is bytes from inside a sandbox: one answer of a known shape, or the connection
 * ends. */
static void answer_ready(struct gate *g, struct watch *w, uint32_t events)
{
    static const struct msg_rule answers[] = { { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
                                               { MSG_DONE, 0, 0, 1, 1 },
                                               { 0 } };
    struct relay *r = container_of(w, struct relay, asking);
    struct cove_err e = { 0 };
    char buf[1024];
    struct msg m;
    int rc = msg_recv(w->fd, buf, sizeof(buf), answers, MSG_DONTWAIT, &m, &e);

    (void)events;
    if (rc < 0 && e.code == COVE_BUSY)
        return;
    if (rc != 1) {
        refuse(g, r, "the sandbox ended");
        return;
    }
    if (m.head.type == MSG_ERROR) {
        memcpy(&e, m.body, sizeof(e));
        cove_err_sanitize(&e);
        refuse(g, r, e.msg);
        return;
    }
    watch_stop(g, w);
    r->binding->connecting--;
    binding_pause(g, r->binding);
    if (is_socket(m.fds[0])) {
        begin(g, r, take_fd(&m.fds[0]));
    } else {
        msg_close_fds(&m);
        refuse(g, r, "the sandbox did not hand out a socket");
    }
}

static int ask_box(struct gate *g, struct relay *r)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    struct box_connect ask = { .port = r->binding->rec.port };
    AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/boxes/%s", g->config.run_dir, r->id);
    if (sock < 0 || connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        msg_send(sock, BOX_CONNECT, 1, &ask, sizeof(ask), NULL, 0, NULL, 0,
                 MSG_DONTWAIT | MSG_NOSIGNAL, NULL) < 0 ||
        watch_start(g, &r->asking, sock, EPOLLIN, answer_ready) < 0)
        return -1;
    take_fd(&sock);
    r->binding->connecting++;
    binding_pause(g, r->binding);
    return 0;
}

void relay_accept(struct gate *g, struct watch *listener, uint32_t events)
{
    struct binding *b = container_of(listener, struct binding, watch);
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct relay *r = fd < 0 ? NULL : calloc(1, sizeof(*r));

    (void)events;
    if (!r) {
        if (fd < 0 && (errno == EMFILE || errno == ENFILE))
            watch_want(g, listener, 0); /* until the next sweep: trying at once is no use */
        cove_close(fd);
        return;
    }
    *r = (struct relay){
        .binding = b,
        .side = { { .fd = fd }, { .fd = -1 } }, /* not watched until the sandbox has answered */
        .asking.fd = -1,
        .way = { { .pipe = { -1, -1 } }, { .pipe = { -1, -1 } } },
        .deadline_ms = clock_boot_ms() + CONNECT_MS,
    };
    binding_follow(g, b);
    memcpy(r->id, b->rec.id, sizeof(r->id));
    LIST_INSERT_HEAD(&g->relays, r, link);
    g->relay_count++;
    if (ask_box(g, r) < 0)
        refuse(g, r, "the sandbox cannot be reached");
}
