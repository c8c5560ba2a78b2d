/*
 * The caller's side of both protocols. A stub packs its arguments, asks, and checks the answer; the
 * two askers, keeper_ask() and box_ask(), own deadlines, tags and strays. Stubs for the keeper and
 * the gate are in keeper.c, for a sandbox's processes in procs.c, for its files and ports in
 * files.c.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/client/client_private.h"

void client_add_str(struct buf *tail, const char *s)
{
    buf_add(tail, s ? s : "", (s ? strlen(s) : 0) + 1);
}

/* Connect to a SEQPACKET socket below run_dir. */
int client_connect(const char *run_dir, const char *name, int *ret_sock, struct cove_err *e)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    struct timeval patience = { .tv_sec = BOX_ANSWER_MS / 1000 }; /* of connect() and send() */
    int size = MSG_MAX_BYTES;
    AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (sock < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "socket");
    if ((size_t)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", run_dir, name) >=
        sizeof(addr.sun_path))
        return cove_fail(e, COVE_INTERNAL, "%s/%s: path too long for a socket", run_dir, name);
    setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    while (connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        if (errno == EAGAIN) /* its queue of connections was full all the time */
            return client_unanswered(e);
        if (errno != EINTR)
            return cove_fail_errno(e, COVE_GONE, "%s", name);
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

int client_unanswered(struct cove_err *e)
{
    errno = ETIMEDOUT;
    return cove_fail_errno(e, COVE_GONE, "the sandbox does not answer");
}

bool box_is_unanswered(const struct cove_err *e)
{
    return e->code == COVE_GONE && e->errnum == ETIMEDOUT;
}

/* An answer that is MSG_ERROR becomes the caller's error. The text of a sandbox is bytes, not
 * truth. */
int client_raise(const struct msg *m, struct cove_err *e)
{
    struct cove_err remote;

    memcpy(&remote, m->body, sizeof(remote));
    cove_err_sanitize(&remote);
    if (box_is_unanswered(&remote))
        remote.errnum = 0; /* an answer that claims to be none */
    if (e)
        *e = remote;
    errno = remote.errnum;
    return -1;
}

/* ------------------------------------------------------------------ a sandbox: asking */

int box_open(const char *run_dir, const char *id, struct box_conn *ret, struct cove_err *e)
{
    char name[16 + COVE_ID_LEN];
    int sock;

    if (!text_is_id(id))
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox");
    snprintf(name, sizeof(name), "boxes/%s", id);
    if (client_connect(run_dir, name, &sock, e) < 0)
        return -1;
    *ret = (struct box_conn){ .sock = sock };
    return 0;
}

void box_close(struct box_conn *c)
{
    c->sock = cove_close(c->sock);
    free(c->buf);
    c->buf = NULL;
}

enum { ANY_TAIL = MSG_MAX_BYTES };

static const struct msg_rule box_answers[] = {
    { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
    { MSG_DONE, 0, 0, 0, 1 },
    { BOX_SPAWNED, sizeof(struct box_spawned), 0, 0, 1 },
    { BOX_EXITED, sizeof(struct box_exited), 0, 0, 0 },
    { BOX_PROC_LIST, sizeof(struct box_page), ANY_TAIL, 0, 0 },
    { BOX_LOG_OPENED, sizeof(struct box_log_opened), 0, 1, 1 },
    { BOX_LOG_TICK, sizeof(struct box_log_tick), 0, 0, 0 },
    { BOX_STATED, sizeof(struct box_stat), MSG_PATH_MAX, 0, 1 },
    { BOX_ENTRIES, sizeof(struct box_page), ANY_TAIL, 0, 0 },
    { BOX_WATCHED, sizeof(struct box_watched), 0, 0, 1 },
    { BOX_EXEC_DENIED, sizeof(struct box_proc_ref), 4096, 0, 0 },
    { 0 },
};

int box_receive(struct box_conn *c, int flags, struct msg *ret, struct cove_err *e)
{
    int rc;

    if (!c->buf && !(c->buf = malloc(MSG_MAX_BYTES)))
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    rc = msg_recv(c->sock, c->buf, MSG_MAX_BYTES, box_answers, flags, ret, e);
    if (rc == 0)
        return cove_fail(e, COVE_GONE, "the sandbox ended");
    if (rc < 0 && e && e->code == COVE_INVALID)
        e->code = COVE_GONE; /* whatever speaks there is not our init any more */
    return rc < 0 ? -1 : 0;
}

bool box_is_event(uint32_t type)
{
    return type == BOX_EXITED || type == BOX_LOG_TICK || type == BOX_EXEC_DENIED;
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

/* Send within the time: an init that reads nothing more has a full queue at some time. */
int box_tell(struct box_conn *c, uint32_t type, const void *body, size_t body_len,
             const struct buf *tail, const int *fds, size_t fd_count, struct cove_err *e)
{
    uint64_t until = deadline_of(c);
    struct cove_err err;

    if (tail && tail->overflow)
        return cove_fail(e, COVE_TOO_LARGE, "request is too large for one message");
    c->tag++;
    while (msg_send(c->sock, type, c->tag, body, body_len, tail ? tail->data : NULL,
                    tail ? tail->len : 0, fds, fd_count, MSG_DONTWAIT, &err) < 0) {
        if (err.code != COVE_BUSY) {
            if (e)
                *e = err;
            return -1;
        }
        if (!client_wait(c->sock, POLLOUT, until) || clock_boot_ms() >= until)
            return client_unanswered(e);
    }
    return 0;
}

/*
 * Send a request and wait for the answer of that tag. What comes in between is left over from
 * before: events nobody waits for any more, and answers to what was only told (a kill, a drain).
 */
int box_ask(struct box_conn *c, uint32_t type, const void *body, size_t body_len,
            const struct buf *tail, const int *fds, size_t fd_count, uint32_t want, struct msg *ret,
            struct cove_err *e)
{
    uint64_t until = deadline_of(c);

    if (box_tell(c, type, body, body_len, tail, fds, fd_count, e) < 0)
        return -1;
    while (clock_boot_ms() < until && /* a flood does not stop time */
           client_wait(c->sock, POLLIN, until)) {
        if (box_receive(c, 0, ret, e) < 0)
            return -1;
        if (ret->head.tag == c->tag && ret->head.type == want)
            return 0;
        msg_close_fds(ret);
        if (ret->head.tag == c->tag && ret->head.type == MSG_ERROR)
            return client_raise(ret, e);
        if (!box_is_event(ret->head.type) && ret->head.type != MSG_DONE &&
            ret->head.type != MSG_ERROR)
            return cove_fail(e, COVE_GONE, "the sandbox gave an answer nobody asked for");
    }
    return client_unanswered(e);
}

/* A request whose answer carries nothing. */
int box_do(struct box_conn *c, uint32_t type, const void *body, size_t body_len,
           const struct buf *tail, struct cove_err *e)
{
    struct msg m;

    if (box_ask(c, type, body, body_len, tail, NULL, 0, MSG_DONE, &m, e) < 0)
        return -1;
    msg_close_fds(&m);
    return 0;
}

/* ------------------------------------------------------------------ what answers carry */

/* An fd from a sandbox is only believed after a look at what it is. */
int client_take_fd(struct msg *m, mode_t kind, const char *what, int *ret_fd, struct cove_err *e)
{
    struct stat st;

    if (m->fd_count != 1 || fstat(m->fds[0], &st) < 0 || (st.st_mode & S_IFMT) != kind) {
        msg_close_fds(m);
        return cove_fail(e, COVE_GONE, "the sandbox did not hand out %s", what);
    }
    *ret_fd = take_fd(&m->fds[0]);
    m->fd_count = 0;
    return 0;
}

/* One entry of a page: its fixed part copied out, two strings after it. Returns its size, 0 if it
 * is not whole. */
size_t client_next_entry(const char *at, const char *end, void *fixed, size_t fixed_size,
                         const char **ret_a, const char **ret_b)
{
    const char *strings = at + fixed_size;
    uint32_t size;

    if ((size_t)(end - at) < fixed_size)
        return 0;
    memcpy(fixed, at, fixed_size);
    memcpy(&size, at, sizeof(size)); /* both entry kinds begin with their size */
    if (size < fixed_size || size > (size_t)(end - at))
        return 0;
    *ret_a = msg_next_str(&strings, at + size);
    *ret_b = *ret_a ? msg_next_str(&strings, at + size) : NULL;
    return *ret_b ? size : 0;
}

int client_bad_page(struct cove_err *e)
{
    return cove_fail(e, COVE_GONE, "the sandbox sent a listing that makes no sense");
}
