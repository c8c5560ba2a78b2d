/* A sandbox's network from inside: its loopback interface, its end of the link, where it asks for names. */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/setup_plan.h"
#include "cove/weak.h"
#include "sandbox/setup/setup_private.h"

static int bring_up_loopback(struct cove_err *e)
{
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    AUTO_CLOSE int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (sock < 0 || ioctl(sock, SIOCSIFFLAGS, &lo) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "bringing up the loopback interface");
    return 0;
}

/* Reads the kernel's first answer, which decides (setup_plan.h). */
static int read_answer(int sock, struct cove_err *e)
{
    union {
        struct nlmsghdr head;
        char room[1024];
    } answer;
    const struct nlmsgerr *verdict = NLMSG_DATA(&answer.head);
    ssize_t n = recv(sock, &answer, sizeof(answer), 0);

    if (n < (ssize_t)NLMSG_LENGTH(sizeof(*verdict)) || answer.head.nlmsg_type != NLMSG_ERROR)
        return cove_fail_errno(e, COVE_INTERNAL, "network: no answer");
    if (verdict->error == 0)
        return 0;
    errno = -verdict->error;
    return cove_fail_errno(e, COVE_INTERNAL, "network: request %u", answer.head.nlmsg_seq);
}

static int ask_kernel(const void *requests, size_t len, struct cove_err *e)
{
    AUTO_CLOSE int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (sock < 0 || send(sock, requests, len, 0) != (ssize_t)len)
        return cove_fail_errno(e, COVE_INTERNAL, "network");
    return read_answer(sock, e);
}

/* In many templates /etc/resolv.conf is a link to a file of a service that does not run in a sandbox. A tenant may
 * have made a FIFO of it, on which open() would wait. What is no regular file is replaced. */
static int open_resolv_conf(void)
{
    static const char path[] = "/etc/resolv.conf";
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
    struct stat st;

    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode) && unlink(path) < 0)
        return -1;
    return open(path, flags, 0644);
}

static int write_resolv_conf(struct cove_err *e)
{
    static const char text[] = "nameserver " RESOLVER_ADDRESS "\n";
    AUTO_CLOSE int fd = open_resolv_conf();

    if (fd < 0 && errno == ENOENT)
        return 0; /* without /etc no program of the template looks up names */
    if (fd < 0 || write(fd, text, sizeof(text) - 1) != sizeof(text) - 1)
        return cove_fail_errno(e, COVE_INTERNAL, "/etc/resolv.conf");
    return 0;
}

int setup_network(const void *requests, size_t len, struct cove_err *e)
{
    if (weak("net"))
        return 0;
    if (bring_up_loopback(e) < 0)
        return -1;
    if (len == 0)
        return 0;
    return ask_kernel(requests, len, e) < 0 ? -1 : write_resolv_conf(e);
}
