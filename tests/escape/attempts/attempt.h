/* What attempts share. Exit 0: got what no sandbox should get. Exit 1: refused. Anything else: the
 * attempt itself is broken. */
#ifndef ATTEMPT_H
#define ATTEMPT_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ESCAPED, REFUSED };

static inline int refused(const char *what)
{
    printf("refused: %s: %s\n", what, strerror(errno));
    return REFUSED;
}

static inline int verdict(long rc, const char *what)
{
    if (rc < 0)
        return refused(what);
    printf("ESCAPED: %s gave %ld\n", what, rc);
    return ESCAPED;
}

#define TRY(call) verdict((long)(call), #call)

/* The same for a call that asks who may before it looks at its arguments: one of these errors means that it was allowed, and only what
 * was asked for cannot be done. */
static inline int verdict_past(long rc, const char *what, const int *past)
{
    for (int why = errno; rc < 0 && *past; past++)
        if (why == *past)
            return verdict(0, what);
    return verdict(rc, what);
}

#define PAST(call, ...) verdict_past((long)(call), #call, (const int[]){ __VA_ARGS__, 0 })

/* What the runner tells: SECRET, HOST_PORT, ... */
static inline const char *world(const char *name)
{
    return getenv(name) ? getenv(name) : "";
}

static inline int read_to_stdout(const char *path)
{
    char bytes[4096];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

    if (n <= 0)
        return refused(path);
    fwrite(bytes, 1, (size_t)n, stdout);
    return ESCAPED;
}

#endif
