/* BOX_CONNECT: a socket to a port of the sandbox, made inside its network namespace. */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/text.h"
#include "init_private.h"

enum { CONNECT_MS = 5000 };

struct connecting { /* the listener's queue is full: the kernel tries again by itself */
    LIST_ENTRY(connecting) link;
    struct watch watch;
    struct conn *conn;
    uint32_t tag;
    uint16_t port;
    uint64_t deadline_ms;
};

static void hand_over(struct conn *c, uint32_t tag, int fd)
{
    fcntl(fd, F_SETFL, 0); /* O_NONBLOCK was for us */
    conn_send_fd(c, MSG_DONE, tag, NULL, 0, fd);
}

static void connecting_free(struct init *in, struct connecting *w)
{
    watch_stop(in, &w->watch);
    LIST_REMOVE(w, link);
    in->connect_count--;
    free(w);
}

static int fail_connect(struct cove_err *e, int errnum, uint16_t port)
{
    if (errnum == ETIMEDOUT)
        return cove_fail(e, COVE_TIMEOUT, "port %u does not answer", port);
    if (errnum == ECONNREFUSED)
        return cove_fail(e, COVE_NOT_FOUND, "nothing listens on port %u", port);
    errno = errnum;
    return cove_fail_errno(e, COVE_INVALID, "port %u", port);
}

static void finish(struct init *in, struct connecting *w, int errnum)
{
    struct cove_err e;

    if (errnum) {
        fail_connect(&e, errnum, w->port);
        conn_send_error(w->conn, w->tag, &e);
    } else {
        hand_over(w->conn, w->tag, w->watch.fd);
    }
    connecting_free(in, w);
}

static void connecting_ready(struct init *in, struct watch *watch, uint32_t events)
{
    int errnum = 0;
    socklen_t len = sizeof(errnum);

    (void)events;
    getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
    finish(in, container_of(watch, struct connecting, watch), errnum);
}

void ports_expire(struct init *in, uint64_t now_ms)
{
    struct connecting *w = LIST_FIRST(&in->connects);

    while (w) {
        struct connecting *next = LIST_NEXT(w, link);

        if (w->deadline_ms <= now_ms)
            finish(in, w, ETIMEDOUT);
        w = next;
    }
}

void ports_conn_closed(struct init *in, struct conn *c)
{
    struct connecting *w = LIST_FIRST(&in->connects);

    while (w) {
        struct connecting *next = LIST_NEXT(w, link);

        if (w->conn == c)
            connecting_free(in, w);
        w = next;
    }
}

static int wait_for(struct init *in, struct conn *c, uint32_t tag, uint16_t port, int *fd,
                    struct cove_err *e)
{
    struct connecting *w = in->connect_count < MAX_CONNECTS ? calloc(1, sizeof(*w)) : NULL;

    if (!w)
        return cove_fail(e, COVE_BUSY, "port %u: too many connections are waiting", port);
    if (watch_start(in, &w->watch, *fd, EPOLLOUT, connecting_ready, e) < 0) {
        free(w);
        return -1;
    }
    take_fd(fd);
    w->conn = c;
    w->tag = tag;
    w->port = port;
    w->deadline_ms = clock_boot_ms() + CONNECT_MS;
    LIST_INSERT_HEAD(&in->connects, w, link);
    in->connect_count++;
    return 0;
}

/* 0, or an errno. *ret_fd is open unless that is final. */
static int try_connect(const struct sockaddr *addr, socklen_t len, int *ret_fd)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return errno;
    *ret_fd = fd;
    return connect(fd, addr, len) < 0 ? errno : 0;
}

/* Safe: the sandbox's own loopback, and nothing else can be named. */
int on_connect(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_connect *args = m->body;
    struct sockaddr_in v4 = { .sin_family = AF_INET,
                              .sin_port = htons(args->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                               .sin6_port = htons(args->port),
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    AUTO_CLOSE int fd4 = -1, fd6 = -1;
    int *fd = &fd4, errnum;

    if (args->port == 0)
        return cove_fail(e, COVE_INVALID, "port 0");
    errnum = try_connect((struct sockaddr *)&v4, sizeof(v4), &fd4);
    if (errnum == ECONNREFUSED) { /* some listen on ::1 only */
        int second = try_connect((struct sockaddr *)&v6, sizeof(v6), &fd6);

        if (second == 0 || second == EINPROGRESS) {
            fd = &fd6;
            errnum = second;
        }
    }
    if (errnum == EINPROGRESS)
        return wait_for(in, c, m->head.tag, args->port, fd, e);
    if (errnum)
        return fail_connect(e, errnum, args->port);
    hand_over(c, m->head.tag, *fd);
    return 0;
}
