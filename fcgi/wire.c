#include "fcgi/wire.h"

#include <errno.h>
#include <fastcgi.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { RECORD_MAX = UINT16_MAX & ~7 };

void wire_init(struct wire *w, int fd, int request)
{
    *w = (struct wire){ .fd = fd, .request = request };
}

static void begin_record(struct wire *w, size_t len)
{
    size_t n = len < RECORD_MAX ? len : RECORD_MAX;
    const unsigned char head[sizeof(w->head)] = {
        FCGI_VERSION_1,
        FCGI_STDOUT,
        (unsigned char)(w->request >> 8),
        (unsigned char)w->request,
        (unsigned char)(n >> 8),
        (unsigned char)n,
    };

    for (size_t i = 0; i < sizeof(head); i++)
        w->head[i] = head[i];
    w->head_left = sizeof(head);
    w->record_left = n;
}

/* Sends as much of the current record as one system call takes; returns how many bytes of the payload have left, or
 * -1. */
static ssize_t send_some(struct wire *w, const char *bytes, int flags)
{
    struct iovec parts[] = {
        { .iov_base = w->head + sizeof(w->head) - w->head_left, .iov_len = w->head_left },
        { .iov_base = (char *)bytes, .iov_len = w->record_left },
    };
    struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };
    ssize_t n = sendmsg(w->fd, &m, flags | MSG_NOSIGNAL);
    size_t of_head;

    if (n < 0)
        return -1;
    of_head = (size_t)n < w->head_left ? (size_t)n : w->head_left;
    w->head_left -= of_head;
    w->record_left -= (size_t)n - of_head;
    return n - (ssize_t)of_head;
}

int wire_send(struct wire *w, const char *bytes, size_t len, bool wait, size_t *ret_taken)
{
    *ret_taken = 0;
    while (*ret_taken < len) {
        ssize_t n;

        if (w->record_left == 0)
            begin_record(w, len - *ret_taken);
        n = send_some(w, bytes + *ret_taken, wait ? 0 : MSG_DONTWAIT);
        if (n >= 0)
            *ret_taken += (size_t)n;
        else if (errno == EAGAIN && !wait)
            return 0;
        else if (errno != EINTR)
            return -1;
    }
    return 1;
}

int wire_finish_record(struct wire *w, const char *bytes, size_t len)
{
    size_t taken = 0;

    if (w->record_left > len)
        return -1;
    while (w->record_left > 0) {
        ssize_t n = send_some(w, bytes + taken, MSG_DONTWAIT);

        if (n < 0 && errno != EINTR)
            return -1;
        taken += n > 0 ? (size_t)n : 0;
    }
    return 0;
}
