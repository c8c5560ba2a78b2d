/* Which instance `cove` is about: -c FILE, $COVE_CONFIG, or the installed configuration. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cove/mem.h"

#define DEFAULT_CONFIG COVE_SYSCONFDIR "/cove.conf"

static const char *chosen;

int cli_take_config(int *argc, char ***argv)
{
    while (*argc > 1 && (strcmp((*argv)[1], "-c") == 0 || strcmp((*argv)[1], "--config") == 0)) {
        if (*argc < 3)
            return cli_usage("cove [-c FILE] COMMAND ...");
        chosen = (*argv)[2];
        *argc -= 2;
        *argv += 2;
    }
    return CLI_OK;
}

const char *cli_config_path(void)
{
    const char *env = getenv("COVE_CONFIG");

    return chosen ? chosen : env && *env ? env : DEFAULT_CONFIG;
}

bool cli_is_installed(void)
{
    return strcmp(cli_config_path(), DEFAULT_CONFIG) == 0;
}

/* A machine without the installed file runs on the defaults; a file that was asked for must be
 * there. */
int cli_config(struct cove_config *ret, struct cove_err *e)
{
    const char *path = cli_config_path();

    config_default(ret);
    if (cli_is_installed() && access(path, F_OK) < 0)
        return 0;
    if (access(path, F_OK) < 0)
        return cove_fail(
            e, COVE_NOT_FOUND,
            "there is no file %.120s: name a server's cove.conf by -c FILE or $COVE_CONFIG", path);
    return config_load(path, ret, e);
}

int cli_state(const struct cove_config *c, struct state **ret, struct cove_err *e)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/state", c->run_dir);
    if (access(path, F_OK) < 0)
        return cove_fail(
            e, COVE_NOT_FOUND,
            "coved is not running (%.100s is not there): start it by `./quickstart up` "
            "or `systemctl start cove`; for another instance use `cove -c FILE`",
            path);
    return state_attach(path, ret, e);
}

bool cli_keeper_runs(const struct cove_config *c)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char path[256];
    AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof(path), "%s/coved.pid", c->run_dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
