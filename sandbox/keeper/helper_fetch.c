/* cove-fetch, the process that downloads and uploads for clients. It knows no sandbox: a worker hands it an
 * open file with each fetch. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "cove/file.h"
#include "sandbox/keeper/keeper_private.h"

/* The socket that workers ask on; it stays when cove-fetch is replaced. */
static int give(struct keeper *k, int fds[HELPER_FDS], struct cove_err *e)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/fetch.sock", k->config.run_dir);
    if (k->fetch_listen < 0 && unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 64, k->worker_gid,
                                           &k->fetch_listen, e) < 0)
        return -1;
    fds[3] = k->fetch_listen;
    return 0;
}

/* A fetch under way is not worth ending for a new key: cove-fetch is replaced when its own settings change. */
static bool outdated(const struct cove_config *a, const struct cove_config *b)
{
    return strcmp(a->fetch_allow, b->fetch_allow) != 0 || strcmp(a->log_level, b->log_level) != 0 ||
           a->fetch_max_bytes != b->fetch_max_bytes || a->fetch_timeout_ms != b->fetch_timeout_ms ||
           a->fetch_rate_bytes != b->fetch_rate_bytes || a->fetch_tenant != b->fetch_tenant;
}

const struct helper_kind fetch_kind = {
    .name = "fetch",
    .program = "cove-fetch",
    .takeover = DIES_WITH_KEEPER,
    .outdated = outdated,
    .give = give,
};
