#include "cove/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"

/* ------------------------------------------------------------------ whole files */

int file_read(const char *path, size_t max, char **ret, size_t *ret_len, struct cove_err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_FREE char *data = NULL;
    struct stat st;
    size_t len = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    if ((uint64_t)st.st_size > max)
        return cove_fail(e, COVE_INTERNAL, "%s: larger than %zu bytes", path, max);
    data = malloc((size_t)st.st_size + 1);
    if (!data)
        return cove_fail(e, COVE_INTERNAL, "%s: out of memory", path);
    while (len < (size_t)st.st_size) {
        ssize_t n = read(fd, data + len, (size_t)st.st_size - len);

        if (n < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
        if (n == 0)
            break;
        len += (size_t)n;
    }
    data[len] = '\0';
    *ret = take_ptr(data);
    *ret_len = len;
    return 0;
}

int write_file_at(int dir, const char *name, const char *text, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    size_t len = strlen(text);

    if (fd < 0 || write(fd, text, len) != (ssize_t)len)
        return cove_fail_errno(e, COVE_INTERNAL, "writing '%s' to %s", text, name);
    return 0;
}

ssize_t read_file_at(int dir, const char *name, char *out, size_t size)
{
    AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    size_t len = 0;

    out[0] = '\0';
    if (fd < 0)
        return -1;
    while (len + 1 < size) {
        ssize_t n = read(fd, out + len, size - 1 - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    out[len] = '\0';
    return (ssize_t)len;
}

int write_all(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = write(fd, at, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return -1;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

/* ------------------------------------------------------------------ unix sockets */

static int fill_address(struct sockaddr_un *addr, const char *path)
{
    *addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (text_copy(addr->sun_path, sizeof(addr->sun_path), path))
        return 0;
    errno = ENAMETOOLONG;
    return -1;
}

/* Nobody can connect before listen(), so the mode is right before the first connection. */
static int listen_at(int sock, const char *path, int backlog, gid_t gid)
{
    struct sockaddr_un addr;

    if (fill_address(&addr, path) < 0 || bind(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        chown(path, (uid_t)-1, gid) < 0 || chmod(path, 0660) < 0)
        return -1;
    return listen(sock, backlog);
}

/* Binds the socket beside the old one and then renames it over that, so that clients can connect at any time. */
static int listen_instead(int sock, const char *path, int backlog, gid_t gid)
{
    char fresh[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];

    snprintf(fresh, sizeof(fresh), "%.110s.new", path);
    unlink(fresh);
    return listen_at(sock, fresh, backlog, gid) < 0 ? -1 : rename(fresh, path);
}

int unix_listen(const char *path, int type, int backlog, gid_t gid, int *ret_sock,
                struct cove_err *e)
{
    AUTO_CLOSE int sock = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    if (sock < 0 || (listen_at(sock, path, backlog, gid) < 0 &&
                     (errno != EADDRINUSE || listen_instead(sock, path, backlog, gid) < 0)))
        return cove_fail_errno(e, COVE_INVALID, "socket %s", path);
    *ret_sock = take_fd(&sock);
    return 0;
}

int unix_connect(const char *path, int type)
{
    struct sockaddr_un addr;
    AUTO_CLOSE int sock = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    if (sock < 0 || fill_address(&addr, path) < 0 ||
        connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return -1;
    return take_fd(&sock);
}

/* ------------------------------------------------------------------ another user for one call */

int uid_borrow(uid_t uid, struct uid_loan *ret)
{
    int bits = prctl(PR_GET_SECUREBITS);

    if (bits < 0 || prctl(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP) < 0)
        return -1;
    ret->securebits = bits;
    if (syscall(SYS_setresuid, -1, uid, -1) == 0)
        return 0;
    uid_give_back(ret);
    return -1;
}

void uid_give_back(const struct uid_loan *loan)
{
    int error = errno;

    if (syscall(SYS_setresuid, -1, 0, -1) < 0 || prctl(PR_SET_SECUREBITS, loan->securebits) < 0)
        abort();
    errno = error;
}
