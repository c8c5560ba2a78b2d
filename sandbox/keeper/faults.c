/*
 * For tests: COVE_FAULT in the keeper's environment names a file, and that file contains the name of a point.
 * When the keeper comes to that point, it kills itself. If the name ends in ":init", the keeper instead kills
 * the init of the sandbox that it is working on, waits until that init has died, and goes on. Nothing else
 * reads the variable, and only whoever starts the keeper can set it.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "cove/file.h"
#include "sandbox/keeper/keeper_private.h"

static void kill_init(const struct box *b)
{
    struct pollfd exit = { .fd = b->build.pidfd, .events = POLLIN };

    if (exit.fd >= 0 && pidfd_send_signal(exit.fd, SIGKILL, NULL, 0) == 0)
        poll(&exit, 1, -1);
}

void fault_point(const char *name, const struct box *b)
{
    const char *path = getenv("COVE_FAULT");
    size_t len = strlen(name);
    char wanted[64];

    if (!path || read_file_at(AT_FDCWD, path, wanted, sizeof(wanted)) <= 0 ||
        strncmp(wanted, name, len) != 0)
        return;
    if (!wanted[len])
        kill(getpid(), SIGKILL);
    if (b && strcmp(wanted + len, ":init") == 0)
        kill_init(b);
}
