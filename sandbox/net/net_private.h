/* What the files of this folder share. */
#ifndef COVE_NET_PRIVATE_H
#define COVE_NET_PRIVATE_H

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include "cove/buf.h"
#include "cove/file.h"
#include "sandbox/net/net.h"

#define NET_ANY_COVE "cv*" /* interfaces of all keepers on this machine */

/* ------------------------------------------------------------------ rtnl.c */

struct rtnl { /* one request */
    union {
        struct nlmsghdr head;
        char room[1024];
    };
    bool full; /* something did not fit: rtnl_ask() will refuse it */
};

void rtnl_begin(struct rtnl *r, uint16_t type, uint16_t flags, const void *body, size_t len);
void rtnl_add(struct rtnl *r, uint16_t type, const void *data, size_t len);
struct nlattr *rtnl_nest(struct rtnl *r, uint16_t type);
/* A nest that begins with a structure of its own. */
struct nlattr *rtnl_nest_with(struct rtnl *r, uint16_t type, const void *body, size_t len);
void rtnl_end_nest(struct rtnl *r, struct nlattr *nest);
/* Send the request and wait for the kernel's answer. */
int rtnl_ask(struct rtnl *r, const char *what, struct cove_err *e);
/*
 * Several requests in one packet: the kernel carries them out in order. Only the last wants an answer; one that fails is
 * answered too, so the first answer tells whether all went well. A request that did not fit marks `out`
 * as overflown, which rtnl_seal() and rtnl_ask_all() refuse.
 */
void rtnl_append(struct rtnl *r, struct buf *out);
int rtnl_seal(struct buf *requests, struct cove_err *e); /* nothing more is added */
int rtnl_ask_all(struct buf *requests, const char *what, struct cove_err *e);
/* The numbers of one of our interfaces and of its peer, which is in another namespace. */
int rtnl_find_pair(const char *name, uint32_t *ret_index, uint32_t *ret_peer, struct cove_err *e);
/* The interface by which packets to a public address of this family leave; "" if there is none. */
void rtnl_way_out(int family, char ret[IFNAMSIZ]);
void rtnl_add_forwarding(struct rtnl *r, bool on); /* within IFLA_AF_SPEC; IPv4 */
int rtnl_set_forwarding(const char *name, bool on, struct cove_err *e); /* IPv4 */
/* The bytes that came in and went out by an interface so far. */
int rtnl_traffic(const char *name, uint64_t *ret_in, uint64_t *ret_out);
void rtnl_remove_group(uint32_t group); /* all interfaces of a group at once */

/* ------------------------------------------------------------------ rules.c */

enum { RULES_MAX = 4 << 20 }; /* bytes of text */

int rules_write(struct net *n, struct buf *out, struct cove_err *e); /* the whole table */
/* The sets and chains of one sandbox that has rules of its own. */
void rules_write_box(const struct net *n, uint32_t slot, struct buf *out);

/* ------------------------------------------------------------------ netfilter.c */

int netfilter_check(struct cove_err *e); /* can we use nftables here? (watch.c) */
int netfilter_run(const char *text, struct buf *ret_output, struct cove_err *e);
/* The words of a set in any keeper's table, separated by spaces; "" if there is none. */
void netfilter_read_set(const char *table, const char *set, char *out, size_t size);
/* Tables of all keepers on this machine. */
typedef void (*netfilter_table_fn)(void *arg, const char *table);
void netfilter_each_table(netfilter_table_fn each, void *arg);
int netfilter_load(struct net *n,
                   struct cove_err *e); /* unless the kernel has exactly these rules already */

/* ------------------------------------------------------------------ uplink.c */

int uplink_lock(
    void); /* returns a descriptor; closing it unlocks. One keeper at a time changes the host's settings */
/* Let packets pass from and to the outside, and remember what was changed for it. */
void uplink_open(struct net *n);
void uplink_restore(struct net *n); /* after our table is gone */

#endif
