/*
 * A sandbox's network: a veth pair, one end on the host, the other its eth0, and an address of each
 * family by the number of its slot, with a gateway beside it. One set of rules decides for all sandboxes
 * what may pass (netfilter.c), so making a sandbox changes no rule.
 *
 * The keeper makes the pair when the child has its namespace, under a name that belongs to the
 * slot, and writes down the requests by which the child gives its end address and route
 * (setup/setup_network.c). When the namespace dies, the kernel takes the pair away.
 *
 * The host's end has a route to the sandbox and no address of its own. Some of what the kernel does
 * when a link comes up goes through all addresses and all IPv6 routes of the host, so that each of
 * them makes every creation slower: with 5,000 sandboxes it was most of what a creation cost. The two
 * ends have the same hardware address and do not ask for one another's (IFF_NOARP): the gateway of a
 * sandbox's routes belongs to nobody.
 *
 * IFF_NOARP also bounds what a sandbox can do to the kernel's tables of neighbours, which all network
 * namespaces of the machine share (gc_thresh3 of neigh/default, 1024 entries as a rule). A program inside can
 * take an entry for each address it sends to: by multicast, or by SO_BINDTODEVICE with SO_DONTROUTE, past
 * every route. When the table is full the kernel (5.13 and later) gives entries of such links to whoever needs
 * one, at once; entries that wait for an answer it would keep for seconds.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/setup_plan.h"
#include "cove/text.h"
#include "sandbox/net/net_private.h"

/* ------------------------------------------------------------------ names and addresses of a slot */

struct address {
    int family;
    unsigned char len, prefix;
    uint8_t bytes[16];
};

enum { MAC_LEN = 6 };

void net_interface(const struct net *n, uint32_t slot, char out[IFNAMSIZ])
{
    snprintf(out, IFNAMSIZ, "%s%u", n->prefix, slot % 16384);
}

/* A slot has two addresses of each family: that of the gateway and that of the sandbox. */
static struct address address_of(const struct net *n, int family, uint32_t slot, bool inside)
{
    struct address a = { .family = family };
    uint32_t number = slot % 16384 * 2 + inside, v4 = htonl(n->base + number);

    if (family == AF_INET) {
        a.len = 4;
        a.prefix = 31;
        memcpy(a.bytes, &v4, 4);
    } else {
        a.len = 16;
        a.prefix = 127;
        memcpy(a.bytes, n->base6, 16);
        a.bytes[14] = (uint8_t)(number >> 8);
        a.bytes[15] = (uint8_t)number;
    }
    return a;
}

/* ------------------------------------------------------------------ steps */

/* A hardware address that is locally administered (bit 1 of the first byte) and unicast (bit 0). */
static void new_mac(uint8_t mac[MAC_LEN])
{
    if (getrandom(mac, MAC_LEN, 0) != MAC_LEN)
        memset(mac, 0, MAC_LEN);
    mac[0] = (uint8_t)((mac[0] & 0xfc) | 2);
}

/* One queue each way: by default the kernel makes one for each cpu of the machine, with a directory in sysfs each. A
 * veth sends without a lock on whatever cpu its sender runs, so more queues gain nothing. */
static void add_queues(struct rtnl *r)
{
    uint32_t one = 1;

    rtnl_add(r, IFLA_NUM_TX_QUEUES, &one, sizeof(one));
    rtnl_add(r, IFLA_NUM_RX_QUEUES, &one, sizeof(one));
}

static int make_pair(const struct net *n, const char *name, pid_t pid, struct cove_err *e)
{
    struct ifinfomsg end = { .ifi_flags = IFF_NOARP, .ifi_change = IFF_NOARP };
    uint32_t ns = (uint32_t)pid;
    struct nlattr *info, *data, *peer;
    uint8_t mac[MAC_LEN];
    struct rtnl r;

    new_mac(mac);
    rtnl_begin(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &end, sizeof(end));
    rtnl_add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    rtnl_add(&r, IFLA_ADDRESS, mac, MAC_LEN);
    rtnl_add(&r, IFLA_GROUP, &n->group, sizeof(n->group));
    add_queues(&r);
    info = rtnl_nest(&r, IFLA_LINKINFO);
    rtnl_add(&r, IFLA_INFO_KIND, "veth", 4);
    data = rtnl_nest(&r, IFLA_INFO_DATA);
    peer = rtnl_nest_with(&r, VETH_INFO_PEER, &end, sizeof(end));
    rtnl_add(&r, IFLA_ADDRESS, mac, MAC_LEN);
    add_queues(&r);
    if (pid > 0) {
        rtnl_add(&r, IFLA_IFNAME, "eth0", 5);
        rtnl_add(&r, IFLA_NET_NS_PID, &ns, sizeof(ns));
    } else {
        rtnl_add(&r, IFLA_GROUP, &n->group, sizeof(n->group));
    }
    rtnl_end_nest(&r, peer);
    rtnl_end_nest(&r, data);
    rtnl_end_nest(&r, info);
    return rtnl_ask(&r, "veth pair", e);
}

static void remove_pair(const char *name)
{
    struct ifinfomsg link = { .ifi_index = (int)if_nametoindex(name) };
    struct rtnl r;

    if (!link.ifi_index)
        return;
    rtnl_begin(&r, RTM_DELLINK, 0, &link, sizeof(link));
    rtnl_ask(&r, name, NULL);
}

static bool has_ipv6(void)
{
    return access("/proc/sys/net/ipv6", F_OK) == 0;
}

/*
 * Turns off automatic link-local addresses, which would only cost announcements. Not every kernel has IPv6.
 * The host's end is made to forward, by netlink rather than /proc/sys, which is often read-only even for root.
 * To be called before add_up(): a change of these settings on a link that is up makes the kernel visit all IPv6
 * routes of the host.
 */
static void add_manners(struct buf *out, uint32_t index, bool forward)
{
    struct ifinfomsg link = { .ifi_index = (int)index };
    uint8_t none = IN6_ADDR_GEN_MODE_NONE;
    struct nlattr *spec, *family;
    struct rtnl r;

    rtnl_begin(&r, RTM_SETLINK, 0, &link, sizeof(link));
    spec = rtnl_nest(&r, IFLA_AF_SPEC);
    if (has_ipv6()) {
        family = rtnl_nest(&r, AF_INET6);
        rtnl_add(&r, IFLA_INET6_ADDR_GEN_MODE, &none, sizeof(none));
        rtnl_end_nest(&r, family);
    }
    if (forward)
        rtnl_add_forwarding(&r, true);
    rtnl_end_nest(&r, spec);
    rtnl_append(&r, out);
}

static void add_up(struct buf *out, uint32_t index)
{
    struct ifinfomsg link = { .ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
    struct rtnl r;

    rtnl_begin(&r, RTM_NEWLINK, 0, &link, sizeof(link));
    rtnl_append(&r, out);
}

static void add_address(struct buf *out, uint32_t index, struct address addr)
{
    struct ifaddrmsg a = { .ifa_family = (unsigned char)addr.family,
                           .ifa_prefixlen = addr.prefix,
                           .ifa_flags = IFA_F_NODAD,
                           .ifa_index = index };
    struct rtnl r;

    rtnl_begin(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &a, sizeof(a));
    rtnl_add(&r, IFA_LOCAL, addr.bytes, addr.len);
    rtnl_add(&r, IFA_ADDRESS, addr.bytes, addr.len);
    rtnl_append(&r, out);
}

static void add_route(struct buf *out, uint32_t index, struct address gateway)
{
    struct rtmsg route = { .rtm_family = (unsigned char)gateway.family,
                           .rtm_table = RT_TABLE_MAIN,
                           .rtm_protocol = RTPROT_STATIC,
                           .rtm_scope = RT_SCOPE_UNIVERSE,
                           .rtm_type = RTN_UNICAST };
    struct rtnl r;

    rtnl_begin(&r, RTM_NEWROUTE, NLM_F_CREATE, &route, sizeof(route));
    rtnl_add(&r, RTA_GATEWAY, gateway.bytes, gateway.len);
    rtnl_add(&r, RTA_OIF, &index, sizeof(index));
    rtnl_append(&r, out);
}

/* The host's route to the sandbox's address, which is behind this interface. */
static void add_way_in(struct buf *out, uint32_t index, struct address inside)
{
    struct rtmsg route = { .rtm_family = (unsigned char)inside.family,
                           .rtm_dst_len = (unsigned char)(inside.len * 8),
                           .rtm_table = RT_TABLE_MAIN,
                           .rtm_protocol = RTPROT_STATIC,
                           .rtm_scope = RT_SCOPE_LINK,
                           .rtm_type = RTN_UNICAST };
    struct rtnl r;

    rtnl_begin(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &route, sizeof(route));
    rtnl_add(&r, RTA_DST, inside.bytes, inside.len);
    rtnl_add(&r, RTA_OIF, &index, sizeof(index));
    rtnl_append(&r, out);
}

static void set_switch6(const char *name, const char *which)
{
    char path[96];

    snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/%s", name, which);
    write_file_at(AT_FDCWD, path, "1", NULL);
}

/* Older kernels forward IPv6 for all interfaces or for none; newer ones have a switch for each
 * interface. Where the host has no IPv6 route to the outside, its end of the pair gets no IPv6
 * route either. */
static void set_ipv6(const struct net *n, const char *name)
{
    set_switch6(name, n->ipv6 ? "force_forwarding" : "disable_ipv6");
}

/* ------------------------------------------------------------------ both halves */

/* Does this kernel have veth pairs, and may we make one? */
int net_probe(const struct net *n, struct cove_err *e)
{
    char name[IFNAMSIZ];
    int rc;

    snprintf(name, sizeof(name), "%st", n->prefix);
    remove_pair(name);
    rc = make_pair(n, name, 0, e);
    if (rc == 0)
        rc = rtnl_set_forwarding(name, true, e);
    remove_pair(name);
    return rc;
}

/* The host's end is asked: what comes in there was sent by the sandbox. */
void net_traffic(const struct net *n, uint32_t slot, uint64_t *received, uint64_t *sent)
{
    char name[IFNAMSIZ];

    net_interface(n, slot, name);
    rtnl_traffic(name, sent, received);
}

static int bring_up_host_end(const struct net *n, uint32_t slot, uint32_t index, struct cove_err *e)
{
    AUTO_BUF struct buf requests = BUF(SETUP_REQUESTS_MAX);

    add_manners(&requests, index, true);
    add_up(&requests, index);
    add_way_in(&requests, index, address_of(n, AF_INET, slot, true));
    if (n->ipv6)
        add_way_in(&requests, index, address_of(n, AF_INET6, slot, true));
    return rtnl_ask_all(&requests, "the host's end of a link", e);
}

/* What the sandbox's set-up asks of the kernel for eth0, which has this number there. */
static int write_inside(const struct net *n, uint32_t slot, uint32_t index, struct buf *out,
                        struct cove_err *e)
{
    add_manners(out, index, false);
    add_address(out, index, address_of(n, AF_INET, slot, true));
    if (n->ipv6)
        add_address(out, index, address_of(n, AF_INET6, slot, true));
    add_up(out, index);
    add_route(out, index, address_of(n, AF_INET, slot, false));
    if (n->ipv6)
        add_route(out, index, address_of(n, AF_INET6, slot, false));
    return rtnl_seal(out, e);
}

/* A pair of the slot's last sandbox may not be gone yet: namespaces die in the background. */
int net_attach(const struct net *n, uint32_t slot, pid_t pid, struct buf *inside,
               struct cove_err *e)
{
    char name[IFNAMSIZ];
    uint32_t index, peer;

    if (n->rules.mode == NET_NONE)
        return 0;
    net_interface(n, slot, name);
    remove_pair(name);
    if (make_pair(n, name, pid, e) < 0 || rtnl_find_pair(name, &index, &peer, e) < 0)
        return -1;
    if (has_ipv6())
        set_ipv6(n, name);
    return bring_up_host_end(n, slot, index, e) < 0 ? -1 : write_inside(n, slot, peer, inside, e);
}

/*
 * When a link comes up the kernel adds a route for multicast to a list, which it reads from the
 * beginning for every further link. Nothing on the host's end needs this route, so it is removed.
 * The kernel may add it later than this function runs: asking for the link's state makes the kernel
 * add it now.
 */
void net_settle(const struct net *n, uint32_t slot)
{
    static const uint8_t multicast[16] = { 0xff };
    struct rtmsg route = { .rtm_family = AF_INET6,
                           .rtm_dst_len = 8,
                           .rtm_table = RT_TABLE_LOCAL,
                           .rtm_type = RTN_MULTICAST };
    struct ethtool_value state = { .cmd = ETHTOOL_GLINK };
    struct ifreq ask = { .ifr_data = (char *)&state };
    AUTO_CLOSE int sock = -1;
    uint32_t index;
    struct rtnl r;

    if (n->rules.mode == NET_NONE || !n->ipv6)
        return;
    sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    net_interface(n, slot, ask.ifr_name);
    if (sock < 0 || ioctl(sock, SIOCETHTOOL, &ask) < 0 || ioctl(sock, SIOCGIFINDEX, &ask) < 0)
        return;
    index = (uint32_t)ask.ifr_ifindex;
    rtnl_begin(&r, RTM_DELROUTE, 0, &route, sizeof(route));
    rtnl_add(&r, RTA_DST, multicast, sizeof(multicast));
    rtnl_add(&r, RTA_OIF, &index, sizeof(index));
    rtnl_ask(&r, "multicast", NULL);
}
