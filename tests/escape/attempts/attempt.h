/* What attempts share. Exit 0: got what no sandbox should get. Exit 1: refused. Anything else: the
 * attempt itself is broken. */
#ifndef ATTEMPT_H
#define ATTEMPT_H

#include <dirent.h>
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

/* A process by its name, once it is there: the launcher and the process that waits for the next command are made a moment after
 * a command has begun (sandbox/init/spare.c). */
static inline pid_t process_called(const char *name)
{
    for (int tries = 0; tries < 500; tries++, usleep(10000)) {
        DIR *proc = opendir("/proc");
        pid_t found = 0;

        for (struct dirent *d = readdir(proc); d && !found; d = readdir(proc)) {
            char path[300], comm[32] = "";
            int fd;

            snprintf(path, sizeof(path), "/proc/%s/comm", d->d_name);
            fd = open(path, O_RDONLY);
            if (fd < 0)
                continue;
            if (read(fd, comm, sizeof(comm) - 1) > 0 && strncmp(comm, name, strlen(name)) == 0)
                found = atoi(d->d_name);
            close(fd);
        }
        closedir(proc);
        if (found)
            return found;
    }
    printf("broken: there is no %s\n", name);
    exit(2);
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
