/*
 * Walking a path of the sandbox, for every verb that takes one. Links are followed as the kernel
 * does it, with two exceptions, because init can do more than a command can:
 *
 * - Magic links (/proc/PID/fd/N, /proc/PID/root, ...) do not resolve by a name but jump to what an
 *   open descriptor shows. Init's own descriptors include its cgroup and its sockets.
 * - What lies in /proc/PID tells what init may see of a process, its own memory map included, and
 *   not what the asking user may see.
 *
 * All of it is called between user_enter() and user_leave(), so that permissions are the user's.
 * Nothing here waits: O_PATH opens no FIFO and breaks no lease.
 */
#include "config.h" /* _GNU_SOURCE */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

void path_of_fd(int fd, char out[PATH_OF_FD])
{
    snprintf(out, PATH_OF_FD, "/proc/self/fd/%d", fd);
}

/* Is this /proc/PID or something in it? */
static bool is_of_a_process(int fd)
{
    char link[PATH_OF_FD], name[64];
    struct statfs fs;
    ssize_t n;

    if (fstatfs(fd, &fs) == 0 && fs.f_type != PROC_SUPER_MAGIC)
        return false;
    path_of_fd(fd, link);
    n = readlink(link, name, sizeof(name) - 1);
    name[n > 0 ? n : 0] = '\0';
    return n <= 0 || (strncmp(name, "/proc/", 6) == 0 && isdigit((unsigned char)name[6]));
}

int path_open_at(int dir_fd, const char *path, uint64_t flags, uint32_t mode)
{
    struct open_how how = {
        .flags = flags | O_CLOEXEC,
        .mode = flags & O_CREAT ? mode : 0,
        .resolve = RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));

    if (fd >= 0 && is_of_a_process(fd)) {
        cove_close(fd);
        errno = EACCES;
        return -1;
    }
    return fd;
}

int path_open(const char *path, uint64_t flags)
{
    return path_open_at(AT_FDCWD, path, flags, 0);
}

/* --------------------------------------------------------------- the directory above a name */

/* Cut the next component off *rest into name. False when there is none. */
static bool next_name(const char **rest, char name[NAME_MAX + 1])
{
    const char *from = *rest + strspn(*rest, "/");
    size_t len = strcspn(from, "/");

    if (len == 0 || len > NAME_MAX)
        return false;
    memcpy(name, from, len);
    name[len] = '\0';
    *rest = from + len;
    return true;
}

static bool is_last(const char *rest)
{
    return rest[strspn(rest, "/")] == '\0';
}

/* One step down; a directory that is missing is made if that is wanted. */
static int step(int dir_fd, const char *name, bool make)
{
    int fd = path_open_at(dir_fd, name, O_PATH | O_DIRECTORY, 0);

    if (fd >= 0 || errno != ENOENT || !make)
        return fd;
    if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
        return -1;
    return path_open_at(dir_fd, name, O_PATH | O_DIRECTORY, 0);
}

int path_parent(const char *path, bool make, char ret_name[NAME_MAX + 1])
{
    AUTO_CLOSE int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *rest = path;

    while (next_name(&rest, ret_name)) {
        int below;

        if (is_last(rest))
            return take_fd(&dir);
        below = step(dir, ret_name, make);
        if (below < 0)
            return -1;
        cove_close(dir);
        dir = below;
    }
    errno = is_last(rest) ? EBUSY : ENAMETOOLONG; /* nothing but slashes: the root itself */
    return -1;
}

/* --------------------------------------------------------------- what has no call for a descriptor */

int path_chmod(int path_fd, uint32_t mode)
{
    char link[PATH_OF_FD];

    path_of_fd(path_fd, link); /* fchmod() takes no descriptor of O_PATH */
    return chmod(link, mode);
}
