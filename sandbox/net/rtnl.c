/* rtnetlink: requests to the kernel about interfaces, addresses and routes, one at a time. Nothing
 * in the making of a sandbox forks, so `ip` is not used. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/net/net_private.h"

static void *extend(struct rtnl *r, size_t len)
{
    void *at = (char *)r + NLMSG_ALIGN(r->head.nlmsg_len);

    r->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->head.nlmsg_len) + len);
    return at;
}

void rtnl_begin(struct rtnl *r, uint16_t type, uint16_t flags, const void *body, size_t len)
{
    memset(r, 0, sizeof(*r));
    r->head = (struct nlmsghdr){ .nlmsg_len = NLMSG_HDRLEN,
                                 .nlmsg_type = type,
                                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags };
    memcpy(extend(r, len), body, len);
}

struct rtattr *rtnl_add(struct rtnl *r, uint16_t type, const void *data, size_t len)
{
    struct rtattr *a = extend(r, RTA_LENGTH(len));

    a->rta_type = type;
    a->rta_len = (uint16_t)RTA_LENGTH(len);
    if (len)
        memcpy(RTA_DATA(a), data, len);
    return a;
}

struct rtattr *rtnl_nest(struct rtnl *r, uint16_t type)
{
    return rtnl_add(r, type, NULL, 0);
}

void rtnl_end_nest(struct rtnl *r, struct rtattr *nest)
{
    nest->rta_len = (uint16_t)((char *)r + r->head.nlmsg_len - (char *)nest);
}

/* Send one request and read the first packet of the answer. */
static ssize_t exchange(struct rtnl *r, void *answer, size_t size)
{
    AUTO_CLOSE int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (sock < 0 || send(sock, r, r->head.nlmsg_len, 0) < 0)
        return -1;
    return recv(sock, answer, size, 0);
}

int rtnl_ask(struct rtnl *r, const char *what, struct cove_err *e)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr err;
        char room[1024];
    } answer;

    if (exchange(r, &answer, sizeof(answer)) < (ssize_t)(NLMSG_LENGTH(sizeof(struct nlmsgerr))))
        return cove_fail_errno(e, COVE_INTERNAL, "network: %s", what);
    if (answer.head.nlmsg_type != NLMSG_ERROR || answer.err.error == 0)
        return 0;
    errno = -answer.err.error;
    return cove_fail_errno(e, COVE_INTERNAL, "network: %s", what);
}

/* ------------------------------------------------------------------ the way out */

/* Any public address does: the kernel is asked for the way, no packet is sent. */
static void public_address(int family, void *out)
{
    inet_pton(family, family == AF_INET ? "1.1.1.1" : "2606:4700:4700::1111", out);
}

static void read_interface(const struct nlmsghdr *head, char ret[IFNAMSIZ])
{
    const struct rtmsg *route = NLMSG_DATA(head);
    int left = (int)RTM_PAYLOAD(head);

    if (route->rtm_type != RTN_UNICAST)
        return;
    for (const struct rtattr *a = RTM_RTA(route); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == RTA_OIF && RTA_PAYLOAD(a) >= sizeof(unsigned))
            if (!if_indextoname(*(const unsigned *)RTA_DATA(a), ret))
                ret[0] = '\0';
}

void rtnl_way_out(int family, char ret[IFNAMSIZ])
{
    struct rtmsg ask = { .rtm_family = (unsigned char)family,
                         .rtm_dst_len = family == AF_INET ? 32 : 128 };
    uint8_t addr[16];
    union {
        struct nlmsghdr head;
        char room[4096];
    } answer;
    struct rtnl r;
    ssize_t n;

    ret[0] = '\0';
    public_address(family, addr);
    rtnl_begin(&r, RTM_GETROUTE, 0, &ask, sizeof(ask));
    rtnl_add(&r, RTA_DST, addr, family == AF_INET ? 4 : 16);
    n = exchange(&r, &answer, sizeof(answer));
    if (n > 0 && NLMSG_OK(&answer.head, (size_t)n) && answer.head.nlmsg_type == RTM_NEWROUTE)
        read_interface(&answer.head, ret);
}

/* ------------------------------------------------------------------ interfaces */

void rtnl_add_forwarding(struct rtnl *r, bool on)
{
    struct rtattr *inet = rtnl_nest(r, AF_INET), *conf = rtnl_nest(r, IFLA_INET_CONF);
    uint32_t value = on;

    rtnl_add(r, IPV4_DEVCONF_FORWARDING, &value, sizeof(value));
    rtnl_end_nest(r, conf);
    rtnl_end_nest(r, inet);
}

int rtnl_set_forwarding(const char *name, bool on, struct cove_err *e)
{
    struct ifinfomsg link = { .ifi_index = (int)if_nametoindex(name) };
    struct rtattr *spec;
    struct rtnl r;

    rtnl_begin(&r, RTM_SETLINK, 0, &link, sizeof(link));
    spec = rtnl_nest(&r, IFLA_AF_SPEC);
    rtnl_add_forwarding(&r, on);
    rtnl_end_nest(&r, spec);
    return rtnl_ask(&r, "forwarding", e);
}

void rtnl_remove_group(uint32_t group)
{
    struct ifinfomsg none = { 0 };
    struct rtnl r;

    rtnl_begin(&r, RTM_DELLINK, 0, &none, sizeof(none));
    rtnl_add(&r, IFLA_GROUP, &group, sizeof(group));
    rtnl_ask(&r, "removing interfaces", NULL); /* ENODEV: there is none */
}
