/* cove-auth, the process that knows passwords: runs while pam_service is set. */
#include <stdio.h>
#include <sys/socket.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"

/* The capabilities that PAM modules need: to read the shadow file, to change their user, to write to the
 * kernel's audit log. */
static const cap_value_t kept[] = { CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SETUID,
                                    CAP_SETGID,       CAP_AUDIT_WRITE,     CAP_KILL };

static bool wanted(const struct keeper *k)
{
    return k->config.pam_service[0] != '\0';
}

/* The socket that workers ask on; it stays when cove-auth is replaced. */
static int give(struct keeper *k, int fds[HELPER_FDS], struct cove_err *e)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/auth.sock", k->config.run_dir);
    if (k->auth_listen < 0 && unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 64, k->worker_gid,
                                          &k->auth_listen, e) < 0)
        return -1;
    fds[3] = k->auth_listen;
    return 0;
}

/* Replaced at every reload, because PAM's own files may have changed as well. */
static bool outdated(const struct cove_config *a, const struct cove_config *b)
{
    (void)a;
    (void)b;
    return true;
}

const struct helper_kind auth_kind = {
    .name = "auth",
    .program = "cove-auth",
    .capabilities = kept,
    .capability_count = ARRAY_SIZE(kept),
    .takeover = DIES_WITH_KEEPER,
    .wanted = wanted,
    .outdated = outdated,
    .give = give,
};
