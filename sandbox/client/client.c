/*
 * The blocking transport of both protocols. A stub makes a request (wire.c), sends it, waits, and takes the
 * answer apart. box_ask() here and ask_until_answered() in keeper.c own deadlines, tags and messages that
 * nobody waits for. Stubs are in keeper.c for the keeper, in gate.c for the gate, in procs.c for a sandbox's
 * processes, in files.c for its files and ports.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/client/client_private.h"

/* Connects a SEQPACKET socket to `name` below run_dir. The time for sending that is set on the socket bounds
 * the wait. */
static int connect_socket(int sock, const char *run_dir, const char *name, struct cove_err *e)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };

    if (sock < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "socket");
    if ((size_t)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", run_dir, name) >=
        sizeof(addr.sun_path))
        return cove_fail(e, COVE_INTERNAL, "%s/%s: path too long for a socket", run_dir, name);
    msg_prepare_socket(sock);
    while (connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        if (errno != EINTR)
            return cove_fail_errno(e, COVE_GONE, "%s", name);
    return 0;
}

int client_connect(const char *run_dir, const char *name, int *ret_sock, struct cove_err *e)
{
    struct timeval patience = { .tv_sec = BOX_ANSWER_MS / 1000 }; /* for connect() and send() */
    AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect_socket(sock, run_dir, name, e) < 0) {
        if (e && e->errnum == EAGAIN) /* init's queue of connections was full all that time */
            e->errnum = ETIMEDOUT;
        return -1;
    }
    *ret_sock = take_fd(&sock);
    return 0;
}

int client_wait(int sock, short events, uint64_t until_ms)
{
    for (;;) {
        struct pollfd p = { .fd = sock, .events = events };
        uint64_t now = clock_boot_ms();
        int n = poll(&p, 1, now >= until_ms ? 0 : (int)(until_ms - now));

        if (n > 0)
            return 1;
        if (n == 0 && now >= until_ms)
            return 0;
    }
}

/* Fails with COVE_GONE, marked so that box_is_unanswered() recognizes it. */
static int client_unanswered(struct cove_err *e)
{
    errno = ETIMEDOUT;
    return cove_fail_errno(e, COVE_GONE, "the sandbox does not answer");
}

bool box_is_unanswered(const struct cove_err *e)
{
    return e->code == COVE_GONE && e->errnum == ETIMEDOUT;
}

/* An answer that is MSG_ERROR becomes the caller's error. A sandbox may send any bytes as its text. */
int client_raise(const struct msg *m, struct cove_err *e)
{
    struct cove_err remote;

    msg_raise(m, &remote);
    if (box_is_unanswered(&remote))
        remote.errnum = 0; /* this mark is only for requests without an answer */
    if (e)
        *e = remote;
    errno = remote.errnum;
    return -1;
}

/* ------------------------------------------------------------------ a sandbox: asking */

static int socket_name(const char *id, char out[16 + COVE_ID_LEN], struct cove_err *e)
{
    if (!text_is_id(id))
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox");
    snprintf(out, 16 + COVE_ID_LEN, "boxes/%s", id);
    return 0;
}

int box_connect_now(const char *run_dir, const char *id, int *ret_sock, struct cove_err *e)
{
    AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char name[16 + COVE_ID_LEN];

    if (socket_name(id, name, e) < 0)
        return -1;
    if (connect_socket(sock, run_dir, name, e) < 0) {
        if (e && e->errnum == EAGAIN)
            e->code = COVE_BUSY;
        return -1;
    }
    *ret_sock = take_fd(&sock);
    return 0;
}

int box_open(const char *run_dir, const char *id, struct box_conn *ret, struct cove_err *e)
{
    char name[16 + COVE_ID_LEN];
    int sock;

    if (socket_name(id, name, e) < 0 || client_connect(run_dir, name, &sock, e) < 0)
        return -1;
    *ret = (struct box_conn){ .sock = sock };
    return 0;
}

bool box_has_ended(const struct box_conn *c)
{
    struct pollfd p = { .fd = c->sock };

    return poll(&p, 1, 0) > 0; /* poll() tells of an end without being asked for it */
}

bool box_is_settled(const struct box_conn *c)
{
    return c->sock >= 0 && !c->unanswered && c->tag == c->settled;
}

void box_close(struct box_conn *c)
{
    c->sock = cove_close(c->sock);
    free(c->buf);
    c->buf = NULL;
}

/* Receives the next message. poll() has said that there is one. */
int box_receive(struct box_conn *c, struct msg *ret, struct cove_err *e)
{
    if (!c->buf && !(c->buf = malloc(MSG_MAX_BYTES)))
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    return box_answer_receive(c->sock, c->buf, MSG_MAX_BYTES, ret, e);
}

static uint64_t deadline_of(const struct box_conn *c)
{
    return c->until_ms ? c->until_ms : clock_boot_ms() + BOX_ANSWER_MS;
}

uint64_t client_listing_starts(struct box_conn *c)
{
    uint64_t before = c->until_ms;

    c->until_ms = deadline_of(c);
    return before;
}

/* Sends within the time: if init reads no more, its queue is full at some point, and sending would wait. */
int box_tell(struct box_conn *c, const struct box_request *r, struct cove_err *e)
{
    uint64_t until = deadline_of(c);
    struct cove_err err;

    c->tag++;
    while (box_request_send(r, c->sock, c->tag, &err) < 0) {
        if (err.code != COVE_BUSY) {
            if (e)
                *e = err;
            return -1;
        }
        if (!client_wait(c->sock, POLLOUT, until) || clock_boot_ms() >= until) {
            c->unanswered = true;
            return client_unanswered(e);
        }
    }
    return 0;
}

/*
 * Sends a request and waits for its answer. Other messages that arrive meanwhile are left over from before and
 * are dropped: events that nobody waits for any more, and answers to requests that were sent without waiting (a
 * kill, a drain).
 */
int box_ask(struct box_conn *c, const struct box_request *r, struct msg *ret, struct cove_err *e)
{
    uint64_t until = deadline_of(c);

    if (box_tell(c, r, e) < 0)
        return -1;
    while (clock_boot_ms() < until && /* a flood of messages does not extend the deadline */
           client_wait(c->sock, POLLIN, until)) {
        int rc = box_receive(c, ret, e);

        if (rc == 0)
            rc = box_answer_check(r, c->tag, ret, e);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    c->unanswered = true;
    return client_unanswered(e);
}

int box_do(struct box_conn *c, const struct box_request *r, struct cove_err *e)
{
    struct msg m;

    if (box_ask(c, r, &m, e) < 0)
        return -1;
    msg_close_fds(&m);
    return 0;
}

/* Takes one message, if one comes within the time. 1: it answers the request; 2: it is the sign of life that
 * was asked for last; 0: neither; -1: the request has failed. */
static int take_message(struct box_conn *c, const struct box_request *r, uint32_t tag,
                        uint64_t until_ms, struct cove_err *e)
{
    struct msg m;
    int rc;

    if (!client_wait(c->sock, POLLIN, until_ms))
        return 0;
    if (box_receive(c, &m, e) < 0)
        return -1;
    rc = box_answer_check(r, tag, &m, e);
    if (rc > 0)
        msg_close_fds(&m);
    return rc == 0 && m.head.type == MSG_DONE && m.head.tag == c->tag ? 2 : rc;
}

/* Asks init for a sign of life whenever it has given the last one. Other messages do not count as one, so a
 * flood of them does not extend the wait. */
int box_do_patiently(struct box_conn *c, const struct box_request *r,
                     const struct box_patience *patience, struct cove_err *e)
{
    const struct box_request ping = box_request(BOX_PING, MSG_DONE, NULL, 0);
    uint64_t answer_ms = patience->answer_ms ? patience->answer_ms : BOX_ANSWER_MS;
    uint64_t now = clock_boot_ms(), heard = now;
    bool pinged = false;
    uint32_t tag;
    int rc;

    if (box_tell(c, r, e) < 0)
        return -1;
    for (tag = c->tag; now < patience->until_ms; now = clock_boot_ms()) {
        if (now - heard >= answer_ms) {
            c->unanswered = true;
            return client_unanswered(e);
        }
        if (patience->wanted && !patience->wanted(patience->arg))
            return cove_fail(e, COVE_GONE, "the client has left");
        rc = take_message(c, r, tag, now + answer_ms / 10, e);
        if (rc < 0 || rc == 1)
            return rc < 0 ? -1 : 0;
        if (rc == 2) {
            heard = clock_boot_ms();
            pinged = false;
        } else if (!pinged) {
            if (box_tell(c, &ping, e) < 0)
                return -1;
            pinged = true;
        }
    }
    return cove_fail(e, COVE_TIMEOUT,
                     "this takes longer than a request may wait; it goes on in the sandbox");
}

int client_bad_page(struct cove_err *e)
{
    return cove_fail(e, COVE_GONE, "the sandbox sent a listing that cannot be read");
}
