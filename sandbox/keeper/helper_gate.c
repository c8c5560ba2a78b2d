/*
 * The gate process. The keeper owns what must outlive it: the socket workers ask on, the socket to
 * which nginx sends traffic of host names, and the file that remembers which ports are bound. A gate
 * that an earlier keeper left behind has connections, and ports that it listens on: the new gate gets
 * a connection to it and takes them over.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/msg_gate.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"

int gate_listen(struct keeper *k, struct cove_err *e)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/gate.bindings", k->config.run_dir);
    k->gate_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (k->gate_file < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    snprintf(path, sizeof(path), "%s/ports.sock", k->config.run_dir);
    if (unix_listen(path, SOCK_STREAM | SOCK_NONBLOCK, 4096, k->socket_gid, &k->gate_hosts, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/gate.sock", k->config.run_dir);
    k->gate_before = unix_connect(path, SOCK_SEQPACKET);
    return unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 128, k->worker_gid, &k->gate_listen,
                       e);
}

static int give(struct keeper *k, int fds[HELPER_FDS], struct cove_err *e)
{
    (void)e;
    fds[0] = k->gate_listen;
    fds[1] = k->gate_file;
    return 0;
}

/* Hands over nginx's socket and the connection to the earlier gate. No other messages follow: later the socket only
 * tells the gate, by closing, that the keeper is gone. */
static void started(struct keeper *k)
{
    helper_tell(&k->helpers[HELPER_GATE], GATE_HOSTS, NULL, 0, &k->gate_hosts, 1);
    helper_tell(&k->helpers[HELPER_GATE], GATE_BEFORE, NULL, 0, &k->gate_before,
                k->gate_before >= 0);
    k->gate_before = cove_close(k->gate_before);
}

const struct helper_kind gate_kind = {
    .name = "gate",
    .program = "cove-gate",
    .takeover = LEAVES_BY_ITSELF,
    .has_socket = true,
    .give = give,
    .started = started,
};
