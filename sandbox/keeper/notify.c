/*
 * What the service manager wants to hear (sd_notify(3)): a datagram to $NOTIFY_SOCKET. Five lines
 * of protocol are no reason for a library, and without the variable all of this is nothing.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

void notify_init(struct notify *n)
{
    const char *path = getenv("NOTIFY_SOCKET"), *usec = getenv("WATCHDOG_USEC");
    uint64_t period_us;

    *n = (struct notify){ 0 };
    if (path && (*path == '/' || *path == '@'))
        text_copy(n->path, sizeof(n->path), path);
    if (usec && text_parse_u64(usec, &period_us, NULL) == 0)
        n->period_ms = period_us / 2000; /* twice as often as asked for */
    unsetenv("NOTIFY_SOCKET");           /* nobody we start is to speak in our name */
    unsetenv("WATCHDOG_USEC");
}

void notify_tell(const struct notify *n, const char *text)
{
    notify_tell_fd(n, text, -1);
}

/* The manager keeps a copy of fd, if one is given; it must not wait for us, nor we for it. */
void notify_tell_fd(const struct notify *n, const char *text, int fd)
{
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct iovec iov = { .iov_base = (char *)text, .iov_len = strlen(text) };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    AUTO_CLOSE int sock = -1;
    size_t len = strlen(n->path);

    if (!len || len >= sizeof(addr.sun_path))
        return;
    sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(addr.sun_path, n->path, len);
    if (addr.sun_path[0] == '@')
        addr.sun_path[0] = '\0'; /* an abstract name */
    msg.msg_name = &addr;
    msg.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (fd >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control.space);
        control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
                                         .cmsg_level = SOL_SOCKET,
                                         .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    }
    if (sock >= 0)
        (void)!sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void notify_reloading(const struct notify *n)
{
    char text[64];
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000);
    notify_tell(n, text);
}

/* Called from the loop, which goes round at least once a second: a keeper that hangs stops calling.
 */
void notify_alive(struct notify *n)
{
    uint64_t now = clock_boot_ms();

    if (!n->period_ms || now < n->next_ms)
        return;
    notify_tell(n, "WATCHDOG=1");
    n->next_ms = now + n->period_ms;
}
