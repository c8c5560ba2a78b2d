/* rtnetlink: requests to the kernel about interfaces, addresses and routes, one at a time, written
 * and read by libmnl. The program `ip` is not used because nothing may fork while a sandbox is made. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/net/net_private.h"

/* The kernel's answer to one request: an acknowledgement, or one route. */
union rtnl_answer {
    struct nlmsghdr head;
    char room[4096];
};

/* Every writer checks the room that is left. A request that did not fit is marked `full`, and
 * rtnl_ask() refuses to send it. */
void rtnl_begin(struct rtnl *r, uint16_t type, uint16_t flags, const void *body, size_t len)
{
    assert(len <= sizeof(r->room) - MNL_NLMSG_HDRLEN);
    memset(r, 0, sizeof(*r));
    mnl_nlmsg_put_header(r->room);
    r->head.nlmsg_type = type;
    r->head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    memcpy(mnl_nlmsg_put_extra_header(&r->head, len), body, len);
}

void rtnl_add(struct rtnl *r, uint16_t type, const void *data, size_t len)
{
    r->full |= !mnl_attr_put_check(&r->head, sizeof(r->room), type, len, data);
}

struct nlattr *rtnl_nest(struct rtnl *r, uint16_t type)
{
    struct nlattr *nest = mnl_attr_nest_start_check(&r->head, sizeof(r->room), type);

    r->full |= !nest;
    return nest;
}

struct nlattr *rtnl_nest_with(struct rtnl *r, uint16_t type, const void *body, size_t len)
{
    struct nlattr *nest = rtnl_nest(r, type);

    if (!nest || r->head.nlmsg_len + MNL_ALIGN(len) > sizeof(r->room)) {
        r->full = true;
        return NULL;
    }
    memcpy(mnl_nlmsg_put_extra_header(&r->head, len), body, len);
    return nest;
}

void rtnl_end_nest(struct rtnl *r, struct nlattr *nest)
{
    if (nest)
        mnl_attr_nest_end(&r->head, nest);
}

/* Send one packet and read the first packet of the answer into `answer`. */
static ssize_t exchange_bytes(const void *packet, size_t len, void *answer, size_t size)
{
    struct mnl_socket *sock = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    ssize_t n = -1;
    int error;

    if (!sock)
        return -1;
    if (mnl_socket_sendto(sock, packet, len) >= 0)
        n = mnl_socket_recvfrom(sock, answer, size);
    error = errno;
    mnl_socket_close(sock);
    errno = error;
    return n;
}

static ssize_t exchange(struct rtnl *r, void *answer, size_t size)
{
    if (r->full) {
        errno = EMSGSIZE;
        return -1;
    }
    return exchange_bytes(r->room, r->head.nlmsg_len, answer, size);
}

int rtnl_ask(struct rtnl *r, const char *what, struct cove_err *e)
{
    union rtnl_answer answer;
    ssize_t n = exchange(r, &answer, sizeof(answer));

    if (n < 0 || mnl_cb_run(&answer, (size_t)n, 0, 0, NULL, NULL) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "network: %s", what);
    return 0;
}

/* ------------------------------------------------------------------ several requests in one packet */

void rtnl_append(struct rtnl *r, struct buf *out)
{
    static const char zeros[MNL_ALIGNTO];
    size_t len = r->head.nlmsg_len;

    r->head.nlmsg_flags &= (uint16_t)~NLM_F_ACK;
    out->overflow |= r->full;
    buf_add(out, r->room, len);
    buf_add(out, zeros, MNL_ALIGN(len) - len);
}

int rtnl_seal(struct buf *requests, struct cove_err *e)
{
    struct nlmsghdr *last = NULL;
    int left = (int)requests->len;

    if (requests->overflow)
        return cove_fail(e, COVE_INTERNAL, "network: requests too long");
    for (void *at = requests->data; left > 0; at = mnl_nlmsg_next(at, &left)) {
        uint32_t number = last ? last->nlmsg_seq + 1 : 1;

        last = at;
        last->nlmsg_seq = number;
    }
    if (last)
        last->nlmsg_flags |= NLM_F_ACK;
    return 0;
}

int rtnl_ask_all(struct buf *requests, const char *what, struct cove_err *e)
{
    union rtnl_answer answer;
    ssize_t n;

    if (rtnl_seal(requests, e) < 0)
        return -1;
    n = exchange_bytes(requests->data, requests->len, &answer, sizeof(answer));
    if (n < 0 || mnl_cb_run(&answer, (size_t)n, 0, 0, NULL, NULL) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "network: %s", what);
    return 0;
}

/* ------------------------------------------------------------------ the way out */

/* Any public address will do: the kernel only looks up the route, and no packet is sent. */
static void public_address(int family, void *out)
{
    inet_pton(family, family == AF_INET ? "1.1.1.1" : "2606:4700:4700::1111", out);
}

static int read_interface(const struct nlmsghdr *head, void *arg)
{
    const struct rtmsg *route = mnl_nlmsg_get_payload(head);
    const struct nlattr *a;
    char *name = arg;

    if (head->nlmsg_type != RTM_NEWROUTE || route->rtm_type != RTN_UNICAST)
        return MNL_CB_STOP;
    mnl_attr_for_each(a, head, sizeof(*route)) if (mnl_attr_get_type(a) == RTA_OIF &&
                                                   mnl_attr_validate(a, MNL_TYPE_U32) >=
                                                       0) if (!if_indextoname(mnl_attr_get_u32(a),
                                                                              name)) name[0] = '\0';
    return MNL_CB_STOP;
}

void rtnl_way_out(int family, char ret[IFNAMSIZ])
{
    struct rtmsg ask = { .rtm_family = (unsigned char)family,
                         .rtm_dst_len = family == AF_INET ? 32 : 128 };
    uint8_t addr[16];
    union rtnl_answer answer;
    struct rtnl r;
    ssize_t n;

    ret[0] = '\0';
    public_address(family, addr);
    rtnl_begin(&r, RTM_GETROUTE, 0, &ask, sizeof(ask));
    rtnl_add(&r, RTA_DST, addr, family == AF_INET ? 4 : 16);
    n = exchange(&r, &answer, sizeof(answer));
    if (n > 0)
        mnl_cb_run(&answer, (size_t)n, 0, 0, read_interface, ret);
}

/* ------------------------------------------------------------------ interfaces */

void rtnl_add_forwarding(struct rtnl *r, bool on)
{
    struct nlattr *inet = rtnl_nest(r, AF_INET), *conf = rtnl_nest(r, IFLA_INET_CONF);
    uint32_t value = on;

    rtnl_add(r, IPV4_DEVCONF_FORWARDING, &value, sizeof(value));
    rtnl_end_nest(r, conf);
    rtnl_end_nest(r, inet);
}

int rtnl_set_forwarding(const char *name, bool on, struct cove_err *e)
{
    struct ifinfomsg link = { .ifi_index = (int)if_nametoindex(name) };
    struct nlattr *spec;
    struct rtnl r;

    rtnl_begin(&r, RTM_SETLINK, 0, &link, sizeof(link));
    spec = rtnl_nest(&r, IFLA_AF_SPEC);
    rtnl_add_forwarding(&r, on);
    rtnl_end_nest(&r, spec);
    return rtnl_ask(&r, "forwarding", e);
}

/* Ask about the interface of this name, and read the answer. */
static int read_link(const char *name, uint32_t filter, mnl_cb_t read, void *arg)
{
    struct ifinfomsg any = { 0 };
    union rtnl_answer answer;
    struct rtnl r;
    ssize_t n;

    rtnl_begin(&r, RTM_GETLINK, 0, &any, sizeof(any));
    rtnl_add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    rtnl_add(&r, IFLA_EXT_MASK, &filter, sizeof(filter));
    n = exchange(&r, &answer, sizeof(answer));
    return n < 0 ? -1 : mnl_cb_run(&answer, (size_t)n, 0, 0, read, arg);
}

struct link_bytes {
    uint64_t in, out;
    bool found;
};

static int read_bytes(const struct nlmsghdr *head, void *arg)
{
    struct link_bytes *ret = arg;
    struct rtnl_link_stats64 stats;
    const struct nlattr *a;

    mnl_attr_for_each(a, head, sizeof(struct ifinfomsg))
    {
        if (mnl_attr_get_type(a) != IFLA_STATS64 || mnl_attr_get_payload_len(a) < sizeof(stats))
            continue;
        memcpy(&stats, mnl_attr_get_payload(a), sizeof(stats));
        *ret = (struct link_bytes){ stats.rx_bytes, stats.tx_bytes, true };
    }
    return MNL_CB_STOP;
}

int rtnl_traffic(const char *name, uint64_t *ret_in, uint64_t *ret_out)
{
    struct link_bytes bytes = { 0 };

    if (read_link(name, 0, read_bytes, &bytes) < 0 || !bytes.found)
        return -1;
    *ret_in = bytes.in;
    *ret_out = bytes.out;
    return 0;
}

struct link_ends {
    uint32_t index, peer;
};

static int read_ends(const struct nlmsghdr *head, void *arg)
{
    const struct ifinfomsg *link = mnl_nlmsg_get_payload(head);
    const struct nlattr *a;
    struct link_ends *ret = arg;

    ret->index = ret->peer = (uint32_t)link->ifi_index;
    mnl_attr_for_each(a, head, sizeof(*link))
    {
        if (mnl_attr_get_type(a) == IFLA_LINK && mnl_attr_validate(a, MNL_TYPE_U32) >= 0)
            ret->peer = mnl_attr_get_u32(a);
    }
    return MNL_CB_STOP;
}

int rtnl_find_pair(const char *name, uint32_t *ret_index, uint32_t *ret_peer, struct cove_err *e)
{
    struct link_ends ends = { 0 };

    if (read_link(name, RTEXT_FILTER_SKIP_STATS, read_ends, &ends) < 0 || !ends.index)
        return cove_fail_errno(e, COVE_INTERNAL, "network: interface %s", name);
    *ret_index = ends.index;
    *ret_peer = ends.peer;
    return 0;
}

void rtnl_remove_group(uint32_t group)
{
    struct ifinfomsg none = { 0 };
    struct rtnl r;

    rtnl_begin(&r, RTM_DELLINK, 0, &none, sizeof(none));
    rtnl_add(&r, IFLA_GROUP, &group, sizeof(group));
    rtnl_ask(&r, "removing interfaces",
             NULL); /* ENODEV: no interface of the group exists, which is fine */
}
