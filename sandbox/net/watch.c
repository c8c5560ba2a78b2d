/*
 * Our rules are the wall between sandboxes and the network, and other programs on this machine may remove
 * them by accident: `nft flush ruleset` does, and so does every reload of Debian's nftables service. The
 * kernel tells us, and our rules are put back at once.
 */
#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <sys/socket.h>

#include "cove/mem.h"
#include "sandbox/net/net_private.h"

int net_watch(void)
{
    struct sockaddr_nl addr = { .nl_family = AF_NETLINK,
                                .nl_groups = 1u << (NFNLGRP_NFTABLES - 1) };
    AUTO_CLOSE int sock =
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER);

    if (sock < 0 || bind(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return -1;
    return take_fd(&sock);
}

static bool is_removal(const struct nlmsghdr *head)
{
    return head->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE);
}

/* Was a table removed? Also true when so much happened that the kernel dropped messages to us. */
static bool hear_of_removal(int sock)
{
    bool removed = false;

    for (;;) {
        union {
            struct nlmsghdr head;
            char room[16384];
        } packet;
        ssize_t n = recv(sock, &packet, sizeof(packet), 0);
        unsigned left = n > 0 ? (unsigned)n : 0;

        if (n < 0 && errno == ENOBUFS)
            removed = true;
        else if (n <= 0)
            return removed;
        for (const struct nlmsghdr *head = &packet.head; NLMSG_OK(head, left);
             head = NLMSG_NEXT(head, left))
            removed |= is_removal(head);
    }
}

/* When this keeper replaces its table the kernel tells of a removal too; but then the table is
 * there. */
bool net_watch_lost(int sock, const struct net *n)
{
    char stamp[32];

    if (!hear_of_removal(sock) || !n->loaded)
        return false;
    netfilter_read_set(n->table, "stamp", stamp, sizeof(stamp));
    return stamp[0] == '\0';
}

/* Asks the kernel directly, because libnftables prints its complaints to standard error, where
 * our log is. */
int netfilter_check(struct cove_err *e)
{
    struct {
        struct nlmsghdr head;
        struct nfgenmsg body;
    } ask = { .head = { .nlmsg_len = sizeof(ask),
                        .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN,
                        .nlmsg_flags = NLM_F_REQUEST },
              .body = { .version = NFNETLINK_V0 } };
    union {
        struct nlmsghdr head;
        char room[4096];
    } answer;
    AUTO_CLOSE int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);

    if (sock < 0 || send(sock, &ask, sizeof(ask), 0) < 0 ||
        recv(sock, &answer, sizeof(answer), 0) < (ssize_t)sizeof(struct nlmsghdr))
        return cove_fail_errno(e, COVE_UNSUPPORTED, "nftables");
    if (answer.head.nlmsg_type != NLMSG_ERROR)
        return 0;
    errno = -((const struct nlmsgerr *)NLMSG_DATA(&answer.head))->error;
    return cove_fail_errno(e, COVE_UNSUPPORTED, "nftables");
}
