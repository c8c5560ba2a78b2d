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
#include "sandbox/init/init_private.h"

enum { CONNECT_MS = 5000 };

struct connecting { /* even on loopback the kernel answers a moment after connect() has returned */
    LIST_ENTRY(connecting) link;
    struct watch watch;
    struct conn *conn;
    uint32_t tag;
    uint16_t port;
    bool tried_v4;
    uint64_t deadline_ms;
};

static void connecting_free(struct init *in, struct connecting *w)
{
    watch_close(&w->watch);
    LIST_REMOVE(w, link);
    in->connect_count--;
    free(w);
}

static int start_connect(int family, uint16_t port)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                               .sin6_port = htons(port),
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    const struct sockaddr *addr = family == AF_INET ? (void *)&v4 : (void *)&v6;
    socklen_t len = family == AF_INET ? sizeof(v4) : sizeof(v6);
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, addr, len) < 0 && errno != EINPROGRESS)
        fd = cove_close(fd);
    return fd;
}

static void connecting_ready(struct watch *watch, uint32_t events);

/* Begin with one loopback address; false and errno when that failed at once. */
static bool attempt(struct init *in, struct connecting *w, int family)
{
    AUTO_CLOSE int fd = start_connect(family, w->port);

    if (fd < 0 || init_watch(in, &w->watch, fd, EPOLLOUT, connecting_ready, NULL) < 0)
        return false;
    take_fd(&fd);
    return true;
}

/* --------------------------------------------------------------- the outcome */

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
        fcntl(w->watch.fd, F_SETFL, 0); /* O_NONBLOCK was for us */
        conn_send_fd(w->conn, MSG_DONE, w->tag, NULL, 0, w->watch.fd);
    }
    connecting_free(in, w);
}

static void connecting_ready(struct watch *watch, uint32_t events)
{
    struct init *in = init_of(watch);
    struct connecting *w = container_of(watch, struct connecting, watch);
    int errnum = 0;
    socklen_t len = sizeof(errnum);

    (void)events;
    getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
    if (errnum == ECONNREFUSED && !w->tried_v4) { /* some listen on ::1 only */
        w->tried_v4 = true;
        watch_close(watch);
        if (attempt(in, w, AF_INET6))
            return;
    }
    finish(in, w, errnum);
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

/* Safe: the sandbox's own loopback, and nothing else can be named. */
int on_connect(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_connect *args = m->body;
    struct connecting *w;

    if (args->port == 0)
        return cove_fail(e, COVE_INVALID, "port 0");
    w = in->connect_count < MAX_CONNECTS ? calloc(1, sizeof(*w)) : NULL;
    if (!w)
        return cove_fail(e, COVE_BUSY, "port %u: too many connections are waiting", args->port);
    *w = (struct connecting){ .watch.fd = -1,
                              .conn = c,
                              .tag = m->head.tag,
                              .port = args->port,
                              .deadline_ms = clock_boot_ms() + CONNECT_MS };
    LIST_INSERT_HEAD(&in->connects, w, link);
    in->connect_count++;
    if (!attempt(in, w, AF_INET)) {
        int errnum = errno;

        connecting_free(in, w);
        return fail_connect(e, errnum, args->port);
    }
    return 0;
}
