/*
 * A sandbox's network: a veth pair, one end on the host, the other its eth0, and a /30 of its own
 * by the number of its slot. Spoken to the kernel directly (rtnetlink), because nothing in the
 * making of a sandbox forks. What may pass is decided by rules that hold for all of them
 * (netfilter.c), so making one touches no rule.
 *
 * The keeper makes the pair when the child has its namespace, under a name that belongs to the
 * slot; the child gives its end address and route. When the namespace dies, the kernel takes the
 * pair away.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox_private.h"

/* ------------------------------------------------------------------ messages */

struct request {
    struct nlmsghdr head;
    char room[1024];
};

static void *extend(struct request *r, size_t len)
{
    void *at = (char *)r + NLMSG_ALIGN(r->head.nlmsg_len);

    r->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->head.nlmsg_len) + len);
    return at;
}

static void begin(struct request *r, uint16_t type, uint16_t flags, const void *body, size_t len)
{
    memset(r, 0, sizeof(*r));
    r->head = (struct nlmsghdr){ .nlmsg_len = NLMSG_HDRLEN,
                                 .nlmsg_type = type,
                                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags };
    memcpy(extend(r, len), body, len);
}

static struct rtattr *add(struct request *r, uint16_t type, const void *data, size_t len)
{
    struct rtattr *a = extend(r, RTA_LENGTH(len));

    a->rta_type = type;
    a->rta_len = (uint16_t)RTA_LENGTH(len);
    if (len)
        memcpy(RTA_DATA(a), data, len);
    return a;
}

static void close_nest(struct request *r, struct rtattr *nest)
{
    nest->rta_len = (uint16_t)((char *)r + r->head.nlmsg_len - (char *)nest);
}

/* Send one request and wait for its acknowledgement. */
static int ask(struct request *r, const char *what, struct cove_err *e)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr err;
        char room[1024];
    } answer;
    AUTO_CLOSE int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (sock < 0 || send(sock, r, r->head.nlmsg_len, 0) < 0 ||
        recv(sock, &answer, sizeof(answer), 0) < (ssize_t)(NLMSG_LENGTH(sizeof(struct nlmsgerr))))
        return cove_fail_errno(e, COVE_INTERNAL, "network: %s", what);
    if (answer.head.nlmsg_type != NLMSG_ERROR || answer.err.error == 0)
        return 0;
    errno = -answer.err.error;
    return cove_fail_errno(e, COVE_INTERNAL, "network: %s", what);
}

/* ------------------------------------------------------------------ names and addresses of a slot
 */

static void host_name(const struct net *n, uint32_t slot, char out[IFNAMSIZ])
{
    snprintf(out, IFNAMSIZ, "%s%u", n->prefix, slot % 16384);
}

/* Four addresses each: network, host, sandbox, broadcast. */
static uint32_t address(const struct net *n, uint32_t slot, uint32_t which)
{
    return htonl(n->range + (slot % 16384) * 4 + which);
}

/* ------------------------------------------------------------------ steps */

static int make_pair(const char *name, pid_t pid, struct cove_err *e)
{
    struct ifinfomsg none = { 0 };
    uint32_t ns = (uint32_t)pid;
    struct rtattr *info, *data, *peer;
    struct request r;

    begin(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &none, sizeof(none));
    add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    info = add(&r, IFLA_LINKINFO, NULL, 0);
    add(&r, IFLA_INFO_KIND, "veth", 4);
    data = add(&r, IFLA_INFO_DATA, NULL, 0);
    peer = add(&r, VETH_INFO_PEER, &none, sizeof(none));
    add(&r, IFLA_IFNAME, "eth0", 5);
    add(&r, IFLA_NET_NS_PID, &ns, sizeof(ns));
    close_nest(&r, peer);
    close_nest(&r, data);
    close_nest(&r, info);
    return ask(&r, "veth pair", e);
}

static void remove_pair(const char *name)
{
    struct ifinfomsg none = { 0 };
    struct request r;

    begin(&r, RTM_DELLINK, 0, &none, sizeof(none));
    add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    ask(&r, name, NULL);
}

static int set_up(const char *name, struct cove_err *e)
{
    struct ifinfomsg link = { .ifi_index = (int)if_nametoindex(name),
                              .ifi_flags = IFF_UP,
                              .ifi_change = IFF_UP };
    struct request r;

    begin(&r, RTM_NEWLINK, 0, &link, sizeof(link));
    return ask(&r, "bringing up an interface", e);
}

static int set_address(const char *name, uint32_t addr, struct cove_err *e)
{
    struct ifaddrmsg a = { .ifa_family = AF_INET,
                           .ifa_prefixlen = 30,
                           .ifa_index = if_nametoindex(name) };
    struct request r;

    begin(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &a, sizeof(a));
    add(&r, IFA_LOCAL, &addr, sizeof(addr));
    add(&r, IFA_ADDRESS, &addr, sizeof(addr));
    return ask(&r, "address", e);
}

static int set_route(uint32_t gateway, struct cove_err *e)
{
    struct rtmsg route = { .rtm_family = AF_INET,
                           .rtm_table = RT_TABLE_MAIN,
                           .rtm_protocol = RTPROT_STATIC,
                           .rtm_scope = RT_SCOPE_UNIVERSE,
                           .rtm_type = RTN_UNICAST };
    struct request r;

    begin(&r, RTM_NEWROUTE, NLM_F_CREATE, &route, sizeof(route));
    add(&r, RTA_GATEWAY, &gateway, sizeof(gateway));
    return ask(&r, "route", e);
}

/* ------------------------------------------------------------------ both halves */

/* A pair of the slot's last sandbox may not be gone yet: namespaces die in the background. */
int net_attach(const struct net *n, uint32_t slot, pid_t pid, struct cove_err *e)
{
    char name[IFNAMSIZ];

    if (n->mode == NET_NONE)
        return 0;
    host_name(n, slot, name);
    remove_pair(name);
    if (make_pair(name, pid, e) < 0 || set_address(name, address(n, slot, 1), e) < 0)
        return -1;
    return set_up(name, e);
}

static int set_resolver(const struct net *n, struct cove_err *e)
{
    char text[1024] = "", list[sizeof(n->dns)], *save, *at;
    size_t len = 0;

    memcpy(list, n->dns, sizeof(list));
    for (at = strtok_r(list, " ", &save); at; at = strtok_r(NULL, " ", &save))
        len += (size_t)snprintf(text + len, sizeof(text) - len, "nameserver %.60s\n", at);
    return len ? write_file_at(-1, "/etc/resolv.conf", text, e) : 0;
}

int net_enter(const struct net *n, uint32_t slot, struct cove_err *e)
{
    if (n->mode == NET_NONE)
        return 0;
    if (set_address("eth0", address(n, slot, 2), e) < 0 || set_up("eth0", e) < 0 ||
        set_route(address(n, slot, 1), e) < 0)
        return -1;
    return set_resolver(n, e);
}
