/* Messages to the gate, from workers, the keeper and the next gate. */
#ifndef COVE_MSG_GATE_H
#define COVE_MSG_GATE_H

#include "cove/msg.h"
#include "cove/names.h"

enum gate_msg {
    /* struct gate_bind -> GATE_BOUND, or COVE_CONFLICT whose message is the number of the bound port */
    GATE_BIND = 500,
    GATE_UNBIND,  /* struct gate_unbind -> MSG_DONE, also if nothing was bound */
    GATE_BOUND,   /* struct gate_bound */
    GATE_BEFORE,  /* no body + a connection to the gate before it; keeper to a gate at its start */
    GATE_HOSTS,   /* no body + the socket that nginx connects to; likewise, and first */
    GATE_ACCESS,  /* struct gate_access -> MSG_DONE; from a worker */
    GATE_COUNTS,  /* struct gate_counts_ask -> GATE_COUNTED; from a worker, or `cove` */
    GATE_COUNTED, /* struct gate_counted, tail: struct gate_count, repeated */
    /* From a new gate to the old one, whose keeper is gone: the new one takes over -> MSG_DONE */
    GATE_SUCCEED,
    GATE_LISTENER, /* struct gate_listener -> MSG_DONE + the listening socket, which the asker owns now */
};

struct gate_bind {
    char tenant[COVE_TENANT_MAX];
    char project[COVE_PROJECT_MAX];
    char id[24]; /* the sandbox's */
    uint16_t port;
    uint16_t proxy_port; /* the port to listen on; 0 = the next free one of the range */
};

struct gate_unbind {
    char tenant[COVE_TENANT_MAX];
    char project[COVE_PROJECT_MAX];
};

enum gate_access_word { GATE_ACCESS_DEFAULT, GATE_ACCESS_PUBLIC, GATE_ACCESS_PRIVATE };

struct gate_access { /* who may reach this port by host name, from now on */
    char tenant[COVE_TENANT_MAX];
    char id[24];
    uint16_t port;
    uint16_t word; /* enum gate_access_word */
};

/* Traffic of sandboxes since the gate knows them, a page at a time: of the slots of the shared table from `first`
 * on. */
enum { GATE_COUNTS_PAGE = 512 };

struct gate_counts_ask {
    uint32_t first, reserved;
};

struct gate_counted {
    uint32_t count; /* entries in the tail */
    uint32_t next;  /* ask again from here; 0: that was all */
};

struct gate_count {
    char id[24];
    uint32_t open, reserved; /* connections now */
    uint64_t connections, bytes_in, bytes_out;
    uint64_t rate_in, rate_out; /* bytes per second, lately */
};

struct gate_listener {
    uint32_t slot, serial; /* of the binding, in the file gate.bindings that both gates have open */
};

struct gate_bound {
    uint16_t proxy_port; /* on this machine */
    uint16_t reserved;
};

#endif
