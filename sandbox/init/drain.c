/*
 * BOX_DRAIN: a reply was sent, but processes that the command left running still hold its
 * pipes. They must neither get SIGPIPE nor block on a full pipe, so init reads on in the worker's
 * place and throws the bytes away. Bytes go from the pipe to /dev/null inside the kernel.
 */
#include "config.h" /* _GNU_SOURCE */

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

enum { DRAIN_BYTES = 1 << 20 };

struct drain {
    struct watch watch;
};

static void drain_ready(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    ssize_t n = splice(w->fd, NULL, STDOUT_FILENO /* init's standard output is /dev/null */, NULL,
                       DRAIN_BYTES, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

    (void)events;
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    watch_close(w);
    assert(in->drain_count > 0);
    in->drain_count--;
    free(container_of(w, struct drain, watch));
}

static int check_pipe(int fd, struct cove_err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode) || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY)
        return cove_fail(e, COVE_INVALID, "only the read end of a pipe can be drained");
    return 0;
}

static int drain_start(struct init *in, int *fd, struct cove_err *e)
{
    struct drain *d = in->drain_count < MAX_DRAINS ? calloc(1, sizeof(*d)) : NULL;

    if (!d)
        return cove_fail(e, COVE_BUSY, "%d pipes are being drained already", MAX_DRAINS);
    if (init_watch(in, &d->watch, *fd, EPOLLIN, drain_ready, e) < 0) {
        free(d);
        return -1;
    }
    take_fd(fd);
    in->drain_count++;
    return 0;
}

/* Safe: a pipe's writer is a process of this sandbox, or gone; reading it costs nobody else
 * anything. */
int on_drain(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    for (size_t i = 0; i < m->fd_count; i++)
        if (check_pipe(m->fds[i], e) < 0)
            return -1;
    for (size_t i = 0; i < m->fd_count; i++)
        if (drain_start(in, &m->fds[i], e) < 0)
            return -1;
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}
