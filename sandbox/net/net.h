/* The network of sandboxes: what the keeper and the set-up of a sandbox ask of it. */
#ifndef COVE_NET_H
#define COVE_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/buf.h"
#include "cove/config.h"
#include "cove/err.h"
#include "cove/netlist.h"

enum { NET_OPENED_MAX = 256 };

struct net_own { /* the rules that narrow one sandbox; all stages apply together */
    struct net_rules stages[NET_STAGES];
};

struct net {
    struct net_rules rules; /* for all; mode NET_NONE: a new sandbox gets no network, and one that
                               was made without stays without */
    struct net_own **own;   /* by slot; NULL = nothing */
    uint32_t slots;
    uint32_t base;        /* host order: where our addresses begin, two a slot */
    unsigned base_bits;   /* bits of the prefix of our block */
    uint8_t base6[16];    /* the same for IPv6, unique-local */
    uint32_t group;       /* all our interfaces on the host are in it */
    uint32_t stamp;       /* hash of the rules, by which a loaded table is recognised */
    uint32_t connections; /* of one sandbox at a time; 0 = as many as the kernel has room for */
    bool uncounted;       /* this kernel cannot limit them */
    bool loaded;          /* our table is in the kernel */
    bool ipv4, ipv6;  /* the host has a route outside; for IPv6: and new sandboxes get addresses */
    uint64_t next_ms; /* when to look again whether there is one */
    char prefix[10];  /* of the host's ends' names */
    char table[24];
    char uplink[128];                                      /* as configured */
    char opened4[NET_OPENED_MAX], opened6[NET_OPENED_MAX]; /* interfaces we let forward */
};

/* Reads the configuration. strict: the policy's seccomp profile is `strict`, with which `auto`
 * means no network. */
void net_configure(const struct cove_config *c, bool strict, struct net_rules *ret);
/* Chooses names and addresses that no other keeper on this machine has, loads rules, enables forwarding. On
 * failure nothing is changed. */
int net_init(struct net *n, const struct cove_config *c, const struct net_rules *rules,
             uint32_t slots, struct cove_err *e);
bool net_tick(struct net *n, uint64_t now_ms); /* whether it was time to look */
/* Take back all that was done to the host. Returns whether there was anything. */
bool net_done(struct net *n);
/* The same for a keeper that was killed. */
bool net_sweep(const struct cove_config *c);

/* watch.c: net_watch() returns a descriptor that is readable when rules change on this machine; net_watch_lost()
 * tells whether ours are gone. */
int net_watch(void);
bool net_watch_lost(int sock, const struct net *n);
int net_restore(struct net *n, struct cove_err *e); /* the same rules again */

int net_probe(const struct net *n, struct cove_err *e);
void net_interface(const struct net *n, uint32_t slot, char out[16]);
/* The bytes that the sandbox has received and sent since it was made. Both stay as they are when it has no network. */
void net_traffic(const struct net *n, uint32_t slot, uint64_t *received, uint64_t *sent);
/* Makes the pair, and writes what the sandbox's set-up is to ask of the kernel for its end
 * (cove/setup_plan.h). */
int net_attach(const struct net *n, uint32_t slot, pid_t pid, struct buf *inside,
               struct cove_err *e);
void net_settle(const struct net *n, uint32_t slot); /* once the link is up; may be left out */
/* The sockets on which a sandbox asks for names: UDP, and listening TCP. owner: the owner of its
 * user namespace. */
int net_dns_sockets(pid_t pid, uid_t owner, int ret[2], struct cove_err *e);
int net_pin(const struct net *n, uint32_t slot, int family, const uint8_t *addr, uint32_t seconds,
            struct cove_err *e);
int net_set_own(struct net *n, uint32_t slot, const struct net_own *own, struct cove_err *e);
void net_forget_own(struct net *n, uint32_t slot);

#endif
