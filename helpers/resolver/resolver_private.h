/* What the resolver's files share among themselves. */
#ifndef COVE_RESOLVER_PRIVATE_H
#define COVE_RESOLVER_PRIVATE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "cove/loop.h"
#include "cove/msg.h"
#include "cove/netlist.h"
#include "helpers/resolver/dns.h"

enum {
    UPSTREAMS_MAX = 4,
    JOBS_MAX = 4096,    /* questions under way */
    BOX_JOBS_MAX = 64,  /* of one sandbox */
    BOX_CONNS_MAX = 16, /* TCP connections of one sandbox */
    BOX_PINS_MAX =
        512, /* addresses pinned for one sandbox; room for them is doubled from BOX_PINS_FIRST on */
    BOX_PINS_FIRST = 8,
    BOX_LISTS = 1024, /* sandboxes are found by their slot modulo this */
    PIN_FLOOR_S = 60, /* programs hold on to an address longer than they were told */
    PIN_CEILING_S = 86400,
};

struct pinned {
    int family;
    uint8_t addr[16];
    uint64_t until_ms;
};

struct known_box {
    LIST_ENTRY(known_box) link;
    struct watch udp, tcp;
    uint32_t slot, generation;
    struct net_rules *own[NET_STAGES]; /* NULL: none */
    unsigned jobs, conns;
    bool gone; /* the sandbox ended; freed when no job or connection refers to this box any more */
    size_t pin_count, pin_room;
    struct pinned
        *pins; /* NULL until the first address is pinned: most sandboxes never need a pin */
};

struct tcp_client { /* a sandbox's TCP connection: one question after the other */
    LIST_ENTRY(tcp_client) link;
    struct watch watch;
    struct known_box *box;
    uint64_t until_ms;
    bool closed;
    bool busy; /* a question that came on this connection is under way */
    size_t in_len;
    uint8_t in[2 + DNS_QUERY_MAX];
};

struct lookup { /* one question under way */
    LIST_ENTRY(lookup) link;
    struct watch watch; /* the socket on which the name server was asked */
    struct known_box *box;
    struct tcp_client *conn; /* who asked: this connection, or else `from` */
    struct sockaddr_in from;
    struct dns_query query;
    struct dns_answer answer;
    uint16_t id;
    unsigned upstream, tries;
    bool by_tcp, sent, done;
    unsigned pins_waited;
    uint32_t tag; /* of our messages to the keeper about it */
    uint64_t until_ms, gives_up_ms;
    uint8_t *message; /* the answer as it came */
    size_t message_len, message_want;
    uint8_t head[2];
};

struct resolver {
    struct loop loop;
    struct timer tick;   /* set while a job, a connection or an ended box is there */
    struct watch keeper; /* off: the keeper is gone */
    struct net_rules rules;
    struct sockaddr_storage upstreams[UPSTREAMS_MAX];
    unsigned upstream_count;
    LIST_HEAD(known_boxes, known_box)
    boxes[BOX_LISTS], gone; /* living ones by slot; those that ended, until free_boxes() */
    LIST_HEAD(tcp_client_list, tcp_client)
    conns, closed;                          /* closed: freed when the current callback is over */
    LIST_HEAD(job_list, lookup) jobs, done; /* likewise */
    unsigned job_count;
    uint32_t next_tag;
};

/* ------------------------------------------------------------------ resolver.c */

void resolver_need_tick(struct resolver *r); /* something waits for time to pass */
void resolver_reap(struct resolver *r);      /* free what was closed or done; ends every callback */

/* ------------------------------------------------------------------ clients.c */

int clients_listen(struct resolver *r, struct known_box *b, const int fds[2]); /* UDP, TCP */
void clients_go_on(struct resolver *r, struct tcp_client *c); /* its question has been dealt with */
void clients_answer(struct resolver *r, struct lookup *j, const uint8_t *p, size_t len);
void clients_tick(struct resolver *r, uint64_t now);

/* ------------------------------------------------------------------ allow.c */

/* The operator's rules and every stage of the sandbox's own rules must allow the name. */
bool allow_name(const struct resolver *r, const struct known_box *b, const char *name);
/* Does the sandbox reach only addresses that were pinned? */
bool allow_needs_pins(const struct resolver *r, const struct known_box *b);
/* Takes out of an answer the addresses that no sandbox may reach. */
void allow_strip(const struct resolver *r, struct dns_answer *a);
/* Asks the keeper to pin an address, unless it is pinned already. -1: there is no room, or no keeper. */
int allow_pin(struct resolver *r, struct lookup *j, const struct dns_address *a);

/* ------------------------------------------------------------------ jobs.c */

void jobs_ask(struct resolver *r, struct known_box *b, struct tcp_client *c,
              const struct sockaddr_in *from, const uint8_t *p, size_t len);
void jobs_on_pinned(struct resolver *r, uint32_t tag, bool pinned);
void jobs_tick(struct resolver *r, uint64_t now);
void jobs_forget_conn(struct resolver *r, const struct tcp_client *c);

#endif
