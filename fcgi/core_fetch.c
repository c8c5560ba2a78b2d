#include "fcgi/core_fetch.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"

enum { GRACE_MS = 5000 }; /* cove-fetch ends a fetch by itself at fetch_timeout */

static int fail_unreachable(struct cove_err *e)
{
    return cove_fail(e, COVE_BUSY, "files cannot be fetched at the moment, try again in a second");
}

static int send_ask(int sock, const struct core_fetch *args, struct cove_err *e)
{
    struct fetch_ask ask = {
        .verb = (uint32_t)args->verb,
        .most = args->most,
        .size = args->size,
    };

    if (strlen(args->url) >= FETCH_URL_MAX)
        return cove_fail(e, COVE_INVALID, "url: longer than %d bytes", FETCH_URL_MAX - 1);
    text_copy(ask.tenant, sizeof(ask.tenant), args->tenant);
    msg_prepare_socket(sock);
    if (msg_send(sock,
                 &(struct msg_out){ FETCH_ASK, MSG_BODY(ask), .tail = args->url,
                                    .tail_len = strlen(args->url) + 1, .fds = &args->fd,
                                    .fd_count = 1 },
                 MSG_DONTWAIT, NULL) < 0)
        return fail_unreachable(e);
    return 0;
}

static int take_answer(int sock, struct fetch_done *ret, struct cove_err *e)
{
    static const struct msg_rule rules[] = { { FETCH_DONE, sizeof(struct fetch_done), 0, 0, 0 },
                                             { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
                                             { 0 } };
    char buf[1024];
    struct msg m;

    if (msg_recv(sock, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, NULL) != 1)
        /* cove-fetch died while it worked on this, or has no room for one more */
        return fail_unreachable(e);
    if (m.head.type == MSG_ERROR)
        return msg_raise(&m, e);
    memcpy(ret, m.body, sizeof(*ret));
    return 0;
}

/* Waits until cove-fetch answers, the client leaves, or the time is over. */
static int await(struct core *c, int sock, int client_fd, struct cove_err *e)
{
    uint64_t until = clock_boot_ms() + c->config->fetch_timeout_ms + GRACE_MS, now;
    struct pollfd p[] = { { .fd = sock, .events = POLLIN },
                          { .fd = client_fd, .events = POLLRDHUP } };

    while ((now = clock_boot_ms()) < until) {
        if (run_poll(p, ARRAY_SIZE(p), (int)(until - now)) <= 0)
            continue;
        if (p[0].revents)
            return 0;
        if (p[1].revents)
            return cove_fail(e, COVE_GONE, "the client has left");
    }
    return cove_fail(e, COVE_TIMEOUT, "url: the fetch took too long");
}

int core_fetch(struct core *c, const struct core_fetch *args, struct fetch_done *ret,
               struct cove_err *e)
{
    AUTO_CLOSE int sock = -1;
    char path[160];

    snprintf(path, sizeof(path), "%s/fetch.sock", c->config->run_dir);
    sock = unix_connect(path, SOCK_SEQPACKET | SOCK_NONBLOCK);
    if (sock < 0)
        return fail_unreachable(e);
    if (send_ask(sock, args, e) < 0 || await(c, sock, args->client_fd, e) < 0)
        return -1;
    return take_answer(sock, ret, e);
}
