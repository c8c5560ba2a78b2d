/* The sandboxes' side: questions by UDP and TCP, answers back. One sandbox has sockets, queues and
 * counts of its own, so that it can fill only those. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/resolver/resolver_private.h"

enum { AT_ONCE = 16, IDLE_MS = 10000 };

/* ------------------------------------------------------------------ UDP */

/* A few at a time: the others' turn comes in between. */
void clients_read_udp(struct resolver *r, struct box *b)
{
    for (int i = 0; i < AT_ONCE; i++) {
        uint8_t p[DNS_QUERY_MAX + 1];
        struct sockaddr_in from;
        socklen_t from_len = sizeof(from);
        ssize_t n = recvfrom(b->udp.fd, p, sizeof(p), 0, (struct sockaddr *)&from, &from_len);

        if (n < 0)
            return;
        jobs_ask(r, b, NULL, &from, p, (size_t)n);
    }
}

/* ------------------------------------------------------------------ TCP */

static void close_conn(struct resolver *r, struct conn *c)
{
    if (c->closed)
        return;
    c->closed = true; /* freed in the next tick: an event about it may be waiting */
    c->source.fd = cove_close(c->source.fd);
    c->box->conns--;
    jobs_forget_conn(r, c);
}

void clients_accept(struct resolver *r, struct box *b)
{
    for (int i = 0; i < AT_ONCE; i++) {
        AUTO_CLOSE int fd = accept4(b->tcp.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct conn *c;

        if (fd < 0)
            return;
        if (b->conns >= BOX_CONNS_MAX || !(c = calloc(1, sizeof(*c))))
            continue;
        c->source = (struct source){ SOURCE_CONN, fd };
        if (watch(r, &c->source, EPOLLIN) < 0) {
            free(c);
            continue;
        }
        take_fd(&fd);
        c->box = b;
        c->until_ms = clock_boot_ms() + IDLE_MS;
        c->next = r->conns;
        r->conns = c;
        b->conns++;
    }
}

static size_t wanted(const struct conn *c)
{
    return c->in_len < 2 ? 2 : 2 + (size_t)(c->in[0] << 8 | c->in[1]);
}

/* One question is read and answered before the next is looked at: until then its socket is not
 * watched, or a client that sends on would keep us busy. */
static void ask_next(struct resolver *r, struct conn *c)
{
    if (c->in_len <= 2 || c->in_len < wanted(c))
        return;
    c->busy = true;
    epoll_ctl(r->epoll, EPOLL_CTL_DEL, c->source.fd, NULL);
    c->in_len = 0;
    jobs_ask(r, c->box, c, NULL, c->in + 2, (size_t)(c->in[0] << 8 | c->in[1]));
}

void clients_go_on(struct resolver *r, struct conn *c)
{
    if (c->closed || !c->busy)
        return;
    c->busy = false;
    c->until_ms = clock_boot_ms() + IDLE_MS;
    if (watch(r, &c->source, EPOLLIN) < 0)
        close_conn(r, c);
}

void clients_read_conn(struct resolver *r, struct conn *c)
{
    while (!c->closed && !c->busy) {
        size_t want = wanted(c);
        ssize_t n;

        if (want > sizeof(c->in) || want == c->in_len) { /* too long, or of no length */
            close_conn(r, c);
            return;
        }
        n = recv(c->source.fd, c->in + c->in_len, want - c->in_len, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            close_conn(r, c);
        if (n <= 0)
            return;
        c->in_len += (size_t)n;
        c->until_ms = clock_boot_ms() + IDLE_MS;
        ask_next(r, c);
    }
}

/* An answer goes out in one piece or not at all: who lets the socket fill up is not read to either.
 */
static void answer_conn(struct resolver *r, struct conn *c, const uint8_t *p, size_t len)
{
    uint8_t head[2] = { (uint8_t)(len >> 8), (uint8_t)len };
    struct iovec parts[] = { { head, 2 }, { (void *)(uintptr_t)p, len } };
    struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };

    if (sendmsg(c->source.fd, &m, MSG_NOSIGNAL) != (ssize_t)(len + 2))
        close_conn(r, c);
}

void clients_answer(struct resolver *r, struct job *j, const uint8_t *p, size_t len)
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
    for (struct conn **at = &r->conns; *at;) {
        struct conn *c = *at;

        if (!c->closed && (c->box->gone || (!c->busy && now >= c->until_ms)))
            close_conn(r, c);
        if (!c->closed) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        free(c);
    }
}
