/* cove-builder, the process that builds templates for tenants. It asks the keeper for sandboxes and
 * snapshots on the same socket as workers do, so its row allows it no further messages. */
#include <stdio.h>
#include <sys/socket.h>

#include "cove/file.h"
#include "sandbox/keeper/keeper_private.h"

/* Gives it its directory, whose path it may not be allowed to walk, and the socket that workers ask on. The
 * socket stays when cove-builder is replaced. */
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
