/*
 * The one supervisor of all other processes of cove. A kind of helper is a row (struct helper_kind):
 * its program, its privilege, the descriptors it gets, what it may ask of the keeper, and what
 * becomes of it when the keeper goes. Started, watched, replaced when it dies, ended and taken over:
 * all of that is here, but for the steps of the new process itself (supervisor_child.c). What is particular to one
 * kind stands in helper_NAME.c.
 *
 * <run_dir>/helpers/ has a file for each running helper with its pid and its start time. Only root
 * can write there, so a keeper that was restarted takes nobody else's word for which processes are
 * its helpers.
 */
#include "sandbox/keeper/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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

enum { RESTART_PAUSE_MS = 500, QUICK_DEATH_MS = 2000, MESSAGES_AT_ONCE = 64 };

static const struct helper_kind *const kinds[HELPERS] = {
    [HELPER_JUDGE] = &judge_kind,       [HELPER_AUTH] = &auth_kind,
    [HELPER_RESOLVER] = &resolver_kind, [HELPER_GATE] = &gate_kind,
    [HELPER_STARTER] = &starter_kind,   [HELPER_FETCH] = &fetch_kind,
    [HELPER_BUILDER] = &builder_kind,
};

static struct keeper *keeper_of(const struct watch *w)
{
    return container_of(w->loop, struct keeper, loop);
}

/* ------------------------------------------------------------------ the file with its pid */

static void pid_path(const struct keeper *k, const struct helper *h, char out[160])
{
    if (h->kind == &worker_kind)
        snprintf(out, 160, "%s/" HELPERS_DIR "/%s-%u", k->config.run_dir, h->kind->name, h->slot);
    else
        snprintf(out, 160, "%s/" HELPERS_DIR "/%s", k->config.run_dir, h->kind->name);
}

static void write_pid(const struct keeper *k, const struct helper *h)
{
    char path[160], text[48];
    AUTO_CLOSE int fd = -1;

    pid_path(k, h, path);
    snprintf(text, sizeof(text), "%d %llu\n", (int)h->pid,
             (unsigned long long)process_start_time(h->pid));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        log_event(LOG_LEVEL_WARN, "pid of a helper not written", LOG_S("file", path));
}

static void remove_pid(const struct keeper *k, const struct helper *h)
{
    char path[160];

    pid_path(k, h, path);
    unlink(path);
}

/* A pidfd of the helper that an earlier keeper started, if that still runs; else -1. The pidfd is opened
 * before the start time is compared, so it cannot stand for another process that has the same pid now. */
int helper_find_old(const struct keeper *k, const struct helper *h, pid_t *ret_pid)
{
    unsigned long long start = 0;
    AUTO_CLOSE int pidfd = -1;
    char path[160], text[48];
    int pid = 0;

    pid_path(k, h, path);
    if (read_file_at(AT_FDCWD, path, text, sizeof(text)) < 0 ||
        sscanf(text, "%d %llu", &pid, &start) != 2 || pid <= 1 || start == 0)
        return -1;
    pidfd = pidfd_open(pid, 0);
    if (pidfd < 0 || process_start_time(pid) != start)
        return -1;
    fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    *ret_pid = pid;
    return take_fd(&pidfd);
}

/* ------------------------------------------------------------------ starting one */

/* The configuration in a sealed file, which nobody can change. */
static int config_memfd(const struct keeper *k, struct cove_err *e)
{
    AUTO_CLOSE int fd = memfd_create("cove-config", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || write(fd, &k->config, sizeof(k->config)) != sizeof(k->config) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "configuration for a helper");
    return take_fd(&fd);
}

static int make_pair(const struct helper_kind *kind, int *ret_ours, int *ret_theirs,
                     struct cove_err *e)
{
    int pair[2], size = kind->queue_bytes;

    if (!kind->has_socket)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "socket to a helper");
    if (size)
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    *ret_ours = pair[0];
    *ret_theirs = pair[1];
    return 0;
}

static void on_exit_of(struct watch *w, uint32_t events);
static void on_message_of(struct watch *w, uint32_t events);

/* Watches a running process. pidfd and sock belong to the helper from here on. */
int helper_watch(struct keeper *k, struct helper *h, pid_t pid, int pidfd, int sock,
                 struct cove_err *e)
{
    h->pid = pid;
    h->began_ms = clock_boot_ms();
    if (watch_start(&k->loop, &h->exit, pidfd, EPOLLIN, on_exit_of) < 0 ||
        (sock >= 0 &&
         watch_start(&k->loop, &h->sock, sock, h->kind->asks ? EPOLLIN : 0, on_message_of) < 0))
        return cove_fail_errno(e, COVE_INTERNAL, "watching %s", h->kind->name);
    return 0;
}

int helper_start(struct keeper *k, struct helper *h, struct cove_err *e)
{
    AUTO_CLOSE int config = config_memfd(k, e);
    AUTO_CLOSE int ours = -1;
    AUTO_CLOSE int theirs = -1;
    int pidfd;
    pid_t pid;

    if (config < 0 || make_pair(h->kind, &ours, &theirs, e) < 0)
        return -1;
    int fds[HELPER_FDS] = { -1, -1, config, theirs };

    if (h->kind->give && h->kind->give(k, fds, e) < 0)
        return -1;
    pid = fork();
    if (pid < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "fork");
    if (pid == 0)
        helper_become(k, h, fds);
    pidfd = pidfd_open(pid, 0);
    if (pidfd >= 0)
        fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    h->child = true;
    h->draining = false;
    if (helper_watch(k, h, pid, pidfd, take_fd(&ours), e) < 0)
        return -1;
    write_pid(k, h);
    if (h->kind->started)
        h->kind->started(k);
    return 0;
}

/* ------------------------------------------------------------------ its end */

static int reap(struct keeper *k, struct helper *h)
{
    int status = 0;

    watch_close(&h->exit);
    watch_close(&h->sock);
    if (h->child)
        waitpid(h->pid, &status, 0);
    remove_pid(k, h);
    h->pid = 0;
    h->child = false;
    return status;
}

static void tell_of_death(struct keeper *k, const struct helper *h, pid_t pid, int status)
{
    uint64_t now = clock_boot_ms();
    char event[48];

    snprintf(event, sizeof(event), "%s died", h->kind->name);
    log_event(LOG_LEVEL_ERROR, event, LOG_N("helper", h->slot), LOG_N("pid", pid),
              LOG_N("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0),
              LOG_N("exit_code", WIFEXITED(status) ? WEXITSTATUS(status) : 0),
              LOG_N("requests_lost", h->lost));
    /* A helper that dies as soon as it was started is not started again at once, in a tight loop. */
    if (now - h->began_ms < QUICK_DEATH_MS)
        k->supervisor_retry_ms = now + RESTART_PAUSE_MS;
}

static void on_exit_of(struct watch *w, uint32_t events)
{
    struct helper *h = container_of(w, struct helper, exit);
    struct keeper *k = keeper_of(w);
    pid_t pid = h->pid;
    int status = reap(k, h);

    (void)events;
    if (h->kind->exited)
        h->kind->exited(k, h, status);
    if (!h->draining)
        tell_of_death(k, h, pid, status);
    supervisor_start(k);
}

void helper_signal(struct helper *h, int signo)
{
    if (h->pid)
        pidfd_send_signal(h->exit.fd, signo, NULL, 0);
}

void helper_kill(struct helper *h)
{
    helper_signal(h, SIGKILL);
}

void helper_end(struct keeper *k, struct helper *h)
{
    if (!h->pid)
        return;
    helper_kill(h);
    reap(k, h);
}

/* ------------------------------------------------------------------ messages */

int helper_tell(struct helper *h, uint32_t type, const void *body, size_t len, const int *fds,
                size_t fd_count)
{
    struct cove_err err = { 0 };

    if (!watch_is_on(&h->sock))
        return -1;
    if (msg_send(h->sock.fd,
                 &(struct msg_out){ type, .body = body, .body_len = len, .fds = fds,
                                    .fd_count = fd_count },
                 MSG_DONTWAIT, &err) == 0)
        return 0;
    if (err.code != COVE_BUSY || !h->kind->may_be_slow)
        helper_kill(h);
    return -1;
}

static void answer(struct helper *h, struct msg *m)
{
    struct keeper *k = keeper_of(&h->sock);
    struct cove_err err = { 0 };
    int rc = h->kind->answer(k, m, &err);

    msg_close_fds(m);
    msg_send(h->sock.fd,
             &(struct msg_out){ rc < 0 ? MSG_ERROR : MSG_DONE, .tag = m->head.tag,
                                .body = rc < 0 ? &err : NULL,
                                .body_len = rc < 0 ? sizeof(err) : 0 },
             MSG_DONTWAIT, NULL);
}

/* A helper that sends a message which its row does not allow may be in hostile hands: it is replaced. */
static void on_message_of(struct watch *w, uint32_t events)
{
    struct helper *h = container_of(w, struct helper, sock);

    (void)events;
    for (int i = 0; i < MESSAGES_AT_ONCE && watch_is_on(w); i++) {
        struct cove_err err = { 0 };
        char buf[1024];
        struct msg m;
        int rc = msg_recv(w->fd, buf, sizeof(buf), h->kind->asks, MSG_DONTWAIT, &m, &err);

        if (rc < 0 && err.code == COVE_BUSY)
            return;
        if (rc != 1) {
            watch_want(w, 0); /* its end is noticed by its pidfd */
            helper_kill(h);
            return;
        }
        answer(h, &m);
    }
}

/* ------------------------------------------------------------------ all of them */

static int open_exe(const struct keeper *k, struct helper *h, struct cove_err *e)
{
    char path[640];

    snprintf(path, sizeof(path), "%s/%s", k->config.libexec_dir, h->kind->program);
    h->exe = open(path, O_PATH | O_CLOEXEC);
    return h->exe < 0 ? cove_fail_errno(e, COVE_INVALID, "%s", path) : 0;
}

int supervisor_init(struct keeper *k, struct cove_err *e)
{
    for (int i = 0; i < HELPERS; i++) {
        k->helpers[i] = (struct helper){ .kind = kinds[i] };
        if (open_exe(k, &k->helpers[i], e) < 0)
            return -1;
    }
    k->workers[0] = (struct helper){ .kind = &worker_kind };
    if (open_exe(k, &k->workers[0], e) < 0)
        return -1;
    for (uint32_t i = 1; i < WORKER_SLOTS; i++)
        k->workers[i] =
            (struct helper){ .kind = &worker_kind, .slot = i, .exe = k->workers[0].exe };
    return 0;
}

static bool is_wanted(const struct keeper *k, const struct helper_kind *kind)
{
    return !kind->wanted || kind->wanted(k);
}

static void start_or_log(struct keeper *k, struct helper *h)
{
    AUTO_CLOSE int old = -1;
    struct cove_err err = { 0 };
    char event[48];
    pid_t pid;

    if (h->kind->takeover == IS_REPLACED)
        old = helper_find_old(k, h, &pid);
    if (is_wanted(k, h->kind) && helper_start(k, h, &err) < 0) {
        snprintf(event, sizeof(event), "%s not started", h->kind->name);
        log_error(event, &err);
        helper_end(k, h);
        k->supervisor_retry_ms = clock_boot_ms() + RESTART_PAUSE_MS;
        return;
    }
    if (old >= 0)
        pidfd_send_signal(old, SIGKILL, NULL, 0);
}

void supervisor_reload(struct keeper *k, const struct cove_config *old)
{
    for (int i = 0; i < HELPERS; i++) {
        const struct helper_kind *kind = k->helpers[i].kind;

        if (kind->outdated && kind->outdated(old, &k->config))
            helper_end(k, &k->helpers[i]);
    }
}

void supervisor_start(struct keeper *k)
{
    if (k->stopping || clock_boot_ms() < k->supervisor_retry_ms)
        return;
    for (int i = 0; i < HELPERS; i++)
        if (!k->helpers[i].pid && (is_wanted(k, k->helpers[i].kind) || !k->supervised))
            start_or_log(k, &k->helpers[i]);
    k->supervised = true;
    for (int i = 0; i < HELPERS; i++)
        if (k->helpers[i].pid && !is_wanted(k, k->helpers[i].kind))
            helper_end(k, &k->helpers[i]);
    workers_start(k);
}

/*
 * When sandboxes are left to the next keeper, so are the helpers that outlive a keeper: processes in sandboxes
 * still call execve, ask for names and have connections. Workers end first, because requests that they finish
 * may need a helper.
 */
void supervisor_stop(struct keeper *k, bool leave_rest)
{
    workers_stop(k);
    for (int i = 0; i < HELPERS; i++)
        if (!leave_rest || k->helpers[i].kind->takeover == DIES_WITH_KEEPER)
            helper_end(k, &k->helpers[i]);
}
