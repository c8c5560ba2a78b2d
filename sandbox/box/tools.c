/* Small calls to the system that the keeper's files need. */
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/box/tools.h"

/* Field 22 of /proc/PID/stat; the name in field 2 may hold blanks and brackets, so count from its
 * end. */
uint64_t process_start_time(pid_t pid)
{
    char path[32], text[1024], *at;
    uint64_t ticks = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (read_file_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return 0;
    at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at)
        ticks = strtoull(at + 1, NULL, 10);
    return ticks;
}

int resolve_user(const char *name, uid_t *ret_uid, gid_t *ret_gid, struct cove_err *e)
{
    struct passwd *pw;
    uint64_t number;

    if (text_parse_u64(name, &number, NULL) == 0 && number > 0 && number < UINT32_MAX) {
        *ret_uid = (uid_t)number;
        *ret_gid = (gid_t)number;
        return 0;
    }
    pw = getpwnam(name);
    if (!pw)
        return cove_fail(e, COVE_INVALID, "worker_user: there is no user '%s'", name);
    if (pw->pw_uid == 0)
        return cove_fail(e, COVE_INVALID, "worker_user: workers do not run as root");
    *ret_uid = pw->pw_uid;
    *ret_gid = pw->pw_gid;
    return 0;
}

int resolve_group(const char *name, gid_t *ret, struct cove_err *e)
{
    struct group *gr;
    uint64_t number;

    if (text_parse_u64(name, &number, NULL) == 0 && number < UINT32_MAX) {
        *ret = (gid_t)number;
        return 0;
    }
    gr = getgrnam(name);
    if (!gr)
        return cove_fail(e, COVE_INVALID, "socket_group: there is no group '%s'", name);
    *ret = gr->gr_gid;
    return 0;
}

int fd_raise(int fd, int least)
{
    int high = fd < least ? fcntl(fd, F_DUPFD_CLOEXEC, least) : -1;

    if (high < 0)
        return fd;
    close(fd);
    return high;
}

/* ------------------------------------------------------------------ the name in ps */

static char *title_area;
static size_t title_size;

/* The title may overwrite argv's strings and the part of the environment that lies right behind them. */
void title_init(int argc, char **argv)
{
    char *end;

    if (argc < 1 || !argv[0])
        return;
    end = argv[0] + strlen(argv[0]) + 1;
    for (int i = 1; i < argc; i++)
        if (argv[i] == end)
            end += strlen(argv[i]) + 1;
    for (char **env = environ; env && *env; env++) {
        char *moved;

        if (*env != end)
            break;
        end += strlen(*env) + 1;
        moved = strdup(*env); /* lives as long as the process */
        if (moved)
            *env = moved;
    }
    title_area = argv[0];
    title_size = (size_t)(end - argv[0]);
}

void title_set(const char *title)
{
    prctl(PR_SET_NAME, title);
    if (title_size < 2)
        return;
    memset(title_area, 0, title_size);
    text_copy(title_area, title_size, title);
}
