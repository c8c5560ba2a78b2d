/*
 * cove-fetch: moves files between sandboxes and URLs that clients name.
 *
 *   privilege: own user (the workers'), no capabilities; seccomp, Landlock: reads /etc for names and
 *              certificates, opens no other file
 *   does:      HTTP downloads into a file and uploads out of one; the file comes as a descriptor, which the
 *              sandbox's init opened
 *   never:     connects to an address that is refused (address.c), follows a redirect there, keeps anything
 *              of one fetch for another
 *
 * Started by the keeper with these descriptors: 2 the log, 3 the configuration as bytes, 4 the listening
 * socket <run_dir>/fetch.sock, which only workers may connect to. A connection is one fetch; when the worker
 * hangs up, because its client has left, the fetch ends. One event loop; libcurl resolves names in threads.
 */
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/fetch/fetch_private.h"
#include "process/confine.h"
#include "process/process.h"

enum { LISTEN_FD = 4, ASK_MS = 2000, PROGRESS_MS = 10000 };

static const struct msg_rule ask_rules[] = {
    { FETCH_ASK, sizeof(struct fetch_ask), FETCH_URL_MAX, 1, 1 },
    { 0 },
};

/* ------------------------------------------------------------------ the end of a fetch */

static void drop(struct fetch_job *j)
{
    transfer_end(j);
    timer_stop(&j->timer);
    watch_close(&j->watch);
    cove_close(j->file);
    LIST_REMOVE(j, link);
    assert(j->fetcher->job_count > 0);
    j->fetcher->job_count--;
    free(j);
}

static void log_job(const char *event, const struct fetch_job *j, long status,
                    const struct cove_err *e)
{
    log_event(LOG_LEVEL_INFO, event, LOG_S("tenant", j->ask.tenant), LOG_S("host", j->host),
              LOG_S("verb", j->ask.verb == FETCH_DOWNLOAD ? "download" : "upload"),
              LOG_N("bytes", j->bytes), LOG_N("status", (uint64_t)status),
              LOG_N("duration_ms", clock_boot_ms() - j->began_ms), LOG_S("error", e ? e->msg : ""));
}

void job_finish(struct fetch_job *j, long http_status, const struct cove_err *e)
{
    struct fetch_done done = { .bytes = j->bytes, .http_status = (uint32_t)http_status };

    log_job("fetch ended", j, http_status, e);
    if (e)
        msg_send(j->watch.fd, &(struct msg_out){ MSG_ERROR, MSG_BODY(*e) }, MSG_DONTWAIT, NULL);
    else
        msg_send(j->watch.fd, &(struct msg_out){ FETCH_DONE, MSG_BODY(done) }, MSG_DONTWAIT, NULL);
    drop(j);
}

/* ------------------------------------------------------------------ the beginning of a fetch */

static void tell_progress(struct timer *t)
{
    struct fetch_job *j = container_of(t, struct fetch_job, timer);

    log_job("fetch under way", j, 0, NULL);
    timer_start(&j->fetcher->loop, t, PROGRESS_MS, tell_progress);
}

static unsigned count_of(const struct fetcher *f, const char *tenant)
{
    unsigned n = 0;
    struct fetch_job *j;

    LIST_FOREACH(j, &f->jobs, link)
    n += j->curl && strcmp(j->ask.tenant, tenant) == 0;
    return n;
}

/* The descriptor must be a regular file: reading and writing one never blocks on another process. */
static int check(struct fetch_job *j, struct cove_err *e)
{
    const struct cove_config *c = &j->fetcher->config;
    struct stat st;

    if (!memchr(j->ask.tenant, '\0', sizeof(j->ask.tenant)) || j->ask.verb > FETCH_UPLOAD_TEXT ||
        fstat(j->file, &st) < 0 || !S_ISREG(st.st_mode))
        return cove_fail(e, COVE_INVALID, "not a fetch");
    if (count_of(j->fetcher, j->ask.tenant) >= c->fetch_tenant)
        return cove_fail(e, COVE_BUSY, "this tenant has %u fetches under way, try again later",
                         (unsigned)c->fetch_tenant);
    return 0;
}

static int receive(struct fetch_job *j, struct cove_err *e)
{
    static char buf[sizeof(struct msg_head) + sizeof(struct fetch_ask) + FETCH_URL_MAX + 64];
    const char *at, *url;
    struct msg m;

    if (msg_recv(j->watch.fd, buf, sizeof(buf), ask_rules, MSG_DONTWAIT, &m, e) != 1)
        return -1;
    j->file = m.fds[0];
    memcpy(&j->ask, m.body, sizeof(j->ask));
    at = (const char *)m.body + sizeof(j->ask);
    url = msg_next_str(&at, (const char *)m.body + m.body_len);
    if (!url)
        return cove_fail(e, COVE_INVALID, "url: is missing");
    if (check(j, e) < 0)
        return -1;
    return transfer_begin(j, url, e);
}

/* The worker's first message is its order; after that only the end of the connection may come. */
static void worker_ready(struct watch *w, uint32_t events)
{
    struct fetch_job *j = container_of(w, struct fetch_job, watch);
    struct cove_err e = { 0 };

    (void)events;
    if (j->curl) {
        log_job("fetch given up by its client", j, 0, NULL);
        drop(j);
        return;
    }
    if (receive(j, &e) < 0) {
        if (e.code == COVE_BUSY && j->file < 0)
            return; /* nothing there yet */
        job_finish(j, 0, &e);
        return;
    }
    log_job("fetch begun", j, 0, NULL);
    timer_start(&j->fetcher->loop, &j->timer, PROGRESS_MS, tell_progress);
}

static void no_question(struct timer *t)
{
    drop(container_of(t, struct fetch_job, timer));
}

/* One process gets at most half of the places, so that a worker that was taken over leaves room for others. */
static bool has_place(const struct fetcher *f, pid_t pid)
{
    unsigned own = 0;
    const struct fetch_job *j;

    LIST_FOREACH(j, &f->jobs, link)
    own += j->pid == pid;
    return f->job_count < JOBS_MAX && own < JOBS_MAX / 2;
}

static void take_worker(struct fetcher *f, int sock)
{
    pid_t pid = msg_peer(sock);
    struct fetch_job *j = has_place(f, pid) ? calloc(1, sizeof(*j)) : NULL;

    if (!j) {
        close(sock);
        return;
    }
    j->fetcher = f;
    j->pid = pid;
    j->file = -1;
    j->began_ms = clock_boot_ms();
    LIST_INSERT_HEAD(&f->jobs, j, link);
    f->job_count++;
    if (watch_start(&f->loop, &j->watch, sock, EPOLLIN | EPOLLRDHUP, worker_ready) < 0) {
        close(sock);
        drop(j);
        return;
    }
    timer_start(&f->loop, &j->timer, ASK_MS, no_question);
}

static void listen_ready(struct watch *w, uint32_t events)
{
    int sock = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)events;
    if (sock >= 0)
        take_worker(container_of(w->loop, struct fetcher, loop), sock);
}

/* ------------------------------------------------------------------ main */

/* Makes libc load its libraries for resolving names now, while it may still map programs. */
static void load_resolver(void)
{
    struct addrinfo *found = NULL;

    if (getaddrinfo("localhost", NULL, NULL, &found) == 0)
        freeaddrinfo(found);
}

static int setup(struct fetcher *f, struct cove_err *e)
{
    if (process_start("cove-fetch", &f->config, e) < 0 || loop_init(&f->loop, e) < 0 ||
        transfer_init(f, e) < 0)
        return -1;
    process_raise_file_limit();
    load_resolver();
    if (watch_start(&f->loop, &f->listen, LISTEN_FD, EPOLLIN, listen_ready) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "the listening socket");
    return confine(CONFINE_FETCH, NULL, e);
}

int main(void)
{
    static struct fetcher fetcher; /* zeroed */
    struct cove_err e = { 0 };

    log_init("fetch", LOG_LEVEL_INFO);
    if (setup(&fetcher, &e) < 0) {
        log_error("cove-fetch is started by coved, not by hand", &e);
        return 2;
    }
    loop_run(&fetcher.loop);
    loop_done(&fetcher.loop);
    return 0;
}
