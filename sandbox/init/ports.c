/* BOX_CONNECT: a socket to a port of the sandbox, made inside its network namespace. */
#include "config.h" /* _GNU_SOURCE */

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

enum { CONNECT_MS = 5000 };

struct connecting { /* a connect that waits, because the listening program's queue is full */
    LIST_ENTRY(connecting) link;
    struct watch watch;
    struct conn *conn;
    uint32_t tag;
    uint16_t port;
    uint64_t deadline_ms;
};

static void connecting_free(struct init *in, struct connecting *w)
{
    watch_close(&w->watch);
    LIST_REMOVE(w, link);
    assert(in->connect_count > 0);
    in->connect_count--;
    free(w);
}

/* A socket that is connected, or connecting; -1 and errno when that failed at once. On loopback the answer
 * is there when connect() returns, though it says EINPROGRESS; a second call tells. */
static int start_connect(int family, uint16_t port, bool *ret_connected)
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
    int rc = fd < 0 ? -1 : connect(fd, addr, len);

    if (rc < 0 && fd >= 0 && errno == EINPROGRESS)
        rc = connect(fd, addr, len);
    *ret_connected = rc == 0;
    return rc == 0 || (fd >= 0 && errno == EALREADY) ? fd : cove_close(fd);
}

static void connecting_ready(struct watch *watch, uint32_t events);

/* Some programs listen on ::1 only. */
static int start_either(uint16_t port, bool *ret_connected)
{
    int fd = start_connect(AF_INET, port, ret_connected);

    return fd < 0 && errno == ECONNREFUSED ? start_connect(AF_INET6, port, ret_connected) : fd;
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

static void send_socket(struct conn *c, uint32_t tag, int fd)
{
    fcntl(fd, F_SETFL, 0); /* O_NONBLOCK was for us */
    conn_send_fd(c, MSG_DONE, tag, NULL, 0, fd);
}

static void finish(struct init *in, struct connecting *w, int errnum)
{
    struct cove_err e;

    if (errnum) {
        fail_connect(&e, errnum, w->port);
        conn_send_error(w->conn, w->tag, &e);
    } else {
        send_socket(w->conn, w->tag, w->watch.fd);
    }
    connecting_free(in, w);
}

static void connecting_ready(struct watch *watch, uint32_t events)
{
    struct connecting *w = container_of(watch, struct connecting, watch);
    int errnum = 0;
    socklen_t len = sizeof(errnum);

    (void)events;
    getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
    finish(init_of(watch), w, errnum);
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

static int wait_connected(struct init *in, struct conn *c, uint32_t tag, uint16_t port, int fd,
                          struct cove_err *e)
{
    struct connecting *w = in->connect_count < MAX_CONNECTS ? calloc(1, sizeof(*w)) : NULL;

    if (!w)
        return cove_fail(e, COVE_BUSY, "port %u: too many connections are waiting", port);
    *w = (struct connecting){
        .conn = c, .tag = tag, .port = port, .deadline_ms = clock_boot_ms() + CONNECT_MS
    };
    if (init_watch(in, &w->watch, fd, EPOLLOUT, connecting_ready, e) < 0) {
        free(w);
        return -1;
    }
    LIST_INSERT_HEAD(&in->connects, w, link);
    in->connect_count++;
    return 0;
}

/* Safe: the sandbox's own loopback, and nothing else can be named. */
int on_connect(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_connect *args = m->body;
    AUTO_CLOSE int fd = -1;
    bool connected;

    if (args->port == 0)
        return cove_fail(e, COVE_INVALID, "port 0");
    fd = start_either(args->port, &connected);
    if (fd < 0)
        return fail_connect(e, errno, args->port);
    if (connected) {
        send_socket(c, m->head.tag, fd);
        return 0;
    }
    if (wait_connected(in, c, m->head.tag, args->port, fd, e) < 0)
        return -1;
    take_fd(&fd);
    return 0;
}
