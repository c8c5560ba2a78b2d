/*
 * The caller's side of both protocols. A stub packs its arguments, asks, and checks the answer; the
 * two askers, keeper_ask() and box_ask(), own deadlines, tags and strays.
 */
#include "cove/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/text.h"

enum { KEEPER_ANSWER_MS = 30000, KEEPER_RETRY_MS = 5000, AUDIT_COMMAND_BYTES = 4096 };

static void add_str(struct buf *tail, const char *s)
{
    buf_add(tail, s ? s : "", (s ? strlen(s) : 0) + 1);
}

/* Connect to a SEQPACKET socket below run_dir. */
static int connect_to(const char *run_dir, const char *name, int *ret_sock, struct cove_err *e)
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
    while (connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        if (errno != EINTR)
            return cove_fail_errno(e, COVE_GONE, "%s", name);
    *ret_sock = take_fd(&sock);
    return 0;
}

/* 1: readable (or closed), 0: not within the time. */
static int wait_readable(int sock, uint64_t until_ms)
{
    for (;;) {
        struct pollfd p = { .fd = sock, .events = POLLIN };
        uint64_t now = clock_boot_ms();
        int n = poll(&p, 1, now >= until_ms ? 0 : (int)(until_ms - now));

        if (n > 0)
            return 1;
        if (n == 0 && now >= until_ms)
            return 0;
    }
}

/* An answer that is MSG_ERROR becomes the caller's error. The text of a sandbox is bytes, not
 * truth. */
static int raise_remote(const struct msg *m, struct cove_err *e)
{
    struct cove_err remote;

    memcpy(&remote, m->body, sizeof(remote));
    cove_err_sanitize(&remote);
    if (e)
        *e = remote;
    errno = remote.errnum;
    return -1;
}

/* ------------------------------------------------------------------ the keeper */

void keeper_link_done(struct keeper_link *k)
{
    k->sock = cove_close(k->sock);
}

static const struct msg_rule keeper_answers[] = {
    { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
    { MSG_DONE, 0, 0, 0, 0 },
    { KEEPER_BOX, sizeof(struct keeper_box), 0, 0, 0 },
    { 0 },
};

static int keeper_try(struct keeper_link *k, uint32_t type, const void *body, size_t len,
                      uint32_t want, void *ret, size_t ret_size, struct cove_err *e)
{
    char buf[1024];
    struct msg m;
    int rc;

    if (k->sock < 0 && connect_to(k->run_dir, "keeper.sock", &k->sock, e) < 0)
        return -1;
    if (msg_send(k->sock, type, ++k->tag, body, len, NULL, 0, NULL, 0, MSG_NOSIGNAL, e) < 0)
        return -1;
    if (!wait_readable(k->sock, clock_boot_ms() + KEEPER_ANSWER_MS))
        return cove_fail(e, COVE_BUSY, "the keeper does not answer");
    rc = msg_recv(k->sock, buf, sizeof(buf), keeper_answers, 0, &m, e);
    if (rc == 0)
        return cove_fail(e, COVE_GONE, "the keeper closed the connection");
    if (rc < 0)
        return -1;
    if (m.head.type == MSG_ERROR) {
        raise_remote(&m, e);
        return 1; /* an answer all the same: the link is fine */
    }
    if (m.head.type != want || m.head.tag != k->tag)
        return cove_fail(e, COVE_INTERNAL, "the keeper gave an answer of another kind");
    if (ret)
        memcpy(ret, m.body, ret_size);
    return 0;
}

/*
 * Ask, and while the keeper is being restarted ask again. All that a worker asks may be asked
 * twice: a claim finds the box of the first time, a retirement finds none.
 */
static int keeper_ask(struct keeper_link *k, uint32_t type, const void *body, size_t len,
                      uint32_t want, void *ret, size_t ret_size, struct cove_err *e)
{
    uint64_t until = clock_boot_ms() + KEEPER_RETRY_MS;
    struct cove_err err = { 0 };

    for (;;) {
        int rc = keeper_try(k, type, body, len, want, ret, ret_size, &err);

        if (rc == 0)
            return 0;
        if (rc < 0)
            keeper_link_done(k);
        if (rc > 0 || err.code != COVE_GONE || clock_boot_ms() >= until)
            break;
        poll(NULL, 0, 50);
    }
    if (err.code == COVE_GONE)
        err.code = COVE_BUSY; /* "gone" is for sandboxes; the keeper comes back */
    if (e)
        *e = err;
    return -1;
}

int keeper_claim(struct keeper_link *k, const struct keeper_claim *args, struct keeper_box *ret,
                 struct cove_err *e)
{
    struct keeper_box box;

    if (keeper_ask(k, KEEPER_CLAIM, args, sizeof(*args), KEEPER_BOX, &box, sizeof(box), e) < 0)
        return -1;
    box.id[sizeof(box.id) - 1] = '\0';
    *ret = box;
    return 0;
}

int keeper_retire(struct keeper_link *k, const struct keeper_retire *args, struct cove_err *e)
{
    return keeper_ask(k, KEEPER_RETIRE, args, sizeof(*args), MSG_DONE, NULL, 0, e);
}

int keeper_extend(struct keeper_link *k, const struct keeper_extend *args, struct cove_err *e)
{
    return keeper_ask(k, KEEPER_EXTEND, args, sizeof(*args), MSG_DONE, NULL, 0, e);
}

int keeper_network(struct keeper_link *k, const struct keeper_network *args, struct cove_err *e)
{
    return keeper_ask(k, KEEPER_NETWORK, args, sizeof(*args), MSG_DONE, NULL, 0, e);
}

int keeper_freeze(struct keeper_link *k, const struct keeper_which *args, struct cove_err *e)
{
    return keeper_ask(k, KEEPER_FREEZE, args, sizeof(*args), MSG_DONE, NULL, 0, e);
}

int keeper_thaw(struct keeper_link *k, const struct keeper_which *args, struct cove_err *e)
{
    return keeper_ask(k, KEEPER_THAW, args, sizeof(*args), MSG_DONE, NULL, 0, e);
}

int keeper_audit(struct keeper_link *k, const struct keeper_audit_entry *entry, struct cove_err *e)
{
    const char *const fields[] = { entry->event,   entry->dialect, entry->tenant, entry->key,
                                   entry->project, entry->sandbox, entry->rule,   entry->form };
    const char *command = entry->command ? entry->command : "";
    struct buf tail;
    int rc;

    buf_init(&tail, 8192);
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        add_str(&tail, fields[i]);
    buf_add(&tail, command, strnlen(command, AUDIT_COMMAND_BYTES));
    buf_add(&tail, "", 1);
    rc = keeper_ask(k, KEEPER_AUDIT, tail.data, tail.len, MSG_DONE, NULL, 0, e);
    buf_done(&tail);
    return rc;
}

/* ------------------------------------------------------------------ the gate */

static const struct msg_rule gate_answers[] = {
    { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
    { MSG_DONE, 0, 0, 0, 0 },
    { GATE_BOUND, sizeof(struct gate_bound), 0, 0, 0 },
    { 0 },
};

/* One connection per question: they are rare. */
static int gate_ask(const char *run_dir, uint32_t type, const void *body, size_t len, uint32_t want,
                    void *ret, size_t ret_size, struct cove_err *e)
{
    AUTO_CLOSE int sock = -1;
    char buf[1024];
    struct msg m;
    int rc;

    if (connect_to(run_dir, "gate.sock", &sock, e) < 0 ||
        msg_send(sock, type, 1, body, len, NULL, 0, NULL, 0, MSG_NOSIGNAL, e) < 0)
        return -1;
    if (!wait_readable(sock, clock_boot_ms() + BOX_ANSWER_MS))
        return cove_fail(e, COVE_BUSY, "the gate does not answer");
    rc = msg_recv(sock, buf, sizeof(buf), gate_answers, 0, &m, e);
    if (rc == 0)
        return cove_fail(e, COVE_BUSY, "the gate closed the connection");
    if (rc < 0)
        return -1;
    if (m.head.type == MSG_ERROR)
        return raise_remote(&m, e);
    if (m.head.type != want)
        return cove_fail(e, COVE_INTERNAL, "the gate gave an answer of another kind");
    if (ret)
        memcpy(ret, m.body, ret_size);
    return 0;
}

int gate_bind(const char *run_dir, const struct gate_bind *args, uint16_t *ret_proxy_port,
              struct cove_err *e)
{
    struct gate_bound bound;

    if (gate_ask(run_dir, GATE_BIND, args, sizeof(*args), GATE_BOUND, &bound, sizeof(bound), e) < 0)
        return -1;
    *ret_proxy_port = bound.proxy_port;
    return 0;
}

int gate_unbind(const char *run_dir, const struct gate_unbind *args, struct cove_err *e)
{
    return gate_ask(run_dir, GATE_UNBIND, args, sizeof(*args), MSG_DONE, NULL, 0, e);
}

/* ------------------------------------------------------------------ a sandbox: asking */

int box_open(const char *run_dir, const char *id, struct box_conn *ret, struct cove_err *e)
{
    char name[16 + COVE_ID_LEN];
    int sock;

    if (!text_is_id(id))
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox");
    snprintf(name, sizeof(name), "boxes/%s", id);
    if (connect_to(run_dir, name, &sock, e) < 0)
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

static int box_receive(struct box_conn *c, int flags, struct msg *ret, struct cove_err *e)
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

static bool is_event(uint32_t type)
{
    return type == BOX_EXITED || type == BOX_LOG_TICK || type == BOX_EXEC_DENIED;
}

/*
 * Send a request and wait for the answer of that tag. What comes in between is left over from
 * before: events nobody waits for any more, and answers to what was only told (a kill, a drain).
 */
static int box_ask(struct box_conn *c, uint32_t type, const void *body, size_t body_len,
                   const struct buf *tail, const int *fds, size_t fd_count, uint32_t want,
                   struct msg *ret, struct cove_err *e)
{
    uint64_t until = clock_boot_ms() + BOX_ANSWER_MS;
    uint32_t tag = ++c->tag;

    if (tail && tail->overflow)
        return cove_fail(e, COVE_TOO_LARGE, "request is too large for one message");
    if (msg_send(c->sock, type, tag, body, body_len, tail ? tail->data : NULL, tail ? tail->len : 0,
                 fds, fd_count, MSG_NOSIGNAL, e) < 0)
        return -1;
    while (clock_boot_ms() < until &&
           wait_readable(c->sock, until)) { /* a flood does not stop time */
        if (box_receive(c, 0, ret, e) < 0)
            return -1;
        if (ret->head.tag == tag && ret->head.type == want)
            return 0;
        msg_close_fds(ret);
        if (ret->head.tag == tag && ret->head.type == MSG_ERROR)
            return raise_remote(ret, e);
        if (!is_event(ret->head.type) && ret->head.type != MSG_DONE && ret->head.type != MSG_ERROR)
            return cove_fail(e, COVE_GONE, "the sandbox gave an answer nobody asked for");
    }
    return cove_fail(e, COVE_GONE, "the sandbox does not answer");
}

/* A request whose answer carries nothing. */
static int box_do(struct box_conn *c, uint32_t type, const void *body, size_t body_len,
                  const struct buf *tail, struct cove_err *e)
{
    struct msg m;

    if (box_ask(c, type, body, body_len, tail, NULL, 0, MSG_DONE, &m, e) < 0)
        return -1;
    msg_close_fds(&m);
    return 0;
}

/* ------------------------------------------------------------------ processes */

static void pack_spawn(const struct spawn_args *a, struct box_spawn *body, struct buf *tail)
{
    *body = (struct box_spawn){
        .flags = a->flags,
        .rows = a->rows,
        .cols = a->cols,
        .context = a->context,
        .log_bytes = a->log_bytes,
        .max_open_files = a->max_open_files,
        .max_file_bytes = a->max_file_bytes,
    };
    add_str(tail, a->user ? a->user : "root");
    add_str(tail, a->cwd);
    add_str(tail, a->label);
    for (; a->argv[body->argc]; body->argc++)
        add_str(tail, a->argv[body->argc]);
    for (; a->env && a->env[body->envc]; body->envc++)
        add_str(tail, a->env[body->envc]);
}

static size_t pack_spawn_fds(const struct spawn_args *a, uint32_t *flags, int fds[4])
{
    const int given[] = { a->stdin_fd, a->stdout_fd, a->stderr_fd, a->filter_fd };
    const uint32_t bits[] = { SPAWN_FD_STDIN, SPAWN_FD_STDOUT, SPAWN_FD_STDERR, SPAWN_FD_FILTER };
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
        if (given[i] < 0)
            continue;
        fds[n++] = given[i];
        *flags |= bits[i];
    }
    return n;
}

int box_spawn(struct box_conn *c, const struct spawn_args *args, struct box_spawned *ret,
              int *ret_pty, struct cove_err *e)
{
    struct box_spawn body;
    struct buf tail;
    struct msg m;
    int fds[4], rc;
    size_t fd_count;

    buf_init(&tail, MSG_MAX_BYTES - sizeof(struct msg_head) - sizeof(body));
    pack_spawn(args, &body, &tail);
    fd_count = pack_spawn_fds(args, &body.flags, fds);
    rc = box_ask(c, BOX_SPAWN, &body, sizeof(body), &tail, fds, fd_count, BOX_SPAWNED, &m, e);
    buf_done(&tail);
    if (rc < 0)
        return -1;
    memcpy(ret, m.body, sizeof(*ret));
    if (ret_pty)
        *ret_pty = -1;
    if (m.fd_count == 1 && ret_pty && isatty(m.fds[0]))
        *ret_pty = take_fd(&m.fds[0]);
    msg_close_fds(&m);
    return 0;
}

int box_signal(struct box_conn *c, const struct box_signal *args, const char *label,
               struct cove_err *e)
{
    struct buf tail;

    buf_init(&tail, MSG_PATH_MAX);
    add_str(&tail, label);
    if (msg_send(c->sock, BOX_SIGNAL, ++c->tag, args, sizeof(*args), tail.data, tail.len, NULL, 0,
                 MSG_NOSIGNAL, e) < 0) {
        buf_done(&tail);
        return -1;
    }
    buf_done(&tail);
    return 0;
}

/* Cut to what is valid text: it goes into a reply. */
static void copy_text(char *dst, size_t dst_size, const char *src, size_t len)
{
    size_t n = 0;

    while (n < len && src[n] && n + 4 < dst_size) {
        size_t seq = text_utf8_seq(src + n, len - n);

        if (seq == 0)
            break;
        memcpy(dst + n, src + n, seq);
        n += seq;
    }
    dst[n] = '\0';
}

static int fill_event(const struct msg *m, struct box_event *ret)
{
    const char *tail;

    switch (m->head.type) {
    case BOX_EXITED:
        ret->kind = BOX_EVENT_EXITED;
        memcpy(&ret->exited, m->body, sizeof(ret->exited));
        end_sanitize(&ret->exited.end);
        return 1;
    case BOX_LOG_TICK:
        ret->kind = BOX_EVENT_TICK;
        memcpy(&ret->tick, m->body, sizeof(ret->tick));
        return 1;
    case BOX_EXEC_DENIED:
        ret->kind = BOX_EVENT_DENIED;
        tail = (const char *)m->body + sizeof(struct box_proc_ref);
        copy_text(ret->text, sizeof(ret->text), tail, m->body_len - sizeof(struct box_proc_ref));
        return 1;
    }
    return 0; /* the answer to a request that was only told */
}

int box_next_event(struct box_conn *c, int timeout_ms, struct box_event *ret, struct cove_err *e)
{
    uint64_t until = clock_boot_ms() + (timeout_ms > 0 ? (uint64_t)timeout_ms : 0);

    do { /* at least one look, and a flood of what is no event does not stop time */
        struct msg m;

        if (!wait_readable(c->sock, until))
            return 0;
        if (box_receive(c, 0, &m, e) < 0)
            return -1;
        msg_close_fds(&m);
        if (fill_event(&m, ret))
            return 1;
    } while (clock_boot_ms() < until);
    return 0;
}

/* Told, not asked: nobody waits for this, and what is in the queue is read even after we hang up.
 */
int box_drain(struct box_conn *c, const int *fds, size_t fd_count, struct cove_err *e)
{
    return msg_send(c->sock, BOX_DRAIN, ++c->tag, NULL, 0, NULL, 0, fds, fd_count, MSG_DONTWAIT, e);
}

static int ask_proc(struct box_conn *c, uint32_t type, uint32_t proc, const char *label,
                    uint32_t want, struct msg *ret, struct cove_err *e)
{
    struct box_proc_ref body = { .proc = proc };
    struct buf tail;
    int rc;

    buf_init(&tail, MSG_PATH_MAX);
    add_str(&tail, label);
    rc = box_ask(c, type, &body, sizeof(body), &tail, NULL, 0, want, ret, e);
    buf_done(&tail);
    return rc;
}

int box_wait(struct box_conn *c, uint32_t proc, const char *label, struct cove_err *e)
{
    struct box_proc_ref body = { .proc = proc };
    struct buf tail;
    int rc;

    buf_init(&tail, MSG_PATH_MAX);
    add_str(&tail, label);
    rc = msg_send(c->sock, BOX_WAIT, ++c->tag, &body, sizeof(body), tail.data, tail.len, NULL, 0,
                  MSG_NOSIGNAL, e);
    buf_done(&tail);
    return rc;
}

int box_forget(struct box_conn *c, uint32_t proc, const char *label, struct cove_err *e)
{
    struct msg m;

    if (ask_proc(c, BOX_FORGET, proc, label, MSG_DONE, &m, e) < 0)
        return -1;
    msg_close_fds(&m);
    return 0;
}

/* An fd from a sandbox is only believed after a look at what it is. */
static int take_checked(struct msg *m, mode_t kind, const char *what, int *ret_fd,
                        struct cove_err *e)
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

int box_stdin(struct box_conn *c, uint32_t proc, const char *label, bool close_it, int *ret_fd,
              struct cove_err *e)
{
    struct box_stdin body = { .proc = proc, .close = close_it };
    struct buf tail;
    struct msg m;
    struct stat st;
    int rc;

    buf_init(&tail, MSG_PATH_MAX);
    add_str(&tail, label);
    rc = box_ask(c, BOX_STDIN, &body, sizeof(body), &tail, NULL, 0, MSG_DONE, &m, e);
    buf_done(&tail);
    if (rc < 0)
        return -1;
    if (close_it) {
        msg_close_fds(&m);
        return 0;
    }
    if (m.fd_count == 1 && fstat(m.fds[0], &st) == 0 && S_ISCHR(st.st_mode) && isatty(m.fds[0])) {
        *ret_fd = take_fd(&m.fds[0]);
        return 0;
    }
    return take_checked(&m, S_IFIFO, "a pipe or terminal", ret_fd, e);
}

int box_resize(struct box_conn *c, uint32_t proc, const char *label, uint16_t rows, uint16_t cols,
               struct cove_err *e)
{
    struct box_resize body = { .proc = proc, .rows = rows, .cols = cols };
    struct buf tail;
    int rc;

    buf_init(&tail, MSG_PATH_MAX);
    add_str(&tail, label);
    rc = box_do(c, BOX_RESIZE, &body, sizeof(body), &tail, e);
    buf_done(&tail);
    return rc;
}

/* ------------------------------------------------------------------ pages of a listing */

/* One entry of a page: its fixed part copied out, two strings after it. Returns its size, 0 if it
 * is not whole. */
static size_t next_entry(const char *at, const char *end, void *fixed, size_t fixed_size,
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

static int bad_page(struct cove_err *e)
{
    return cove_fail(e, COVE_GONE, "the sandbox sent a listing that makes no sense");
}

int box_procs(struct box_conn *c, box_proc_fn each, void *arg, struct cove_err *e)
{
    struct box_procs ask = { 0 };

    for (;;) {
        struct box_page page;
        struct msg m;
        const char *at, *end;

        if (box_ask(c, BOX_PROCS, &ask, sizeof(ask), NULL, NULL, 0, BOX_PROC_LIST, &m, e) < 0)
            return -1;
        memcpy(&page, m.body, sizeof(page));
        at = (const char *)m.body + sizeof(page);
        end = (const char *)m.body + m.body_len;
        for (uint32_t i = 0; i < page.count; i++) {
            struct box_proc p;
            const char *label, *command;
            size_t n = next_entry(at, end, &p, sizeof(p), &label, &command);

            if (n == 0)
                return bad_page(e);
            end_sanitize(&p.end);
            if (each(arg, &p, label, command))
                return 0;
            at += n;
        }
        if (!page.more)
            return 0;
        if (page.next <= ask.after || page.next > UINT32_MAX)
            return bad_page(e);
        ask.after = (uint32_t)page.next;
    }
}

/* A hostile init could page for ever; nobody has that many files in one directory. */
enum { LIST_PAGES_MAX = 100000 };

int box_list(struct box_conn *c, const char *user, const char *path, box_entry_fn each, void *arg,
             struct cove_err *e)
{
    struct box_list ask = { 0 };
    struct buf tail;
    int rc = -1;

    buf_init(&tail, 2 * MSG_PATH_MAX);
    add_str(&tail, user);
    add_str(&tail, path);
    for (unsigned pages = 0; pages < LIST_PAGES_MAX; pages++) {
        struct box_page page;
        struct msg m;
        const char *at, *end;
        uint32_t i;

        if (box_ask(c, BOX_LIST, &ask, sizeof(ask), &tail, NULL, 0, BOX_ENTRIES, &m, e) < 0)
            break;
        memcpy(&page, m.body, sizeof(page));
        at = (const char *)m.body + sizeof(page);
        end = (const char *)m.body + m.body_len;
        for (i = 0; i < page.count; i++) {
            struct box_stat st;
            const char *name, *target;
            size_t n = next_entry(at, end, &st, sizeof(st), &name, &target);

            if (n == 0)
                break;
            if (each(arg, name, &st, target)) {
                page.more = 0;
                i = page.count;
                break;
            }
            at += n;
        }
        if (i < page.count) {
            rc = bad_page(e);
            break;
        }
        if (!page.more) {
            rc = 0;
            break;
        }
        ask.from = page.next;
    }
    buf_done(&tail);
    return rc;
}

/* ------------------------------------------------------------------ log rings */

int box_log(struct box_conn *c, uint32_t proc, const char *label, struct box_log_opened *ret,
            int *ret_ring_fd, struct cove_err *e)
{
    struct box_log_opened opened;
    struct msg m;

    if (ask_proc(c, BOX_LOG, proc, label, BOX_LOG_OPENED, &m, e) < 0)
        return -1;
    memcpy(&opened, m.body, sizeof(opened));
    if (take_checked(&m, S_IFREG, "a log", ret_ring_fd, e) < 0)
        return -1;
    *ret = opened;
    return 0;
}

int box_log_arm(struct box_conn *c, uint32_t proc, uint64_t pos, struct cove_err *e)
{
    struct box_log_arm body = { .proc = proc, .pos = pos };

    return msg_send(c->sock, BOX_LOG_ARM, ++c->tag, &body, sizeof(body), NULL, 0, NULL, 0,
                    MSG_NOSIGNAL, e);
}

/* ------------------------------------------------------------------ files and ports */

static int ask_file(struct box_conn *c, uint32_t type, const void *body, size_t body_len,
                    const char *user, const char *path, const char *to, int fd, uint32_t want,
                    struct msg *ret, struct cove_err *e)
{
    struct buf tail;
    int rc;

    buf_init(&tail, 3 * MSG_PATH_MAX);
    add_str(&tail, user);
    add_str(&tail, path);
    if (to)
        add_str(&tail, to);
    rc = box_ask(c, type, body, body_len, &tail, &fd, fd >= 0, want, ret, e);
    buf_done(&tail);
    return rc;
}

int box_file_open(struct box_conn *c, const char *user, const char *path, uint32_t open_flags,
                  uint32_t mode, uint32_t flags, struct box_stat *ret_stat, int *ret_fd,
                  struct cove_err *e)
{
    struct box_file body = { .flags = flags, .open_flags = open_flags, .mode = mode };
    struct box_stat st;
    struct msg m;

    if (ask_file(c, BOX_OPEN, &body, sizeof(body), user, path, NULL, -1, BOX_STATED, &m, e) < 0)
        return -1;
    memcpy(&st, m.body, sizeof(st));
    if (S_ISDIR(st.mode) && !(open_flags & O_DIRECTORY)) {
        msg_close_fds(&m);
        return cove_fail(e, COVE_INVALID, "'%.160s' is a directory", path);
    }
    if (take_checked(&m, open_flags & O_DIRECTORY ? S_IFDIR : S_IFREG, "a file", ret_fd, e) < 0)
        return -1;
    if (ret_stat)
        *ret_stat = st;
    return 0;
}

int box_file_stat(struct box_conn *c, const char *user, const char *path, uint32_t flags,
                  struct box_stat *ret, struct cove_err *e)
{
    struct box_file body = { .flags = flags };
    struct msg m;

    if (ask_file(c, BOX_STAT, &body, sizeof(body), user, path, NULL, -1, BOX_STATED, &m, e) < 0)
        return -1;
    memcpy(ret, m.body, sizeof(*ret));
    msg_close_fds(&m);
    return 0;
}

int box_file_stat_link(struct box_conn *c, const char *user, const char *path, struct box_stat *ret,
                       char ret_target[MSG_PATH_MAX], struct cove_err *e)
{
    struct box_file body = { .flags = FILE_NOFOLLOW };
    struct msg m;
    size_t len;

    if (ask_file(c, BOX_STAT, &body, sizeof(body), user, path, NULL, -1, BOX_STATED, &m, e) < 0)
        return -1;
    msg_close_fds(&m);
    memcpy(ret, m.body, sizeof(*ret));
    len = strnlen((const char *)m.body + sizeof(*ret), m.body_len - sizeof(*ret));
    if (len >= MSG_PATH_MAX)
        return cove_fail(e, COVE_GONE, "the sandbox sent a link that is too long");
    memcpy(ret_target, (const char *)m.body + sizeof(*ret), len);
    ret_target[len] = '\0';
    return 0;
}

int box_file_change(struct box_conn *c, uint32_t verb, const char *user, const char *path,
                    const char *to, const struct box_file *args, struct cove_err *e)
{
    struct msg m;

    if (ask_file(c, verb, args, sizeof(*args), user, path, to, -1, MSG_DONE, &m, e) < 0)
        return -1;
    msg_close_fds(&m);
    return 0;
}

/* An inotify fd is an anonymous inode; its only sure mark is in /proc. */
static bool is_inotify(int fd)
{
    char link[64], target[64];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, target, sizeof(target) - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    return strcmp(target, "anon_inode:inotify") == 0;
}

int box_watch(struct box_conn *c, const char *user, const char *path, uint32_t mask, int inotify_fd,
              int32_t *ret_wd, int *ret_inotify_fd, struct cove_err *e)
{
    struct box_watch body = { .mask = mask };
    struct box_watched watched;
    struct msg m;

    if (ask_file(c, BOX_WATCH, &body, sizeof(body), user, path, NULL, inotify_fd, BOX_WATCHED, &m,
                 e) < 0)
        return -1;
    memcpy(&watched, m.body, sizeof(watched));
    if (inotify_fd < 0) {
        if (m.fd_count != 1 || !is_inotify(m.fds[0])) {
            msg_close_fds(&m);
            return cove_fail(e, COVE_GONE, "the sandbox did not hand out a watch");
        }
        *ret_inotify_fd = take_fd(&m.fds[0]);
        m.fd_count = 0;
    }
    msg_close_fds(&m);
    *ret_wd = watched.wd;
    return 0;
}

int box_port(struct box_conn *c, uint16_t port, int *ret_sock, struct cove_err *e)
{
    struct box_connect body = { .port = port };
    struct msg m;

    if (box_ask(c, BOX_CONNECT, &body, sizeof(body), NULL, NULL, 0, MSG_DONE, &m, e) < 0)
        return -1;
    return take_checked(&m, S_IFSOCK, "a socket", ret_sock, e);
}
