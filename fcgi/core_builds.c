#include "fcgi/core_builds.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/caller.h"

enum { ANSWER_MS = 10000, DIAL_TRIES = 50, DIAL_EVERY_MS = 20 };

static const struct msg_rule answers[] = {
    { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
    { MSG_DONE, 0, 0, 0, 1 },
    { BUILD_TOLD, sizeof(struct build_told), MSG_MAX_BYTES, 0, 0 },
    { BUILD_LISTED, sizeof(struct build_listed), 0, 0, 0 },
    { 0 },
};

struct question {
    uint32_t type;
    const void *body;
    size_t len;
    int fd; /* rides along; -1 = none */
    uint32_t want;
    void *ret;
    size_t ret_size;
    struct buf *tail; /* NULL: there is none */
    int *ret_fd;      /* likewise */
};

static int fail_unreachable(struct cove_err *e)
{
    return cove_fail(e, COVE_BUSY,
                     "templates cannot be built at the moment, try again in a second");
}

static int take_answer(const struct question *q, struct msg *m, struct cove_err *e)
{
    if (m->head.type == MSG_ERROR)
        return msg_raise(m, e);
    if (m->head.type != q->want)
        return fail_unreachable(e);
    if (q->ret)
        memcpy(q->ret, m->body, q->ret_size);
    if (q->tail)
        buf_add(q->tail, (const char *)m->body + q->ret_size, m->body_len - q->ret_size);
    if (q->ret_fd && m->fd_count == 1) {
        *q->ret_fd = m->fds[0];
        m->fd_count = 0;
    }
    return q->ret_fd && *q->ret_fd < 0 ? fail_unreachable(e) : 0;
}

static int ask_on(int sock, const struct question *q, struct cove_err *e)
{
    AUTO_FREE char *buf = malloc(MSG_MAX_BYTES);
    struct pollfd p = { .fd = sock, .events = POLLIN };
    struct msg m;
    int rc;

    if (!buf)
        return cove_fail(e, COVE_BUSY, "out of memory");
    if (msg_send(sock,
                 &(struct msg_out){ q->type, .tag = 1, .body = q->body, .body_len = q->len,
                                    .fds = &q->fd, .fd_count = q->fd >= 0 },
                 0, NULL) < 0 ||
        run_poll(&p, 1, ANSWER_MS) <= 0 ||
        msg_recv(sock, buf, MSG_MAX_BYTES, answers, MSG_DONTWAIT, &m, NULL) != 1)
        return fail_unreachable(e);
    rc = take_answer(q, &m, e);
    msg_close_fds(&m);
    return rc;
}

/* The keeper holds the builder's socket: a question to a builder that has just died waits there for the next one (ANSWER_MS). Only while the
 * server itself restarts, or in the moment before its first builder, nobody listens. */
static int dial(struct core *c, struct cove_err *e)
{
    char path[160];
    int sock;

    if (!c->config->builds_tenant)
        return cove_fail(e, COVE_UNSUPPORTED, "this server builds no templates");
    snprintf(path, sizeof(path), "%s/builder.sock", c->config->run_dir);
    sock = unix_connect(path, SOCK_SEQPACKET);
    for (int i = 0; sock < 0 && i < DIAL_TRIES; i++) {
        run_poll(NULL, 0, DIAL_EVERY_MS);
        sock = unix_connect(path, SOCK_SEQPACKET);
    }
    if (sock < 0)
        return fail_unreachable(e);
    msg_prepare_socket(sock);
    return sock;
}

/* Templates belong to the whole tenant: a key that is limited to some projects may not change them. */
static int ask(struct core *c, const struct question *q, struct cove_err *e)
{
    AUTO_CLOSE int sock = -1;

    if (caller_may_project(c, "", e) < 0 || (sock = dial(c, e)) < 0)
        return -1;
    return ask_on(sock, q, e);
}

/* ------------------------------------------------------------------ builds */

int core_build_new(struct core *c, const char *tenant, const struct core_build *asked,
                   struct build_info *ret, struct cove_err *e)
{
    struct build_new args = { .key_sandboxes = caller_sandboxes(c),
                              .dialect = asked->dialect,
                              .cpus = asked->cpus,
                              .memory_bytes = asked->memory_bytes };
    struct build_told told;
    const struct question q = { .type = BUILD_NEW,
                                .body = &args,
                                .len = sizeof(args),
                                .fd = -1,
                                .want = BUILD_TOLD,
                                .ret = &told,
                                .ret_size = sizeof(told) };

    text_copy(args.tenant, sizeof(args.tenant), tenant);
    caller_key_id(c, args.key);
    if (!text_copy(args.name, sizeof(args.name), asked->name))
        return cove_fail(e, COVE_INVALID, "name: is too long");
    if (!text_copy(args.tags, sizeof(args.tags), asked->tags))
        return cove_fail(e, COVE_INVALID, "tags: together longer than %d bytes", COVE_TAGS_MAX - 1);
    if (ask(c, &q, e) < 0)
        return -1;
    *ret = told.info;
    return 0;
}

static struct build_which which(const char *tenant, const char *id)
{
    struct build_which w = { 0 };

    text_copy(w.tenant, sizeof(w.tenant), tenant);
    text_copy(w.id, sizeof(w.id), id);
    return w;
}

int core_build_start(struct core *c, const char *tenant, const char *id, const struct buf *order,
                     struct cove_err *e)
{
    struct build_which args = which(tenant, id);
    AUTO_CLOSE int fd = memfd_create("cove-order", MFD_CLOEXEC);
    const struct question q = {
        .type = BUILD_START, .body = &args, .len = sizeof(args), .fd = fd, .want = MSG_DONE
    };

    if (order->overflow)
        return cove_fail(e, COVE_TOO_LARGE, "steps: have more than %d bytes", BUILD_ORDER_MAX);
    if (fd < 0 || write(fd, order->data, order->len) != (ssize_t)order->len)
        return cove_fail_errno(e, COVE_BUSY, "the order of a build");
    return ask(c, &q, e);
}

int core_build_ask(struct core *c, const struct build_ask *args, struct build_told *ret,
                   struct buf *tail, struct cove_err *e)
{
    const struct question q = { .type = BUILD_ASK,
                                .body = args,
                                .len = sizeof(*args),
                                .fd = -1,
                                .want = BUILD_TOLD,
                                .ret = ret,
                                .ret_size = sizeof(*ret),
                                .tail = tail };

    return ask(c, &q, e);
}

bool core_build_next_entry(const char **at, const char *end, struct build_entry *ret,
                           const char **ret_step, const char **ret_message)
{
    if ((size_t)(end - *at) < sizeof(*ret))
        return false;
    memcpy(ret, *at, sizeof(*ret));
    *at += sizeof(*ret);
    *ret_step = msg_next_str(at, end);
    *ret_message = *ret_step ? msg_next_str(at, end) : NULL;
    return *ret_message != NULL;
}

int core_build_list(struct core *c, const char *tenant, const char *name, struct build_listed *ret,
                    struct cove_err *e)
{
    struct build_which args = which(tenant, name);
    const struct question q = { .type = BUILD_LIST,
                                .body = &args,
                                .len = sizeof(args),
                                .fd = -1,
                                .want = BUILD_LISTED,
                                .ret = ret,
                                .ret_size = sizeof(*ret) };

    return ask(c, &q, e);
}

int core_build_forget(struct core *c, const char *tenant, const char *name, struct cove_err *e)
{
    struct build_which args = which(tenant, name);
    const struct question q = {
        .type = BUILD_FORGET, .body = &args, .len = sizeof(args), .fd = -1, .want = MSG_DONE
    };

    return ask(c, &q, e);
}

/* ------------------------------------------------------------------ files */

int core_build_has_files(struct core *c, const char *tenant, const char *hash, bool *ret,
                         struct cove_err *e)
{
    struct build_file args = { 0 };
    const struct question q = {
        .type = BUILD_FILE, .body = &args, .len = sizeof(args), .fd = -1, .want = MSG_DONE
    };

    text_copy(args.tenant, sizeof(args.tenant), tenant);
    if (!text_copy(args.hash, sizeof(args.hash), hash))
        return cove_fail(e, COVE_INVALID, "hash: must be %d hexadecimal digits", BUILD_HASH_LEN);
    *ret = ask(c, &q, e) == 0;
    return *ret || e->code == COVE_NOT_FOUND ? 0 : -1;
}

int core_build_upload(struct core *c, const struct build_file *args, struct core_upload *ret,
                      struct cove_err *e)
{
    struct core_upload u = { .sock = dial(c, e), .fd = -1 };
    const struct question q = { .type = BUILD_UPLOAD,
                                .body = args,
                                .len = sizeof(*args),
                                .fd = -1,
                                .want = MSG_DONE,
                                .ret_fd = &u.fd };

    if (u.sock < 0)
        return -1;
    if (ask_on(u.sock, &q, e) < 0) {
        core_upload_done(&u);
        return -1;
    }
    *ret = u;
    return 0;
}

int core_build_uploaded(struct core_upload *u, struct cove_err *e)
{
    const struct question q = { .type = BUILD_UPLOADED, .fd = -1, .want = MSG_DONE };

    return ask_on(u->sock, &q, e);
}

void core_upload_done(struct core_upload *u)
{
    u->fd = cove_close(u->fd);
    u->sock = cove_close(u->sock);
}
