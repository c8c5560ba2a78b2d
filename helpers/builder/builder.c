/*
 * cove-builder: builds templates for tenants.
 *
 *   privilege: own user (the workers'), no capabilities; seccomp, Landlock: reads run_dir, writes
 *              state_dir/builds
 *   does:      each build in a thread of its own: a sandbox of the tenant's, the steps in it like any
 *              client's commands, under the same policy and quotas, then a snapshot of it with a manifest
 *              and a name; keeps logs and uploaded archives, all bounded
 *   never:     runs anything itself, unpacks or reads what a tenant uploaded
 *
 * Started by the keeper with these descriptors: 1 the directory state_dir/builds, 2 the log, 3 the configuration as bytes, 4 the listening
 * socket <run_dir>/builder.sock, which only workers may connect to. Questions are answered in one event
 * loop; none of them waits for a build. The builder dies with its keeper; the next builder reports the
 * builds that were under way as failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/state.h"
#include "cove/text.h"
#include "helpers/builder/builder_private.h"
#include "process/confine.h"
#include "process/manifests_live.h"
#include "process/process.h"

enum { DIR_FD = 1, LISTEN_FD = 4, CLIENTS_MAX = 256, UPLOADS_MAX = 32, TENANT_UPLOADS_MAX = 8 };

struct build_client { /* a worker's connection */
    LIST_ENTRY(build_client) link;
    struct builder *builder;
    struct watch watch;
    pid_t pid;                  /* of the worker */
    struct build_upload upload; /* the upload that the worker has begun */
};

static LIST_HEAD(client_list, build_client) clients = LIST_HEAD_INITIALIZER(clients);
static unsigned client_count;

static void drop(struct build_client *c)
{
    files_give_up(c->builder, &c->upload);
    watch_close(&c->watch);
    LIST_REMOVE(c, link);
    client_count--;
    free(c);
}

/* ------------------------------------------------------------------ answers */

static void answer(struct build_client *c, uint32_t tag, uint32_t type, const void *body,
                   size_t len, const struct buf *tail)
{
    msg_send(c->watch.fd,
             &(struct msg_out){ type, .tag = tag, .body = body, .body_len = len,
                                .tail = tail ? tail->data : NULL,
                                .tail_len = tail ? tail->len : 0 },
             MSG_DONTWAIT, NULL);
}

static bool is_text(const char *s, size_t size)
{
    return memchr(s, '\0', size) != NULL;
}

static int on_new(struct build_client *c, const struct msg *m, struct cove_err *e)
{
    struct build_told told = { 0 };
    struct build_new args;

    memcpy(&args, m->body, sizeof(args));
    if (!is_text(args.tenant, sizeof(args.tenant)) || !is_text(args.key, sizeof(args.key)) ||
        !is_text(args.name, sizeof(args.name)) || !is_text(args.tags, sizeof(args.tags)) ||
        strchr(args.tenant, '/'))
        return cove_fail(e, COVE_INVALID, "not a build");
    if (builds_add(c->builder, &args, &told.info, e) < 0)
        return -1;
    answer(c, m->head.tag, BUILD_TOLD, &told, sizeof(told), NULL);
    return 1;
}

/* The order is read at once, into memory of this process: whoever sent it cannot change it any more. */
static int read_order(int fd, struct build_order *ret, struct cove_err *e)
{
    struct stat st;
    char *text;
    ssize_t n;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < 1 ||
        st.st_size > BUILD_ORDER_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "a build's steps may have %d bytes at most",
                         BUILD_ORDER_MAX);
    text = malloc((size_t)st.st_size);
    if (!text)
        abort();
    n = pread(fd, text, (size_t)st.st_size, 0);
    if (n != st.st_size || text[n - 1] != '\0') {
        free(text);
        return cove_fail(e, COVE_INVALID, "the order is cut off");
    }
    return order_parse(text, (size_t)n, ret, e);
}

static int on_start(struct build_client *c, const struct msg *m, struct cove_err *e)
{
    struct build_which args;
    struct build_order order;
    int rc;

    memcpy(&args, m->body, sizeof(args));
    if (!is_text(args.tenant, sizeof(args.tenant)) || !is_text(args.id, sizeof(args.id)))
        return cove_fail(e, COVE_INVALID, "not a build");
    if (read_order(m->fds[0], &order, e) < 0)
        return -1;
    rc = builds_start(c->builder, args.tenant, args.id, &order, e);
    order_done(&order);
    return rc;
}

static int on_ask(struct build_client *c, const struct msg *m, struct cove_err *e)
{
    AUTO_BUF struct buf tail = BUF(MSG_MAX_BYTES / 2 + 64 * 1024);
    struct builder *builder = c->builder;
    struct build_told told = { 0 };
    struct build_ask args;
    struct build *b;

    memcpy(&args, m->body, sizeof(args));
    if (!is_text(args.which.tenant, sizeof(args.which.tenant)) ||
        !is_text(args.which.id, sizeof(args.which.id)))
        return cove_fail(e, COVE_INVALID, "not a build");
    pthread_mutex_lock(&builder->lock);
    b = builds_find_locked(builder, args.which.tenant, args.which.id);
    if (b) {
        told.info = b->info;
        text_copy(told.step, sizeof(told.step), b->step);
        text_copy(told.reason, sizeof(told.reason), b->reason);
    }
    pthread_mutex_unlock(&builder->lock);
    if (!b)
        return cove_fail(e, COVE_NOT_FOUND, "build '%.40s' not found", args.which.id);
    told.count = log_read(builder, &args, &tail);
    answer(c, m->head.tag, BUILD_TOLD, &told, sizeof(told), &tail);
    return 1;
}

static int on_list(struct build_client *c, const struct msg *m, struct cove_err *e)
{
    /* too large for the stack; one question is answered at a time */
    static struct build_listed listed;
    struct build_which args;

    memcpy(&args, m->body, sizeof(args));
    if (!is_text(args.tenant, sizeof(args.tenant)) || !is_text(args.id, sizeof(args.id)))
        return cove_fail(e, COVE_INVALID, "not a build");
    builds_list(c->builder, args.tenant, args.id, &listed);
    answer(c, m->head.tag, BUILD_LISTED, &listed, sizeof(listed), NULL);
    return 1;
}

static int on_forget(struct build_client *c, const struct msg *m, struct cove_err *e)
{
    struct build_which args;

    memcpy(&args, m->body, sizeof(args));
    if (!is_text(args.tenant, sizeof(args.tenant)) || !is_text(args.id, sizeof(args.id)))
        return cove_fail(e, COVE_INVALID, "not a build");
    builds_forget(c->builder, args.tenant, args.id);
    return 0;
}

static int read_file_ask(const struct msg *m, struct build_file *ret, struct cove_err *e)
{
    memcpy(ret, m->body, sizeof(*ret));
    if (!is_text(ret->tenant, sizeof(ret->tenant)) || strchr(ret->tenant, '/') ||
        !is_text(ret->hash, sizeof(ret->hash)) || !files_is_hash(ret->hash))
        return cove_fail(e, COVE_INVALID, "hash: must be %d hexadecimal digits", BUILD_HASH_LEN);
    return 0;
}

static int on_file(struct build_client *c, const struct msg *m, struct cove_err *e)
{
    struct build_file args;
    int fd;

    if (read_file_ask(m, &args, e) < 0)
        return -1;
    fd = files_open(c->builder, args.tenant, args.hash);
    if (fd < 0)
        return cove_fail(e, COVE_NOT_FOUND, "these files were not uploaded");
    cove_close(fd);
    return 0;
}

static int check_uploads(const char *tenant, struct cove_err *e)
{
    unsigned all = 0, own = 0;
    struct build_client *c;

    LIST_FOREACH(c, &clients, link)
    {
        all += c->upload.name[0] != '\0';
        own += c->upload.name[0] && strcmp(c->upload.file.tenant, tenant) == 0;
    }
    if (own >= TENANT_UPLOADS_MAX || all >= UPLOADS_MAX)
        return cove_fail(e, COVE_BUSY, "too many uploads at once, try again later");
    return 0;
}

static int on_upload(struct build_client *c, const struct msg *m, struct cove_err *e)
{
    struct build_file args;

    if (c->upload.name[0])
        return cove_fail(e, COVE_INVALID, "one upload a connection");
    if (read_file_ask(m, &args, e) < 0 || check_uploads(args.tenant, e) < 0 ||
        files_begin(c->builder, &args, &c->upload, e) < 0)
        return -1;
    msg_send(c->watch.fd,
             &(struct msg_out){ MSG_DONE, .tag = m->head.tag, .fds = &c->upload.fd, .fd_count = 1 },
             MSG_DONTWAIT, NULL);
    return 1;
}

static int on_uploaded(struct build_client *c, const struct msg *m, struct cove_err *e)
{
    (void)m;
    if (!c->upload.name[0])
        return cove_fail(e, COVE_INVALID, "no upload is under way");
    return files_commit(c->builder, &c->upload, e);
}

/* ------------------------------------------------------------------ questions */

static const struct call {
    struct msg_rule rule;
    /* 1: the handler has answered; 0: the answer is MSG_DONE; -1: the answer is the error. */
    int (*handle)(struct build_client *c, const struct msg *m, struct cove_err *e);
} calls[] = {
    { { BUILD_NEW, sizeof(struct build_new), 0, 0, 0 }, on_new },
    { { BUILD_START, sizeof(struct build_which), 0, 1, 1 }, on_start },
    { { BUILD_ASK, sizeof(struct build_ask), 0, 0, 0 }, on_ask },
    { { BUILD_LIST, sizeof(struct build_which), 0, 0, 0 }, on_list },
    { { BUILD_FORGET, sizeof(struct build_which), 0, 0, 0 }, on_forget },
    { { BUILD_FILE, sizeof(struct build_file), 0, 0, 0 }, on_file },
    { { BUILD_UPLOAD, sizeof(struct build_file), 0, 0, 0 }, on_upload },
    { { BUILD_UPLOADED, 0, 0, 0, 0 }, on_uploaded },
};

static void handle(struct build_client *c, const struct msg *m)
{
    struct cove_err err = { 0 };
    int rc = -1;

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (calls[i].rule.type == m->head.type)
            rc = calls[i].handle(c, m, &err);
    if (rc == 0)
        answer(c, m->head.tag, MSG_DONE, NULL, 0, NULL);
    else if (rc < 0)
        answer(c, m->head.tag, MSG_ERROR, &err, sizeof(err), NULL);
}

static void client_ready(struct watch *w, uint32_t events)
{
    struct build_client *c = container_of(w, struct build_client, watch);
    struct msg_rule rules[ARRAY_SIZE(calls) + 1] = { 0 };
    struct cove_err err = { 0 };
    char buf[4096];
    struct msg m;
    int rc;

    (void)events;
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        rules[i] = calls[i].rule;
    rc = msg_recv(w->fd, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, &err);
    if (rc < 0 && err.code == COVE_BUSY)
        return;
    if (rc != 1) {
        drop(c);
        return;
    }
    handle(c, &m);
    msg_close_fds(&m);
}

/* One process gets at most half of the places, so that a worker that was taken over leaves room for others. */
static bool has_place(pid_t pid)
{
    unsigned own = 0;
    const struct build_client *c;

    LIST_FOREACH(c, &clients, link)
    own += c->pid == pid;
    return client_count < CLIENTS_MAX && own < CLIENTS_MAX / 2;
}

static void listen_ready(struct watch *w, uint32_t events)
{
    struct builder *b = container_of(w->loop, struct builder, loop);
    int sock = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    pid_t pid = sock >= 0 ? msg_peer(sock) : 0;
    struct build_client *c = sock >= 0 && has_place(pid) ? calloc(1, sizeof(*c)) : NULL;

    (void)events;
    if (!c) {
        cove_close(sock);
        return;
    }
    c->builder = b;
    c->pid = pid;
    c->upload.fd = -1;
    msg_prepare_socket(sock);
    LIST_INSERT_HEAD(&clients, c, link);
    client_count++;
    if (watch_start(&b->loop, &c->watch, sock, EPOLLIN, client_ready) < 0) {
        cove_close(sock);
        drop(c);
    }
}

/* ------------------------------------------------------------------ main */

static int setup(struct builder *b, struct cove_err *e)
{
    char path[160];

    if (process_start("cove-builder", &b->config, e) < 0 || loop_init(&b->loop, e) < 0)
        return -1;
    process_raise_file_limit();
    pthread_mutex_init(&b->lock, NULL);
    LIST_INIT(&b->builds);
    snprintf(path, sizeof(path), "%s/state", b->config.run_dir);
    if (state_attach(path, &b->state, e) < 0)
        return -1;
    live_init(&b->policy, &policy_kind, b->state, b->config.run_dir, "policy");
    live_init(&b->manifests, &manifests_kind, b->state, b->config.run_dir, "manifests");
    b->dir = DIR_FD;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", DIR_FD);
    if (confine_writing(CONFINE_BUILDER, b->config.run_dir, path, e) < 0)
        return -1;
    files_sweep(b);
    if (builds_load(b, e) < 0)
        return -1;
    if (watch_start(&b->loop, &b->listen, LISTEN_FD, EPOLLIN, listen_ready) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "the listening socket");
    return 0;
}

int main(void)
{
    static struct builder builder; /* zeroed */
    struct cove_err e = { 0 };

    log_init("builder", LOG_LEVEL_INFO);
    if (setup(&builder, &e) < 0) {
        log_error("cove-builder is started by coved, not by hand", &e);
        return 2;
    }
    loop_run(&builder.loop);
    loop_done(&builder.loop);
    return 0;
}
