/* Workers: started without any privilege, supervised, replaced when they die, drained when the
 * configuration changes. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

enum { RESTART_PAUSE_MS = 500, QUICK_DEATH_MS = 2000, DRAIN_MS = 10000 };

/* ------------------------------------------------------------------ the FastCGI socket */

/* The new socket is bound beside the old one and moved over it: at no time is there none to connect
 * to. */
int workers_listen(struct keeper *k, struct cove_err *e)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    char path[160];
    AUTO_CLOSE int sock = -1;

    snprintf(path, sizeof(path), "%s/fcgi.sock", k->config.run_dir);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/fcgi.new", k->config.run_dir);
    k->fcgi_listen = fdstore_take_socket(&k->fdstore, "fcgi", SOCK_STREAM, path, path);
    if (k->fcgi_listen < 0)
        k->fcgi_listen =
            fdstore_take_socket(&k->fdstore, "fcgi-own", SOCK_STREAM, addr.sun_path, path);
    if (k->fcgi_listen >= 0)
        return 0; /* connections that came while there was no keeper wait in it */
    sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "FastCGI socket");
    unlink(addr.sun_path);
    if (bind(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        chown(addr.sun_path, (uid_t)-1, k->socket_gid) < 0 || chmod(addr.sun_path, 0660) < 0 ||
        listen(sock, 4096) < 0 || rename(addr.sun_path, path) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "FastCGI socket %s", path);
    k->fcgi_listen = take_fd(&sock);
    fdstore_put(&k->fdstore, "fcgi-own", k->fcgi_listen);
    return 0;
}

/* ------------------------------------------------------------------ starting one */

int workers_config(const struct keeper *k, struct cove_err *e)
{
    AUTO_CLOSE int fd = memfd_create("cove-config", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || write(fd, &k->config, sizeof(k->config)) != sizeof(k->config) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "configuration for the worker");
    return take_fd(&fd);
}

/* Nothing is left of root's rights, and nothing in the worker could bring them back. */
static int drop_privileges(uid_t uid, gid_t gid)
{
    cap_t none = cap_init();

    for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
        prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    if (!none || setgroups(1, &gid) < 0 || setresgid(gid, gid, gid) < 0 ||
        setresuid(uid, uid, uid) < 0 || cap_set_proc(none) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    cap_free(none);
    return 0;
}

/* A program of ours, without privileges: in[] become its descriptors 0, 1, 3 and 4; 2 is the log.
 */
void workers_become(struct keeper *k, int exe_fd, char *const argv[], const int in[4])
{
    char *const env[] = { "LC_ALL=C.UTF-8", NULL };
    int high[4], exe = fcntl(exe_fd, F_DUPFD_CLOEXEC, 100);
    sigset_t no_signals;

    for (int i = 0; i < 4; i++)
        high[i] =
            in[i] < 0 ? open("/dev/null", O_RDWR | O_CLOEXEC) : fcntl(in[i], F_DUPFD_CLOEXEC, 100);
    sigemptyset(&no_signals);
    sigprocmask(SIG_SETMASK, &no_signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    setsid();
    if (dup2(high[0], 0) == 0 && dup2(high[1], 1) == 1 && dup2(high[2], 3) == 3 &&
        dup2(high[3], 4) == 4 && drop_privileges(k->worker_uid, k->worker_gid) == 0)
        execveat(exe, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
}

static void become_worker(struct keeper *k, uint32_t index, int config_fd)
{
    char title[32];
    char *const argv[] = { title, NULL };
    const int in[] = { k->fcgi_listen, -1, config_fd, -1 };

    snprintf(title, sizeof(title), "cove: worker %u", index);
    workers_become(k, k->worker_exe, argv, in);
}

static void become_judge(struct keeper *k, int config_fd, int sock)
{
    char *const argv[] = { "cove: judge", NULL };
    const int in[] = { -1, -1, config_fd, sock };

    workers_become(k, k->judge_exe, argv, in);
}

int workers_watch(struct keeper *k, struct worker *w, pid_t pid, enum source kind, uint32_t index,
                  struct cove_err *e)
{
    *w = (struct worker){
        .pid = pid,
        .pidfd = pidfd_open(pid, 0),
        .began_ms = clock_boot_ms(),
        .child = true,
    };
    if (w->pidfd >= 0)
        fcntl(w->pidfd, F_SETFD, FD_CLOEXEC);
    return keeper_watch(k, w->pidfd, kind, index, e);
}

static int start_one(struct keeper *k, uint32_t index, struct cove_err *e)
{
    AUTO_CLOSE int config_fd = workers_config(k, e);
    pid_t pid;

    if (config_fd < 0)
        return -1;
    pid = fork();
    if (pid < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "fork");
    if (pid == 0)
        become_worker(k, index, config_fd);
    return workers_watch(k, &k->workers[index], pid, SRC_WORKER, index, e);
}

/* ------------------------------------------------------------------ the judge */

void workers_tell_judge(struct keeper *k, uint32_t box)
{
    struct judge_box m = { .index = box };

    text_copy(m.id, sizeof(m.id), k->boxes[box].info.id);
    /* One that does not read is of no use: it is replaced, and the next one hears of all boxes. */
    if (k->judge.pid && msg_send(k->judge_sock, JUDGE_BOX, 0, &m, sizeof(m), NULL, 0, NULL, 0,
                                 MSG_DONTWAIT, NULL) < 0)
        pidfd_send_signal(k->judge.pidfd, SIGKILL, NULL, 0);
}

static bool runs(uint32_t state)
{
    return state == BOX_WARM || state == BOX_LIVE || state == BOX_AGEING || state == BOX_FROZEN;
}

static int start_judge(struct keeper *k, struct cove_err *e)
{
    AUTO_CLOSE int config_fd = workers_config(k, e);
    int pair[2], size = 4 << 20;
    pid_t pid;

    if (config_fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "judge");
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    pid = fork();
    if (pid == 0)
        become_judge(k, config_fd, pair[1]);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return cove_fail_errno(e, COVE_INTERNAL, "fork");
    }
    k->judge_sock = pair[0];
    if (workers_watch(k, &k->judge, pid, SRC_JUDGE, 0, e) < 0)
        return -1;
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (runs(k->boxes[i].info.state))
            workers_tell_judge(k, i);
    return 0;
}

static void end_judge(struct keeper *k)
{
    keeper_unwatch(k, k->judge.pidfd);
    cove_close(k->judge.pidfd);
    k->judge_sock = cove_close(k->judge_sock);
    waitpid(k->judge.pid, NULL, 0);
    k->judge = (struct worker){ 0 };
}

/* Something that dies as soon as it starts is not started again in a tight loop. */
void workers_pause_after(struct keeper *k, const struct worker *dead)
{
    uint64_t now = clock_boot_ms();

    if (now - dead->began_ms < QUICK_DEATH_MS)
        k->worker_retry_ms = now + RESTART_PAUSE_MS;
}

void workers_on_judge_exit(struct keeper *k)
{
    log_event(LOG_LEVEL_ERROR, "judge died", LOG_N("pid", k->judge.pid));
    workers_pause_after(k, &k->judge);
    end_judge(k);
    workers_start(k);
}

/* ------------------------------------------------------------------ keeping the right number of
 * them */

static uint64_t wanted(const struct keeper *k)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    if (k->config.workers)
        return k->config.workers;
    return cpus < 1 ? 1 : cpus > 64 ? 64 : (uint64_t)cpus;
}

static int free_slot_of(const struct keeper *k)
{
    for (int i = 0; i < WORKER_SLOTS; i++)
        if (k->workers[i].pid == 0)
            return i;
    return -1;
}

void workers_start(struct keeper *k)
{
    uint64_t running = 0, want = wanted(k);
    struct cove_err err = { 0 };

    if (k->stopping || clock_boot_ms() < k->worker_retry_ms)
        return;
    if (!k->judge.pid && start_judge(k, &err) < 0) {
        log_error("judge not started", &err);
        k->worker_retry_ms = clock_boot_ms() + RESTART_PAUSE_MS;
    }
    if (signin_start(k, &err) < 0) {
        log_error("cove-auth not started", &err);
        k->worker_retry_ms = clock_boot_ms() + RESTART_PAUSE_MS;
    }
    if (names_start(k, &err) < 0) {
        log_error("resolver not started", &err);
        k->worker_retry_ms = clock_boot_ms() + RESTART_PAUSE_MS;
    }
    if (gate_start(k, &err) < 0) {
        log_error("gate not started", &err);
        k->worker_retry_ms = clock_boot_ms() + RESTART_PAUSE_MS;
    }
    for (int i = 0; i < WORKER_SLOTS; i++)
        running += k->workers[i].pid != 0 && !k->workers[i].draining;
    for (; running < want; running++) {
        int slot = free_slot_of(k);

        if (slot < 0)
            return;
        if (start_one(k, (uint32_t)slot, &err) < 0) {
            log_error("worker not started", &err);
            k->worker_retry_ms = clock_boot_ms() + RESTART_PAUSE_MS;
            return;
        }
    }
}

/* SIGTERM: answer what is running. SIGINT: the same, but what could go on elsewhere (log streams)
 * ends now. */
static void drain(struct worker *w, int signo)
{
    w->draining = true;
    pidfd_send_signal(w->pidfd, signo, NULL, 0);
}

static void drain_all(struct keeper *k, int signo)
{
    for (int i = 0; i < WORKER_SLOTS; i++)
        if (k->workers[i].pid)
            drain(&k->workers[i], signo);
}

void workers_drain_all(struct keeper *k)
{
    drain_all(k, SIGTERM);
}

void workers_on_exit(struct keeper *k, uint32_t index)
{
    struct worker *w = &k->workers[index];
    uint32_t held = state_worker_release(k->state, index);
    uint64_t now = clock_boot_ms();
    int status = 0;

    keeper_unwatch(k, w->pidfd);
    w->pidfd = cove_close(w->pidfd);
    if (w->child)
        waitpid(w->pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && held == 0)
        w->draining = true; /* somebody asked it to go, and it went */
    if (!w->draining) {
        log_event(LOG_LEVEL_ERROR, "worker died", LOG_N("worker", index), LOG_N("pid", w->pid),
                  LOG_N("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0),
                  LOG_N("exit_code", WIFEXITED(status) ? WEXITSTATUS(status) : 0),
                  LOG_N("requests_lost", held));
        state_count(k->state, STATE_KEEPER, COUNT_WORKER_DEATHS, 1);
        if (now - w->began_ms < QUICK_DEATH_MS)
            k->worker_retry_ms =
                now + RESTART_PAUSE_MS; /* something is wrong: not in a tight loop */
    }
    *w = (struct worker){ 0 };
    workers_start(k);
}

static bool any_running(struct keeper *k)
{
    bool any = false;

    for (uint32_t i = 0; i < WORKER_SLOTS; i++) {
        struct pollfd p = { .fd = k->workers[i].pidfd, .events = POLLIN };

        if (!k->workers[i].pid)
            continue;
        if (poll(&p, 1, 0) == 1)
            workers_on_exit(k, i);
        else
            any = true;
    }
    return any;
}

/*
 * Sandboxes die first (the caller sees to it), so that requests end by themselves. When they are
 * left to a successor, so are judge, gate and resolver: what runs in them goes on calling execve
 * and asking for names, and talks to those who are connected.
 */
void workers_stop(struct keeper *k, bool leave_rest)
{
    uint64_t until = clock_boot_ms() + DRAIN_MS;

    signin_stop(k);
    drain_all(k, SIGINT);
    while (any_running(k) && clock_boot_ms() < until)
        poll(NULL, 0, 5);
    for (int i = 0; i < WORKER_SLOTS; i++)
        if (k->workers[i].pid)
            pidfd_send_signal(k->workers[i].pidfd, SIGKILL, NULL, 0);
    while (any_running(k))
        poll(NULL, 0, 5);
    if (!leave_rest)
        gate_stop(k);
    if (k->judge.pid && !leave_rest) {
        pidfd_send_signal(k->judge.pidfd, SIGKILL, NULL, 0);
        end_judge(k);
    }
    if (!leave_rest)
        names_stop(k);
}
