/*
 * The gate process: started and replaced by the keeper like the judge. The keeper owns what must
 * outlive it: the socket workers ask on, and the file that remembers which ports are bound.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

enum { RESTART_PAUSE_MS = 500, QUICK_DEATH_MS = 2000 };

/* A gate that an earlier keeper left behind has connections, and ports that it listens on. */
static int find_before(const struct sockaddr_un *addr)
{
    AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (sock < 0 || connect(sock, (const struct sockaddr *)addr, sizeof(*addr)) < 0)
        return -1;
    return take_fd(&sock);
}

int gate_listen(struct keeper *k, struct cove_err *e)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    char path[160];

    snprintf(path, sizeof(path), "%s/gate.bindings", k->config.run_dir);
    k->gate_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (k->gate_file < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/gate.sock", k->config.run_dir);
    k->gate_before = find_before(&addr);
    unlink(addr.sun_path);
    k->gate_listen = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->gate_listen < 0 || bind(k->gate_listen, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        chown(addr.sun_path, (uid_t)-1, k->worker_gid) < 0 || chmod(addr.sun_path, 0660) < 0 ||
        listen(k->gate_listen, 128) < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", addr.sun_path);
    return 0;
}

static void become_gate(struct keeper *k, int config_fd, int sock)
{
    char *const argv[] = { "cove: gate", NULL };
    const int in[] = { k->gate_listen, k->gate_file, config_fd, sock };

    workers_become(k, k->gate_exe, argv, in);
}

int gate_start(struct keeper *k, struct cove_err *e)
{
    AUTO_CLOSE int config_fd = -1;
    int pair[2];
    pid_t pid;

    if (k->gate.pid)
        return 0;
    config_fd = workers_config(k, e);
    if (config_fd < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "gate");
    msg_send(pair[0], GATE_BEFORE, 0, NULL, 0, NULL, 0, &k->gate_before, k->gate_before >= 0, 0,
             NULL);
    k->gate_before = cove_close(k->gate_before);
    pid = fork();
    if (pid == 0)
        become_gate(k, config_fd, pair[1]);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return cove_fail_errno(e, COVE_INTERNAL, "fork");
    }
    k->gate_sock =
        pair[0]; /* nothing more is said on it: that it closes tells the gate that we are gone */
    return workers_watch(k, &k->gate, pid, SRC_GATE, 0, e);
}

static void end_gate(struct keeper *k)
{
    keeper_unwatch(k, k->gate.pidfd);
    cove_close(k->gate.pidfd);
    k->gate_sock = cove_close(k->gate_sock);
    waitpid(k->gate.pid, NULL, 0);
    k->gate = (struct worker){ 0 };
}

void gate_on_exit(struct keeper *k)
{
    uint64_t now = clock_boot_ms();

    log_event(LOG_LEVEL_ERROR, "gate died", LOG_N("pid", k->gate.pid));
    if (now - k->gate.began_ms < QUICK_DEATH_MS)
        k->worker_retry_ms = now + RESTART_PAUSE_MS;
    end_gate(k);
    workers_start(k);
}

void gate_stop(struct keeper *k)
{
    if (!k->gate.pid)
        return;
    pidfd_send_signal(k->gate.pidfd, SIGKILL, NULL, 0);
    end_gate(k);
}
