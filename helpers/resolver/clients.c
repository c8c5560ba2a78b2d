/* The sandboxes' side: takes questions by UDP and TCP, and sends answers. Each sandbox has sockets, queues and
 * counts of its own, so that it cannot fill those of others. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/resolver/resolver_private.h"

enum { AT_ONCE = 16, IDLE_MS = 10000 };

/* ------------------------------------------------------------------ UDP */

static struct resolver *resolver_of(const struct watch *w)
{
    return container_of(w->loop, struct resolver, loop);
}

/* A few at a time, so that other sandboxes have their turn in between. */
static void udp_ready(struct watch *w, uint32_t events)
{
    struct known_box *b = container_of(w, struct known_box, udp);
    struct resolver *r = resolver_of(w);

    (void)events;
    for (int i = 0; i < AT_ONCE; i++) {
        uint8_t p[DNS_QUERY_MAX + 1];
        struct sockaddr_in from;
        socklen_t from_len = sizeof(from);
        ssize_t n = recvfrom(w->fd, p, sizeof(p), 0, (struct sockaddr *)&from, &from_len);

        if (n < 0)
            break;
        jobs_ask(r, b, NULL, &from, p, (size_t)n);
    }
    resolver_reap(r);
}

/* ------------------------------------------------------------------ TCP */

static void close_conn(struct resolver *r, struct tcp_client *c)
{
    if (c->closed)
        return;
    c->closed = true;
    watch_close(&c->watch);
    LIST_REMOVE(c, link);
    LIST_INSERT_HEAD(&r->closed, c, link); /* the caller may still look at it */
    c->box->conns--;
    jobs_forget_conn(r, c);
}

static void conn_ready(struct watch *w, uint32_t events);

static void tcp_ready(struct watch *w, uint32_t events)
{
    struct known_box *b = container_of(w, struct known_box, tcp);
    struct resolver *r = resolver_of(w);

    (void)events;
    for (int i = 0; i < AT_ONCE; i++) {
        AUTO_CLOSE int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct tcp_client *c;

        if (fd < 0)
            return;
        if (b->conns >= BOX_CONNS_MAX || !(c = calloc(1, sizeof(*c))))
            continue;
        if (watch_start(&r->loop, &c->watch, fd, EPOLLIN, conn_ready) < 0) {
            free(c);
            continue;
        }
        take_fd(&fd);
        c->box = b;
        c->until_ms = clock_boot_ms() + IDLE_MS;
        LIST_INSERT_HEAD(&r->conns, c, link);
        b->conns++;
        resolver_need_tick(r);
    }
}

int clients_listen(struct resolver *r, struct known_box *b, const int fds[2])
{
    int rc = 0;

    if (watch_start(&r->loop, &b->udp, fds[0], EPOLLIN, udp_ready) < 0)
        rc = close(fds[0]) - 1;
    if (watch_start(&r->loop, &b->tcp, fds[1], EPOLLIN, tcp_ready) < 0)
        rc = close(fds[1]) - 1;
    return rc;
}

static size_t wanted(const struct tcp_client *c)
{
    return c->in_len < 2 ? 2 : 2 + (size_t)(c->in[0] << 8 | c->in[1]);
}

/* One question is read and answered before the next is looked at. Until then the connection is not
 * watched, because a client that goes on sending would keep us busy. */
static void ask_next(struct resolver *r, struct tcp_client *c)
{
    if (c->in_len <= 2 || c->in_len < wanted(c))
        return;
    c->busy = true;
    watch_want(&c->watch, 0);
    c->in_len = 0;
    jobs_ask(r, c->box, c, NULL, c->in + 2, (size_t)(c->in[0] << 8 | c->in[1]));
}

void clients_go_on(struct resolver *r, struct tcp_client *c)
{
    if (c->closed || !c->busy)
        return;
    c->busy = false;
    c->until_ms = clock_boot_ms() + IDLE_MS;
    if (watch_want(&c->watch, EPOLLIN) < 0)
        close_conn(r, c);
}

static void read_conn(struct resolver *r, struct tcp_client *c)
{
    while (!c->closed && !c->busy) {
        size_t want = wanted(c);
        ssize_t n;

        if (want > sizeof(c->in) || want == c->in_len) { /* too long, or of no length */
            close_conn(r, c);
            return;
        }
        n = recv(c->watch.fd, c->in + c->in_len, want - c->in_len, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            close_conn(r, c);
        if (n <= 0)
            return;
        c->in_len += (size_t)n;
        c->until_ms = clock_boot_ms() + IDLE_MS;
        ask_next(r, c);
    }
}

static void conn_ready(struct watch *w, uint32_t events)
{
    struct resolver *r = resolver_of(w);

    (void)events;
    read_conn(r, container_of(w, struct tcp_client, watch));
    resolver_reap(r);
}

/* An answer goes out in one piece or not at all. A client that lets its socket fill up loses the
 * connection. */
static void answer_conn(struct resolver *r, struct tcp_client *c, const uint8_t *p, size_t len)
{
    uint8_t head[2] = { (uint8_t)(len >> 8), (uint8_t)len };
    struct iovec parts[] = { { head, 2 }, { (void *)(uintptr_t)p, len } };
    struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };

    if (sendmsg(c->watch.fd, &m, MSG_NOSIGNAL) != (ssize_t)(len + 2))
        close_conn(r, c);
}

void clients_answer(struct resolver *r, struct lookup *j, const uint8_t *p, size_t len)
{
    if (len == 0 || j->box->gone)
        return;
    if (j->conn)
        answer_conn(r, j->conn, p, len);
    else
        sendto(j->box->udp.fd, p, len, 0, (const struct sockaddr *)&j->from, sizeof(j->from));
}

void clients_tick(struct resolver *r, uint64_t now)
{
    struct tcp_client *c = LIST_FIRST(&r->conns);

    while (c) {
        struct tcp_client *next = LIST_NEXT(c, link);

        if (c->box->gone || (!c->busy && now >= c->until_ms))
            close_conn(r, c);
        c = next;
    }
}
