/* What the resolver's files share among themselves. */
#ifndef COVE_RESOLVER_PRIVATE_H
#define COVE_RESOLVER_PRIVATE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "cove/msg.h"
#include "cove/netlist.h"
#include "helpers/resolver/dns.h"

enum {
    UPSTREAMS_MAX = 4,
    JOBS_MAX = 4096,    /* questions under way */
    BOX_JOBS_MAX = 64,  /* of one sandbox */
    BOX_CONNS_MAX = 16, /* TCP connections of one sandbox */
    BOX_PINS_MAX = 512, /* addresses pinned for one sandbox */
    PIN_FLOOR_S = 60,   /* programs hold on to an address longer than they were told */
    PIN_CEILING_S = 86400,
};

enum source_kind { SOURCE_KEEPER, SOURCE_UDP, SOURCE_LISTEN, SOURCE_CONN, SOURCE_JOB };

struct source { /* first in all that epoll points to */
    enum source_kind kind;
    int fd;
};

struct pinned {
    int family;
    uint8_t addr[16];
    uint64_t until_ms;
};

struct box {
    struct source udp, tcp;
    struct box *next;
    uint32_t slot, generation;
    struct net_rules *own[NET_STAGES]; /* NULL: none */
    unsigned jobs, conns;
    bool gone; /* freed when nothing refers to it any more */
    size_t pin_count;
    struct pinned pins[BOX_PINS_MAX];
};

struct conn { /* a sandbox's TCP connection: one question after the other */
    struct source source;
    struct conn *next;
    struct box *box;
    uint64_t until_ms;
    bool closed, busy; /* busy: a question of it is under way */
    size_t in_len;
    uint8_t in[2 + DNS_QUERY_MAX];
};

struct job { /* one question under way */
    struct source source;
    struct job *next;
    struct box *box;
    struct conn *conn; /* who asked: this connection, or else `from` */
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
    int epoll;
    struct source keeper;
    bool orphaned; /* the keeper is gone */
    struct net_rules rules;
    struct sockaddr_storage upstreams[UPSTREAMS_MAX];
    unsigned upstream_count;
    struct box *boxes;
    struct conn *conns;
    struct job *jobs;
    unsigned job_count;
    uint32_t next_tag;
};

/* ------------------------------------------------------------------ resolver.c */

int watch(struct resolver *r, struct source *s, uint32_t events);

/* ------------------------------------------------------------------ clients.c */

void clients_read_udp(struct resolver *r, struct box *b);
void clients_accept(struct resolver *r, struct box *b);
void clients_read_conn(struct resolver *r, struct conn *c);
void clients_go_on(struct resolver *r, struct conn *c); /* its question has been dealt with */
void clients_answer(struct resolver *r, struct job *j, const uint8_t *p, size_t len);
void clients_tick(struct resolver *r, uint64_t now);

/* ------------------------------------------------------------------ jobs.c */

void jobs_ask(struct resolver *r, struct box *b, struct conn *c, const struct sockaddr_in *from,
              const uint8_t *p, size_t len);
void jobs_on_event(struct resolver *r, struct job *j);
void jobs_on_pinned(struct resolver *r, uint32_t tag, bool pinned);
void jobs_tick(struct resolver *r, uint64_t now);
void jobs_forget_conn(struct resolver *r, const struct conn *c);

#endif
