/* Requests to an init and its answers, without waiting for either. See cove/box_wire.h. */
#include "cove/box_wire.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/client/client_private.h"

/* ------------------------------------------------------------------ requests */

struct box_request box_request(uint32_t type, uint32_t want, const void *body, size_t body_len)
{
    struct box_request r = { .type = type, .want = want, .body_len = body_len };

    assert(body_len <= sizeof(r.body));
    if (body_len)
        memcpy(r.body, body, body_len);
    buf_init(&r.tail, MSG_MAX_BYTES - sizeof(struct msg_head) - body_len);
    return r;
}

void box_request_add(struct box_request *r, const char *s)
{
    buf_add(&r->tail, s ? s : "", (s ? strlen(s) : 0) + 1);
}

static void add_spawn_fds(struct box_request *r, const struct spawn_args *a, uint32_t *flags)
{
    const int given[] = { a->stdin_fd, a->stdout_fd, a->stderr_fd, a->filter_fd };
    const uint32_t bits[] = { SPAWN_FD_STDIN, SPAWN_FD_STDOUT, SPAWN_FD_STDERR, SPAWN_FD_FILTER };

    for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
        if (given[i] < 0)
            continue;
        r->fds[r->fd_count++] = given[i];
        *flags |= bits[i];
    }
}

/* Is `pair`, "K=V", set by this environment? */
static bool is_set(const char *const *env, const char *pair)
{
    size_t name = strcspn(pair, "=") + 1;

    for (size_t i = 0; env && env[i]; i++) {
        if (strncmp(env[i], pair, name) == 0)
            return true;
    }
    return false;
}

/* The template's variables, which a request may replace. Returns how many were added. */
static uint32_t add_base_env(struct box_request *r, const struct spawn_args *a)
{
    uint32_t count = 0;

    for (size_t i = 0; a->base_env && a->base_env[i]; i++) {
        if (is_set(a->env, a->base_env[i]))
            continue;
        box_request_add(r, a->base_env[i]);
        count++;
    }
    return count;
}

/* The instance's own variables, which a request or a template may replace. Returns how many were added. */
static uint32_t add_common_env(struct box_request *r, const struct spawn_args *a)
{
    AUTO_FREE char *copy = a->common_env ? strdup(a->common_env) : NULL;
    char *rest = copy, *pair;
    uint32_t count = 0;

    while ((pair = strsep(&rest, " "))) {
        if (!strchr(pair, '=') || is_set(a->env, pair) || is_set(a->base_env, pair))
            continue;
        box_request_add(r, pair);
        count++;
    }
    return count;
}

struct box_request box_request_spawn(const struct spawn_args *a)
{
    struct box_spawn body = {
        .flags = a->flags,
        .rows = a->rows,
        .cols = a->cols,
        .context = a->context,
        .timeout_ms = a->timeout_ms,
        .log_bytes = a->log_bytes,
        .max_open_files = a->max_open_files,
        .max_file_bytes = a->max_file_bytes,
    };
    struct box_request r = box_request(BOX_SPAWN, BOX_SPAWNED, &body, sizeof(body));

    box_request_add(&r, a->user ? a->user : "root");
    box_request_add(&r, a->cwd);
    box_request_add(&r, a->label);
    for (; a->argv[body.argc]; body.argc++)
        box_request_add(&r, a->argv[body.argc]);
    for (; a->env && a->env[body.envc]; body.envc++)
        box_request_add(&r, a->env[body.envc]);
    body.envc += add_base_env(&r, a) + add_common_env(&r, a);
    if (a->note) {
        body.flags |= SPAWN_NOTE;
        box_request_add(&r, a->note);
    }
    add_spawn_fds(&r, a, &body.flags);
    memcpy(r.body, &body, sizeof(body));
    return r;
}

struct box_request box_request_port(uint16_t port)
{
    struct box_connect body = { .port = port };

    return box_request(BOX_CONNECT, MSG_DONE, &body, sizeof(body));
}

int box_request_send(const struct box_request *r, int sock, uint32_t tag, struct cove_err *e)
{
    if (r->tail.overflow)
        return cove_fail(e, COVE_TOO_LARGE, "request is too large for one message");
    return msg_send(sock,
                    &(struct msg_out){ r->type, .tag = tag, .body = r->body,
                                       .body_len = r->body_len, .tail = r->tail.data,
                                       .tail_len = r->tail.len, .fds = r->fds,
                                       .fd_count = r->fd_count },
                    MSG_DONTWAIT, e);
}

/* ------------------------------------------------------------------ answers */

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
    { BOX_KEPT_DIRS, sizeof(struct box_page), ANY_TAIL, 1, 1 },
    { BOX_MARKED, 0, ANY_TAIL, 0, 0 },
    { BOX_NOTED, 0, ANY_TAIL, 0, 0 },
    { BOX_TAKEN, sizeof(struct box_taken), 0, 0, 0 },
    { 0 },
};

int box_answer_receive(int sock, void *buf, size_t buf_size, struct msg *ret, struct cove_err *e)
{
    struct cove_err err = { 0 };
    int rc = msg_recv(sock, buf, buf_size, box_answers, MSG_DONTWAIT, ret, &err);

    if (rc == 1)
        return 0;
    if (rc == 0)
        return cove_fail(e, COVE_GONE, "the sandbox ended");
    if (err.code == COVE_INVALID)
        err.code = COVE_GONE; /* the other side is not our init any more */
    if (e)
        *e = err;
    return -1;
}

/* Is it a message that init sends without being asked? */
static bool box_is_event(uint32_t type)
{
    return type == BOX_EXITED || type == BOX_LOG_TICK || type == BOX_EXEC_DENIED;
}

int box_answer_check(const struct box_request *r, uint32_t tag, struct msg *m, struct cove_err *e)
{
    bool ours = m->head.tag == tag;

    if (ours && m->head.type == r->want)
        return 1;
    msg_close_fds(m);
    if (ours && m->head.type == MSG_ERROR)
        return client_raise(m, e);
    if (!box_is_event(m->head.type) && m->head.type != MSG_DONE && m->head.type != MSG_ERROR)
        return cove_fail(e, COVE_GONE, "the sandbox sent an answer to no request");
    return 0;
}

int box_answer_fd(struct msg *m, mode_t kind, const char *what, int *ret_fd, struct cove_err *e)
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

int box_answer_port(struct msg *m, int *ret_sock, struct cove_err *e)
{
    return box_answer_fd(m, S_IFSOCK, "a socket", ret_sock, e);
}

void box_answer_spawned(struct msg *m, struct box_spawned *ret, int *ret_pty)
{
    memcpy(ret, m->body, sizeof(*ret));
    if (ret_pty)
        *ret_pty = -1;
    if (m->fd_count == 1 && ret_pty && isatty(m->fds[0]))
        *ret_pty = take_fd(&m->fds[0]);
    msg_close_fds(m);
}

size_t box_answer_entry(const char *at, const char *end, void *fixed, size_t fixed_size,
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
