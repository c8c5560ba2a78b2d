/* cove-builder, the process that builds templates for tenants. It asks the keeper for sandboxes and
 * snapshots as workers do, on the same socket, and has no orders of its own here. */
#include <stdio.h>
#include <sys/socket.h>

#include "cove/file.h"
#include "sandbox/keeper/keeper_private.h"

/* Its directory, which it may not be able to reach by its path, and the socket that workers ask on, which
 * stays when cove-builder is replaced. */
static int give(struct keeper *k, int fds[HELPER_FDS], struct cove_err *e)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/builder.sock", k->config.run_dir);
    if (k->builder_listen < 0 && unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 64,
                                             k->worker_gid, &k->builder_listen, e) < 0)
        return -1;
    fds[1] = k->builds_dir;
    fds[3] = k->builder_listen;
    return 0;
}

static bool wanted(const struct keeper *k)
{
    return k->config.builds_tenant > 0;
}

const struct helper_kind builder_kind = {
    .name = "builder",
    .program = "cove-builder",
    .takeover = DIES_WITH_KEEPER,
    .wanted = wanted,
    .give = give,
};
