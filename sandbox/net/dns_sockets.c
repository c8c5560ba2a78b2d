/*
 * Where a sandbox asks for names: an address of its own loopback, by sockets that the keeper makes
 * in its namespace and hands to the resolver (keeper/helper_resolver.c). Whose question it is follows from the
 * socket, and the host needs no open port for it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/setup_plan.h"
#include "sandbox/net/net_private.h"

enum { DNS_PORT = 53, DNS_BACKLOG = 16 };

/* A port below 1024 may be taken by the owner of the network namespace. The keeper is that user for
 * one call, as it was when the namespace was made (build.c), and needs no capability of its own. */
static int bind_as(uid_t owner, int sock, const struct sockaddr_in *addr)
{
    struct uid_loan loan;
    int rc;

    if (uid_borrow(owner, &loan) < 0)
        return -1;
    rc = bind(sock, (const struct sockaddr *)addr, sizeof(*addr));
    uid_give_back(&loan);
    return rc;
}

static int bound_socket(int type, uid_t owner)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(DNS_PORT) };
    AUTO_CLOSE int sock = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;

    inet_pton(AF_INET, RESOLVER_ADDRESS, &addr.sin_addr);
    /* The next resolver binds its sockets while those of the last one are still bound. No
     * process inside can bind there too: SO_REUSEPORT wants the same user id on both sides. */
    if (sock < 0 || setsockopt(sock, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0 ||
        bind_as(owner, sock, &addr) < 0 || (type == SOCK_STREAM && listen(sock, DNS_BACKLOG) < 0))
        return -1;
    return take_fd(&sock);
}

/* Enters the sandbox's network namespace for the time of this call. The keeper has one thread,
 * so nothing else happens there. */
int net_dns_sockets(pid_t pid, uid_t owner, int ret[2], struct cove_err *e)
{
    char path[48];
    AUTO_CLOSE int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int theirs = -1;
    int udp, tcp, error;

    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    theirs = open(path, O_RDONLY | O_CLOEXEC);
    if (own < 0 || theirs < 0 || setns(theirs, CLONE_NEWNET) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "network namespace");
    udp = bound_socket(SOCK_DGRAM, owner);
    tcp = bound_socket(SOCK_STREAM, owner);
    error = errno;
    if (setns(own, CLONE_NEWNET) < 0)
        abort(); /* the keeper would stay in the sandbox's namespace */
    if (udp >= 0 && tcp >= 0) {
        ret[0] = udp;
        ret[1] = tcp;
        return 0;
    }
    cove_close(udp);
    cove_close(tcp);
    errno = error;
    return cove_fail_errno(e, COVE_INTERNAL, "a sandbox's name server socket");
}
