#include "process/process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cove/log.h"

int process_start(const char *name, struct cove_config *ret, struct cove_err *e)
{
    enum log_level level;
    char beyond;

    if (pread(PROCESS_CONFIG_FD, ret, sizeof(*ret), 0) != sizeof(*ret) ||
        pread(PROCESS_CONFIG_FD, &beyond, 1, sizeof(*ret)) != 0)
        return cove_fail(e, COVE_INTERNAL, "fd %d does not hold this version's configuration",
                         PROCESS_CONFIG_FD);
    close(PROCESS_CONFIG_FD);
    if (log_level_parse(ret->log_level, &level, NULL) == 0)
        log_set_level(level);
    prctl(PR_SET_NAME, name);
    prctl(PR_SET_DUMPABLE, 0);
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

void process_raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}
