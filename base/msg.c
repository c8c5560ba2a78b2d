#include "config.h" /* _GNU_SOURCE */

#include "cove/msg.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "cove/mem.h"
#include "cove/weak.h"

/* room for exactly MSG_MAX_FDS descriptors: the kernel drops further ones and reports that */
union fd_space {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(MSG_MAX_FDS * sizeof(int))];
};

void msg_prepare_socket(int sock)
{
    int bytes = MSG_MAX_BYTES;

    /* The kernel doubles it for its own bookkeeping; where net.core.wmem_max is lower, that is what
     * we get. */
    setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

pid_t msg_peer(int sock)
{
    struct ucred peer = { 0 };
    socklen_t len = sizeof(peer);

    static pid_t unknown;

    if (weak("places"))
        return --unknown; /* each connection then counts as one of another process */
    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 ? peer.pid : 0;
}

static int fail_send(struct cove_err *e)
{
    switch (errno) {
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return cove_fail_errno(e, COVE_GONE, "the peer has closed the connection");
    case EAGAIN:
        return cove_fail_errno(e, COVE_BUSY, "the peer does not read its messages");
    case EMSGSIZE:
        return cove_fail_errno(e, COVE_TOO_LARGE, "the socket does not take a message this long");
    default:
        return cove_fail_errno(e, COVE_INTERNAL, "sending a message");
    }
}

static void attach_fds(struct msghdr *mh, union fd_space *space, const int *fds, size_t fd_count)
{
    struct cmsghdr *c;

    memset(space, 0, sizeof(*space));
    mh->msg_control = space->bytes;
    mh->msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    c = CMSG_FIRSTHDR(mh);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
}

int msg_send(int sock, const struct msg_out *m, int flags, struct cove_err *e)
{
    struct msg_head head = { .magic = MSG_MAGIC, .type = m->type, .tag = m->tag };
    struct iovec parts[] = {
        { &head, sizeof(head) },
        { (void *)m->body, m->body_len },
        { (void *)m->tail, m->tail_len },
    };
    struct msghdr mh = { .msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts) };
    union fd_space space;
    ssize_t n;

    if (m->fd_count > MSG_MAX_FDS)
        return cove_fail(e, COVE_INTERNAL, "%zu descriptors in one message", m->fd_count);
    if (m->body_len > MSG_MAX_BYTES || m->tail_len > MSG_MAX_BYTES ||
        sizeof(head) + m->body_len + m->tail_len > MSG_MAX_BYTES)
        return cove_fail(e, COVE_TOO_LARGE, "a message may have %d bytes", MSG_MAX_BYTES);
    head.size = (uint32_t)(sizeof(head) + m->body_len + m->tail_len);
    if (m->fds && m->fd_count > 0)
        attach_fds(&mh, &space, m->fds, m->fd_count);
    do
        n = sendmsg(sock, &mh, flags | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? fail_send(e) : 0;
}

/* Collects the descriptors that came with a message. They must be closed by us, also when the message is refused. */
static void collect_fds(struct msghdr *mh, struct msg *m)
{
    m->fd_count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(m->fds, CMSG_DATA(c), count * sizeof(int));
        m->fd_count = count; /* the kernel makes one such header, and it fits: see fd_space */
    }
}

static const struct msg_rule *find_rule(const struct msg_rule *rules, uint32_t type)
{
    for (; rules->type; rules++)
        if (rules->type == type)
            return rules;
    return NULL;
}

static int check(const struct msg *m, size_t len, const struct msg_rule *rules, struct cove_err *e)
{
    const struct msg_head *h = &m->head;
    const struct msg_rule *rule;

    if (h->magic != MSG_MAGIC)
        return cove_fail(e, COVE_INVALID, "not a message: magic %#x", h->magic);
    if (h->size != len)
        return cove_fail(e, COVE_INVALID, "message of %zu bytes says it has %u", len, h->size);
    rule = find_rule(rules, h->type);
    if (!rule)
        return cove_fail(e, COVE_INVALID, "message type %u is not taken here", h->type);
    if (m->body_len < rule->min_body || m->body_len - rule->min_body > rule->max_tail)
        return cove_fail(e, COVE_INVALID, "message type %u with %zu bytes", h->type, m->body_len);
    if (m->fd_count < rule->min_fds || m->fd_count > rule->max_fds)
        return cove_fail(e, COVE_INVALID, "message type %u with %zu descriptors", h->type,
                         m->fd_count);
    return 0;
}

static int accept_packet(const void *buf, size_t len, const struct msghdr *mh,
                         const struct msg_rule *rules, struct msg *m, struct cove_err *e)
{
    if (mh->msg_flags & MSG_TRUNC)
        return cove_fail(e, COVE_INVALID, "message too long");
    if (mh->msg_flags & MSG_CTRUNC)
        return cove_fail(e, COVE_INVALID, "too many descriptors in a message");
    if (len < sizeof(m->head))
        return cove_fail(e, COVE_INVALID, "message of %zu bytes has no head", len);
    memcpy(&m->head, buf, sizeof(m->head));
    m->body_len = len - sizeof(m->head);
    m->body = m->body_len ? (const char *)buf + sizeof(m->head) : NULL;
    return check(m, len, rules, e);
}

int msg_recv(int sock, void *buf, size_t buf_size, const struct msg_rule *rules, int flags,
             struct msg *ret, struct cove_err *e)
{
    union fd_space space;
    struct iovec part = { buf, buf_size };
    struct msghdr mh = { .msg_iov = &part,
                         .msg_iovlen = 1,
                         .msg_control = space.bytes,
                         .msg_controllen = sizeof(space) };
    struct msg m;
    ssize_t n;

    do
        n = recvmsg(sock, &mh, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return cove_fail_errno(e, COVE_BUSY, "no message yet");
    /* the peer closed the connection without reading all that we sent */
    if (n < 0 && errno == ECONNRESET)
        return 0;
    if (n < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "receiving a message");
    collect_fds(&mh, &m);
    if (n == 0) { /* an empty packet looks the same as the end, so it is treated as one */
        msg_close_fds(&m);
        return 0;
    }
    if (accept_packet(buf, (size_t)n, &mh, rules, &m, e) < 0) {
        msg_close_fds(&m);
        return -1;
    }
    *ret = m;
    return 1;
}

void msg_close_fds(struct msg *m)
{
    for (size_t i = 0; i < m->fd_count; i++)
        m->fds[i] = cove_close(m->fds[i]);
    m->fd_count = 0;
}

int msg_raise(const struct msg *m, struct cove_err *e)
{
    struct cove_err told;

    assert(m->head.type == MSG_ERROR && m->body_len >= sizeof(told));
    memcpy(&told, m->body, sizeof(told));
    cove_err_sanitize(&told);
    if (e)
        *e = told;
    return -1;
}

const char *msg_next_str(const char **at, const char *end)
{
    const char *str = *at, *nul;

    if (!str || str >= end)
        return NULL;
    nul = memchr(str, '\0', (size_t)(end - str));
    if (!nul)
        return NULL;
    *at = nul + 1;
    return str;
}
