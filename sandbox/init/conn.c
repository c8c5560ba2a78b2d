/* Connections of init: accept, receive, answer, cut off; and what they wait for. */
#include "config.h" /* _GNU_SOURCE */

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

LARGE char init_page[PAGE_BYTES];

/* The judge's connection lasts as long as the sandbox. For it alone an idle init would keep malloc()'s pages and page tables, so
   the first connections have places of their own. */
static struct conn *conn_new(struct init *in)
{
    for (int i = 0; i < FIRST_CONNS; i++) {
        struct conn *c = &in->first_conns[i];

        if (watch_is_on(&c->watch))
            continue;
        *c = (struct conn){ 0 };
        return c;
    }
    return calloc(1, sizeof(struct conn));
}

static void conn_delete(struct init *in, struct conn *c)
{
    if (c < in->first_conns || c >= in->first_conns + FIRST_CONNS)
        free(c);
}

static void conn_free(struct init *in, struct conn *c)
{
    struct want *w;

    while ((w = TAILQ_FIRST(&c->wants))) {
        struct proc *p = w->proc;
        bool tied = w->spawner && p->running && (p->flags & SPAWN_TIED);

        want_free(w);
        if (tied) {
            p->kill_cause = END_CLIENT;
            p->kill_signo = 9;
            proc_kill_tree(in, p);
        }
    }
    logs_conn_closed(in, c);
    removers_conn_closed(in, c);
    ports_conn_closed(in, c);
    judge_conn_closed(in, c);
    start_conn_closed(in, c);
    watch_close(&c->watch);
    LIST_REMOVE(c, link);
    assert(in->conn_count > 0);
    in->conn_count--;
    conn_delete(in, c);
    spare_client_gone(in);
}

void conn_cut(struct conn *c)
{
    c->cut = true;
    shutdown(c->watch.fd, SHUT_RDWR); /* makes it readable, so its next event comes at once */
}

static void conn_ready(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    static LARGE char buf[MSG_MAX_BYTES];
    struct conn *c = container_of(w, struct conn, watch);
    struct cove_err e = { 0 };
    struct msg m;
    int n;

    (void)events;
    if (c->cut) {
        conn_free(in, c);
        return;
    }
    n = msg_recv(w->fd, buf, sizeof(buf), init_rules(), MSG_DONTWAIT, &m, &e);
    if (n < 0 && e.code == COVE_BUSY)
        return;
    if (n <= 0) {
        conn_free(in, c);
        return;
    }
    n = dispatch(in, c, &m, &e);
    msg_close_fds(&m);
    if (n == CUT_OFF)
        conn_cut(c);
    else if (n < 0)
        conn_send_error(c, m.head.tag, &e);
}

static void turn_away(struct init *in)
{
    if (errno != EMFILE && errno != ENFILE)
        return;
    in->spare_fd =
        cove_close(in->spare_fd); /* otherwise the same event would come again and again */
    cove_close(accept4(in->listen.fd, NULL, NULL, SOCK_CLOEXEC));
    /* A copy of our own /dev/null: what has that name now may be a FIFO, and opening it would wait. */
    in->spare_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
}

void conn_accept(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    AUTO_CLOSE int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct conn *c;

    (void)events;
    if (fd < 0) {
        turn_away(in);
        return;
    }
    if (in->conn_count >= MAX_CONNS)
        return;
    c = conn_new(in);
    if (!c)
        return;
    TAILQ_INIT(&c->wants);
    msg_prepare_socket(fd);
    if (init_watch(in, &c->watch, fd, EPOLLIN, conn_ready, NULL) < 0) {
        conn_delete(in, c);
        return;
    }
    take_fd(&fd);
    LIST_INSERT_HEAD(&in->conns, c, link);
    in->conn_count++;
}

/* --------------------------------------------------------------- answers */

static bool send_or_cut(struct conn *c, uint32_t type, uint32_t tag, const void *body,
                        size_t body_len, const void *tail, size_t tail_len, const int *fd)
{
    if (c->cut)
        return false;
    if (msg_send(c->watch.fd,
                 &(struct msg_out){ type, .tag = tag, .body = body, .body_len = body_len,
                                    .tail = tail, .tail_len = tail_len, .fds = fd,
                                    .fd_count = fd ? 1 : 0 },
                 MSG_DONTWAIT, NULL) == 0)
        return true;
    conn_cut(c);
    return false;
}

bool conn_send(struct conn *c, uint32_t type, uint32_t tag, const void *body, size_t body_len)
{
    return send_or_cut(c, type, tag, body, body_len, NULL, 0, NULL);
}

bool conn_send_tail(struct conn *c, uint32_t type, uint32_t tag, const void *body, size_t body_len,
                    const void *tail, size_t tail_len)
{
    return send_or_cut(c, type, tag, body, body_len, tail, tail_len, NULL);
}

bool conn_send_fd(struct conn *c, uint32_t type, uint32_t tag, const void *body, size_t body_len,
                  int fd)
{
    return send_or_cut(c, type, tag, body, body_len, NULL, 0, &fd);
}

bool conn_send_page(struct conn *c, uint32_t type, uint32_t tag, const struct box_page *head,
                    const void *tail, size_t tail_len, int fd)
{
    return send_or_cut(c, type, tag, head, sizeof(*head), tail, tail_len, &fd);
}

void conn_send_error(struct conn *c, uint32_t tag, const struct cove_err *e)
{
    conn_send(c, MSG_ERROR, tag, e, sizeof(*e));
}

/* --------------------------------------------------------------- what connections wait for */

struct want *want_new(struct conn *c, struct proc *p, enum want_kind kind, uint32_t tag,
                      struct cove_err *e)
{
    struct want *w = c->want_count < MAX_WANTS ? calloc(1, sizeof(*w)) : NULL;

    if (!w) {
        cove_fail(e, COVE_LIMIT, "this connection waits for too much already");
        return NULL;
    }
    *w = (struct want){ .conn = c, .proc = p, .kind = kind, .tag = tag };
    TAILQ_INSERT_TAIL(&c->wants, w, by_conn);
    TAILQ_INSERT_TAIL(&p->wants, w, by_proc);
    c->want_count++;
    return w;
}

void want_free(struct want *w)
{
    TAILQ_REMOVE(&w->conn->wants, w, by_conn);
    TAILQ_REMOVE(&w->proc->wants, w, by_proc);
    assert(w->conn->want_count > 0);
    w->conn->want_count--;
    free(w);
}

/* --------------------------------------------------------------- reading requests */

int tail_strings(const struct msg *m, size_t body_size, const char **ret, size_t count)
{
    const char *at = (const char *)m->body + body_size;
    const char *end = (const char *)m->body + m->body_len;

    for (size_t i = 0; i < count; i++)
        if (!(ret[i] = msg_next_str(&at, end)))
            return CUT_OFF;
    return at == end ? 0 : CUT_OFF;
}
