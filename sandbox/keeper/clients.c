/*
 * Connections of workers' threads to <run_dir>/keeper.sock, and answers on them. calls.c has what can be asked.
 * The keeper never waits for a worker: one that does not read its answers loses its connection.
 */
#include <stdlib.h>
#include <sys/socket.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

enum { REFUSED_LOG_EVERY_MS = 1000 };

static void client_close(struct keeper *k, struct client *c)
{
    watch_close(&c->watch);
    waiters_forget_client(k, (uint32_t)(c - k->clients));
}

void keeper_answer_file(struct keeper *k, const struct waiter *w, uint32_t type, const void *body,
                        size_t len, int fd)
{
    struct client *c = &k->clients[w->client];
    struct cove_err err;

    if (!watch_is_on(&c->watch) || c->generation != w->client_generation)
        return;
    /* A worker that does not read its answers loses its connection. The keeper never waits for it. */
    if (msg_send(c->watch.fd,
                 &(struct msg_out){ type, .tag = w->tag, .body = body, .body_len = len, .fds = &fd,
                                    .fd_count = fd >= 0 },
                 MSG_DONTWAIT, &err) < 0)
        shutdown(c->watch.fd, SHUT_RDWR);
}

void keeper_answer(struct keeper *k, const struct waiter *w, uint32_t type, const void *body,
                   size_t len)
{
    keeper_answer_file(k, w, type, body, len, -1);
}

void keeper_answer_error(struct keeper *k, const struct waiter *w, const struct cove_err *err)
{
    keeper_answer(k, w, MSG_ERROR, err, sizeof(*err));
}

/* Writes at most one line a second, with the number of messages refused since the last line: a hostile
 * worker must not fill the disk with the log. */
static void log_refused(struct keeper *k, const struct cove_err *err)
{
    uint64_t now = clock_boot_ms();

    k->calls_refused++;
    if (now < k->calls_refused_log_ms)
        return;
    log_error("worker's message refused", err, LOG_N("count", k->calls_refused));
    k->calls_refused = 0;
    k->calls_refused_log_ms = now + REFUSED_LOG_EVERY_MS;
}

static void on_request(struct watch *watch, uint32_t events)
{
    struct keeper *k = container_of(watch->loop, struct keeper, loop);
    struct client *c = container_of(watch, struct client, watch);
    struct waiter w = { .client = (uint32_t)(c - k->clients), .client_generation = c->generation };
    struct cove_err err = { 0 };

    (void)events;
    if (calls_take(k, watch->fd, &w, &err) == 0 || err.code == COVE_BUSY)
        return;
    if (err.code)
        log_refused(k, &err);
    client_close(k, c);
}

/* A free place for a connection. NULL: all places are taken, or half of them by this process: a hostile
 * worker must leave room for the others. */
static struct client *free_client(struct keeper *k, pid_t pid)
{
    struct client *found = NULL;
    unsigned own = 0;

    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &k->clients[i];

        if (watch_is_on(&c->watch))
            own += c->pid == pid;
        else if (!found)
            found = c;
    }
    return own < CLIENTS_MAX / 2 ? found : NULL;
}

static void on_connection(struct watch *w, uint32_t events)
{
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    AUTO_CLOSE int sock = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    pid_t pid = sock < 0 ? 0 : msg_peer(sock);
    struct client *c = sock < 0 ? NULL : free_client(k, pid);

    (void)events;
    if (!c || watch_start(&k->loop, &c->watch, sock, EPOLLIN, on_request) < 0)
        return;
    take_fd(&sock);
    c->generation++;
    c->pid = pid;
}

int clients_listen(struct keeper *k, int sock, struct cove_err *e)
{
    k->clients = calloc(CLIENTS_MAX, sizeof(*k->clients));
    if (!k->clients)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    if (watch_start(&k->loop, &k->listen, sock, EPOLLIN, on_connection) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "keeper.sock");
    return 0;
}
