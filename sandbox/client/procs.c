/* What can be asked of a sandbox's processes. See client.c for how. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/client/client_private.h"

/* ------------------------------------------------------------------ processes */

int box_spawn(struct box_conn *c, const struct spawn_args *args, struct box_spawned *ret,
              int *ret_pty, struct cove_err *e)
{
    AUTO_REQUEST struct box_request r = box_request_spawn(args);
    struct msg m;

    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    box_answer_spawned(&m, ret, ret_pty);
    return 0;
}

/* Makes a request about one process, by its number or, when that is 0, by its label. */
static struct box_request about(uint32_t type, uint32_t want, const void *body, size_t body_len,
                                const char *label)
{
    struct box_request r = box_request(type, want, body, body_len);

    box_request_add(&r, label);
    return r;
}

int box_signal(struct box_conn *c, const struct box_signal *args, const char *label,
               struct cove_err *e)
{
    AUTO_REQUEST struct box_request r = about(BOX_SIGNAL, MSG_DONE, args, sizeof(*args), label);

    return box_tell(c, &r, e);
}

/* Copies a string that goes into a reply, cut to the part that is valid text. */
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
    return 0; /* the answer to a request that was sent without waiting */
}

int box_next_event(struct box_conn *c, int timeout_ms, struct box_event *ret, struct cove_err *e)
{
    uint64_t until = clock_boot_ms() + (timeout_ms > 0 ? (uint64_t)timeout_ms : 0);

    do { /* looks at least once; a flood of messages that are no events does not extend the wait */
        struct msg m;

        if (!client_wait(c->sock, POLLIN, until))
            return 0;
        if (box_receive(c, &m, e) < 0)
            return -1;
        msg_close_fds(&m);
        if (fill_event(&m, ret))
            return 1;
    } while (clock_boot_ms() < until);
    return 0;
}

/* Does not wait for the answer: init reads what is in its queue even after we have closed the connection. */
int box_drain(struct box_conn *c, const int *fds, size_t fd_count, struct cove_err *e)
{
    return msg_send(
        c->sock, &(struct msg_out){ BOX_DRAIN, .tag = ++c->tag, .fds = fds, .fd_count = fd_count },
        MSG_DONTWAIT, e);
}

int box_wait(struct box_conn *c, uint32_t proc, const char *label, struct cove_err *e)
{
    struct box_proc_ref body = { .proc = proc };
    AUTO_REQUEST struct box_request r = about(BOX_WAIT, BOX_EXITED, &body, sizeof(body), label);

    return box_tell(c, &r, e);
}

int box_forget(struct box_conn *c, uint32_t proc, const char *label, struct cove_err *e)
{
    struct box_proc_ref body = { .proc = proc };
    AUTO_REQUEST struct box_request r = about(BOX_FORGET, MSG_DONE, &body, sizeof(body), label);

    return box_do(c, &r, e);
}

static bool is_terminal(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && isatty(fd);
}

int box_stdin(struct box_conn *c, uint32_t proc, const char *label, bool close_it, int *ret_fd,
              struct cove_err *e)
{
    struct box_stdin body = { .proc = proc, .close = close_it };
    AUTO_REQUEST struct box_request r = about(BOX_STDIN, MSG_DONE, &body, sizeof(body), label);
    struct msg m;

    if (close_it)
        return box_do(c, &r, e);
    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    if (m.fd_count == 1 && is_terminal(m.fds[0])) {
        *ret_fd = take_fd(&m.fds[0]);
        return 0;
    }
    return box_answer_fd(&m, S_IFIFO, "a pipe or terminal", ret_fd, e);
}

int box_resize(struct box_conn *c, uint32_t proc, const char *label, uint16_t rows, uint16_t cols,
               struct cove_err *e)
{
    struct box_resize body = { .proc = proc, .rows = rows, .cols = cols };
    AUTO_REQUEST struct box_request r = about(BOX_RESIZE, MSG_DONE, &body, sizeof(body), label);

    return box_do(c, &r, e);
}

int box_note(struct box_conn *c, uint32_t proc, const char **ret, struct cove_err *e)
{
    struct box_proc_ref ref = { .proc = proc };
    AUTO_REQUEST struct box_request r = about(BOX_NOTE, BOX_NOTED, &ref, sizeof(ref), NULL);
    const char *at;
    struct msg m;

    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    at = m.body_len ? m.body : "";
    *ret = msg_next_str(&at, at + m.body_len);
    return *ret ? 0 : client_bad_page(e);
}

/* ------------------------------------------------------------------ the list */

/* Hands the entries of one page to `each`. 1: `each` wants no more; 0: go on; -1: the message is not a page
 * of entries. */
static int each_proc(const struct msg *m, const struct box_page *page, box_proc_fn each, void *arg)
{
    const char *at = (const char *)m->body + sizeof(*page);
    const char *end = (const char *)m->body + m->body_len;

    for (uint32_t i = 0; i < page->count; i++) {
        struct box_proc p;
        const char *label, *command;
        size_t n = box_answer_entry(at, end, &p, sizeof(p), &label, &command);

        if (n == 0)
            return -1;
        end_sanitize(&p.end);
        if (each(arg, &p, label, command))
            return 1;
        at += n;
    }
    return 0;
}

static int list_procs(struct box_conn *c, box_proc_fn each, void *arg, struct cove_err *e)
{
    struct box_procs ask = { 0 };
    struct box_page page;
    struct msg m;

    do {
        struct box_request request = box_request(BOX_PROCS, BOX_PROC_LIST, &ask, sizeof(ask));
        int r;

        if (box_ask(c, &request, &m, e) < 0)
            return -1;
        memcpy(&page, m.body, sizeof(page));
        r = each_proc(&m, &page, each, arg);
        if (r < 0 || (page.more && (page.next <= ask.after || page.next > UINT32_MAX)))
            return client_bad_page(e);
        if (r > 0)
            return 0;
        ask.after = (uint32_t)page.next;
    } while (page.more);
    return 0;
}

int box_procs(struct box_conn *c, box_proc_fn each, void *arg, struct cove_err *e)
{
    uint64_t before = client_listing_starts(c);
    int rc;

    rc = list_procs(c, each, arg, e);
    c->until_ms = before;
    return rc;
}

/* ------------------------------------------------------------------ log rings */

int box_log(struct box_conn *c, uint32_t proc, const char *label, struct box_log_opened *ret,
            int *ret_ring_fd, struct cove_err *e)
{
    struct box_proc_ref body = { .proc = proc };
    AUTO_REQUEST struct box_request r = about(BOX_LOG, BOX_LOG_OPENED, &body, sizeof(body), label);
    struct box_log_opened opened;
    struct msg m;

    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    memcpy(&opened, m.body, sizeof(opened));
    if (box_answer_fd(&m, S_IFREG, "a log", ret_ring_fd, e) < 0)
        return -1;
    *ret = opened;
    return 0;
}

int box_log_arm(struct box_conn *c, uint32_t proc, uint64_t pos, uint32_t flags, struct cove_err *e)
{
    struct box_log_arm body = { .proc = proc, .flags = flags, .pos = pos, .held = pos };
    struct box_request r = box_request(BOX_LOG_ARM, BOX_LOG_TICK, &body, sizeof(body));

    return box_tell(c, &r, e);
}
