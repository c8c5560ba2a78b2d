/* Workers: as many as the configuration says, replaced when they die, drained when the configuration
 * changes or another keeper has taken over. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"

enum { RESTART_PAUSE_MS = 500, DRAIN_MS = 10000, BACKLOG = 4096 };

/* ------------------------------------------------------------------ the FastCGI socket */

/* A new socket is bound under another name and renamed over the old one, so that nginx can connect at every
 * moment. */
int workers_listen(struct keeper *k, struct cove_err *e)
{
    char path[160], aside[160];

    snprintf(path, sizeof(path), "%s/fcgi.sock", k->config.run_dir);
    snprintf(aside, sizeof(aside), "%s/fcgi.new", k->config.run_dir);
    k->fcgi_listen = fdstore_take_socket(&k->fdstore, "fcgi", SOCK_STREAM, path, path);
    if (k->fcgi_listen < 0)
        k->fcgi_listen = fdstore_take_socket(&k->fdstore, "fcgi-own", SOCK_STREAM, aside, path);
    if (k->fcgi_listen >= 0)
        return 0; /* connections that came while no keeper ran wait in this socket */
    if (unix_listen(aside, SOCK_STREAM, BACKLOG, k->socket_gid, &k->fcgi_listen, e) < 0)
        return -1;
    if (rename(aside, path) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "FastCGI socket %s", path);
    fdstore_put(&k->fdstore, "fcgi-own", k->fcgi_listen);
    return 0;
}

/* ------------------------------------------------------------------ the row */

static int give(struct keeper *k, int fds[HELPER_FDS], struct cove_err *e)
{
    (void)e;
    fds[0] = k->fcgi_listen;
    fds[1] = k->spool_dir;
    return 0;
}

/* A worker that exits with status 0 and was serving nothing had been asked to end: that is no loss. */
static void exited(struct keeper *k, struct helper *h, int status)
{
    h->lost = state_worker_release(k->state, h->slot);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && h->lost == 0)
        h->draining = true;
    if (!h->draining)
        state_count(k->state, STATE_KEEPER, COUNT_WORKER_DEATHS, 1);
}

const struct helper_kind worker_kind = {
    .name = "worker",
    .program = "cove-worker",
    .takeover = DRAINS_FOR_THE_NEXT,
    .give = give,
    .exited = exited,
};

/* ------------------------------------------------------------------ the right number of them */

/* How many workers there should be. Called after each event, so the cpus, which are read from a file, are
 * counted only once. */
static uint64_t wanted(const struct keeper *k)
{
    static long cpus;

    if (k->config.workers)
        return k->config.workers;
    if (cpus == 0)
        cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > 64 ? 64 : (uint64_t)cpus;
}

static uint64_t count_serving(const struct keeper *k)
{
    uint64_t serving = 0;

    for (int i = 0; i < WORKER_SLOTS; i++)
        serving += k->workers[i].pid != 0 && !k->workers[i].draining;
    return serving;
}

static struct helper *find_free(struct keeper *k)
{
    for (int i = 0; i < WORKER_SLOTS; i++)
        if (!k->workers[i].pid)
            return &k->workers[i];
    return NULL;
}

void workers_start(struct keeper *k)
{
    struct cove_err err = { 0 };

    for (uint64_t serving = count_serving(k), want = wanted(k); serving < want; serving++) {
        struct helper *h = find_free(k);

        if (!h)
            return;
        if (helper_start(k, h, &err) < 0) {
            log_error("worker not started", &err);
            helper_end(k, h);
            k->supervisor_retry_ms = clock_boot_ms() + RESTART_PAUSE_MS;
            return;
        }
    }
}

/* SIGTERM: a worker finishes its requests. SIGINT: likewise, but streams that a client can resume elsewhere
 * (logs) end now. */
static void drain(struct keeper *k, int signo, bool strangers_only)
{
    for (int i = 0; i < WORKER_SLOTS; i++) {
        struct helper *h = &k->workers[i];

        if (!h->pid || (strangers_only && h->child))
            continue;
        h->draining = true;
        pidfd_send_signal(h->exit.fd, signo, NULL, 0);
    }
}

void workers_drain_all(struct keeper *k)
{
    drain(k, SIGTERM, false);
}

void workers_drain_old(struct keeper *k)
{
    drain(k, SIGTERM, true);
}

static bool any_running(struct keeper *k)
{
    bool any = false;

    for (int i = 0; i < WORKER_SLOTS; i++) {
        struct helper *h = &k->workers[i];
        struct pollfd p = { .fd = h->exit.fd, .events = POLLIN };

        if (h->pid && poll(&p, 1, 0) == 1)
            h->exit.ready(&h->exit, EPOLLIN);
        any |= h->pid != 0;
    }
    return any;
}

/* The caller has ended all sandboxes before, so that requests end by themselves. */
void workers_stop(struct keeper *k)
{
    uint64_t until = clock_boot_ms() + DRAIN_MS;

    drain(k, SIGINT, false);
    while (any_running(k) && clock_boot_ms() < until)
        poll(NULL, 0, 5);
    for (int i = 0; i < WORKER_SLOTS; i++)
        helper_kill(&k->workers[i]);
    while (any_running(k))
        poll(NULL, 0, 5);
}

/* ------------------------------------------------------------------ those of the keeper before */

/* Workers that an earlier keeper left go on serving until ours are up. Slots of workers that have ended
 * become free. */
void workers_adopt(struct keeper *k)
{
    for (uint32_t i = 0; i < WORKER_SLOTS; i++) {
        struct helper *h = &k->workers[i];
        pid_t pid;
        int pidfd = helper_find_old(k, h, &pid);

        if (pidfd < 0 || helper_watch(k, h, pid, pidfd, -1, NULL) < 0)
            state_worker_release(k->state, i);
        else
            h->draining = true;
    }
}
