/*
 * From one gate to the next. A gate whose keeper is gone goes on, as the sandboxes do. The next keeper
 * gives its gate a connection to the old one, over which the listening sockets move, so that no port is
 * ever closed. Connections stay with the old gate, which stops when the last one has ended.
 */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "helpers/gate/gate_private.h"

enum { TRIES = 50, TRY_MS = 20 }; /* the old gate may see its keeper's end a moment after us */

/* ------------------------------------------------------------------ the new gate, before it serves */

/* Reads one of the keeper's first messages. Returns the descriptor that came with it, or -1. */
static int hear_keeper(int keeper, uint32_t type)
{
    const struct msg_rule said[] = { { type, 0, 0, 0, 1 }, { 0 } };
    struct cove_err e;
    char buf[256];
    struct msg m;

    if (msg_recv(keeper, buf, sizeof(buf), said, 0, &m, &e) != 1 || m.fd_count == 0)
        return -1;
    return take_fd(&m.fds[0]);
}

/* Asks the old gate and waits. On success *ret_fd is the descriptor that came with the answer, or -1. */
static int ask(int before, uint32_t type, const void *body, size_t len, int *ret_fd)
{
    static const struct msg_rule answers[] = { { MSG_DONE, 0, 0, 0, 1 },
                                               { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
                                               { 0 } };
    struct cove_err e;
    char buf[1024];
    struct msg m;

    if (msg_send(before, &(struct msg_out){ type, .tag = 1, .body = body, .body_len = len }, 0,
                 NULL) < 0 ||
        msg_recv(before, buf, sizeof(buf), answers, 0, &m, &e) != 1 || m.head.type != MSG_DONE)
        return -1;
    *ret_fd = m.fd_count > 0 ? take_fd(&m.fds[0]) : -1;
    return 0;
}

static int succeed(int before)
{
    int none;

    for (int i = 0; i < TRIES; i++) {
        if (ask(before, GATE_SUCCEED, NULL, 0, &none) == 0)
            return 0;
        poll(NULL, 0, TRY_MS);
    }
    return -1;
}

void handover_begin(int keeper, int *ret_hosts, int *ret_before)
{
    const struct timeval patience = { .tv_sec = 2 };
    AUTO_CLOSE int before = -1;

    setsockopt(keeper, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    *ret_hosts = hear_keeper(keeper, GATE_HOSTS);
    before = hear_keeper(keeper, GATE_BEFORE);
    if (before >= 0)
        setsockopt(before, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    *ret_before = before >= 0 && succeed(before) == 0 ? take_fd(&before) : -1;
}

int handover_listener(int before, const struct binding *b)
{
    struct gate_listener want = { .slot = b->slot, .serial = b->rec.serial };
    int fd = -1;

    return before >= 0 && ask(before, GATE_LISTENER, &want, sizeof(want), &fd) == 0 ? fd : -1;
}

/* ------------------------------------------------------------------ the old gate */

static bool has_keeper(const struct gate *g)
{
    struct pollfd p = { .fd = g->keeper.fd, .events = POLLIN };

    return watch_is_on(&g->keeper) && poll(&p, 1, 0) == 0;
}

/* Safe: only a gate without a keeper steps back, and what it gives away is the right to listen. */
int on_succeed(struct gate *g, int sock, const struct msg *m, struct cove_err *e)
{
    if (has_keeper(g))
        return cove_fail(e, COVE_CONFLICT, "this gate has a keeper");
    g->superseded = true;
    watch_close(&g->control);
    watch_close(&g->hosts);
    log_event(LOG_LEVEL_INFO, "another gate takes over", LOG_N("connections", g->relay_count));
    return msg_send(sock, &(struct msg_out){ MSG_DONE, .tag = m->head.tag }, MSG_DONTWAIT, NULL);
}

int on_listener(struct gate *g, int sock, const struct msg *m, struct cove_err *e)
{
    struct gate_listener want;
    struct binding *b;
    int rc;

    memcpy(&want, m->body, sizeof(want));
    LIST_FOREACH(b, &g->bindings, link)
    if (b->slot == want.slot && b->rec.serial == want.serial)
        break;
    if (!g->superseded || !b || !watch_is_on(&b->watch))
        return cove_fail(e, COVE_NOT_FOUND, "no such listener");
    rc = msg_send(
        sock, &(struct msg_out){ MSG_DONE, .tag = m->head.tag, .fds = &b->watch.fd, .fd_count = 1 },
        MSG_DONTWAIT, NULL);
    watch_close(&b->watch);
    return rc;
}
