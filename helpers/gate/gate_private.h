/*
 * What the gate's files share. Reading order: gate.c, relay.c, connect.c, the ways in (bindings.c, hosts.c),
 * answer.c, handover.c.
 */
#ifndef GATE_PRIVATE_H
#define GATE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cove/buf.h"
#include "cove/config.h"
#include "cove/err.h"
#include "cove/keys.h"
#include "cove/limits.h"
#include "cove/loop.h"
#include "cove/msg.h"
#include "cove/msg_gate.h"
#include "cove/state.h"

enum {
    MAX_BINDINGS = 1024,
    MAX_RELAYS = 16384,
    FDS_PER_RELAY = 3,   /* two ends, and the question to init */
    MAX_CONNECTING = 32, /* questions to one init at a time: it takes no more than 64 */
    KEPT_PER_INIT = 4,   /* sockets to an init that wait for the next question */
    KEPT_MAX = 256,
    CONNECT_MS = 10000,
    SWEEP_MS = 1000,
    SUPERSEDED_SWEEP_MS = 100, /* by then the file alone tells what was unbound */
};

struct gate;
struct relay;

/* ------------------------------------------------------------------ relay.c */

struct port_target { /* where a connection leads */
    char id[24];
    uint16_t port;
};

struct tenant_share { /* what one tenant's ports may use, and what they have moved lately */
    LIST_ENTRY(tenant_share) link;
    char tenant[COVE_TENANT_MAX];
    struct limits limits;       /* only those of traffic are used here */
    struct budget socket_bytes; /* its part of gate.socket_bytes */
    int64_t left;               /* bytes that may move now; below 0: none yet */
    uint64_t at_ms;
};

/* What one sandbox uses. One record per slot of the shared table; ids tell whose it is. */
struct box_traffic {
    char id[24];
    char tenant[COVE_TENANT_MAX];
    struct tenant_share *share;                /* its tenant's */
    unsigned open;                             /* relays that lead there, waiting ones included */
    unsigned connecting;                       /* questions that init has not answered yet */
    TAILQ_HEAD(relay_queue, relay) waiting;    /* for their turn to ask */
    uint64_t connections, bytes_in, bytes_out; /* since the sandbox is known here */
    uint64_t before_in, before_out;            /* the same at the last sweep */
    uint64_t rate_in, rate_out;                /* bytes per second, between the last two sweeps */
    LIST_HEAD(asker_list, asker) kept;         /* sockets to init, on which nothing is asked now */
    unsigned kept_count;
    bool kept_used; /* since the last sweep */
};

struct direction {
    char *held;                 /* bytes that the other end had no room for; else NULL */
    size_t held_len, held_sent; /* its length, and how much of it was sent since */
    bool ended;                 /* end of file was read */
    bool shut;                  /* the other side was told so */
};

/* A way in: by a bound port (bindings.c), by a host name (hosts.c), to a process (sockets.c). */
struct way_in {
    /* The sandbox cannot be reached. Must end in relay_close(), now or later. */
    void (*refused)(struct relay *r, const struct cove_err *why);
    bool half_close; /* a client that has sent its last byte may still be listening */
};

enum { CLIENT, BOX }; /* the ends of a relay; direction n leads from end n to the other */

enum relay_stage {
    RELAY_NEW,       /* its target is not known yet */
    RELAY_WAITING,   /* for its turn to ask */
    RELAY_ASKING,    /* init was asked to connect */
    RELAY_RETRYING,  /* nothing listens yet in a sandbox that is just starting */
    RELAY_MOVING,    /* bytes */
    RELAY_SOCKET,    /* the client's end is a WebSocket on a process (attach.h) */
    RELAY_LINGERING, /* an answer was sent; what the client still sends is thrown away */
};

struct gate_caller {          /* how long a connection may stay */
    char key[KEY_ID_LEN + 1]; /* public name of the key that admitted it; "": it came without one */
    uint64_t until_s;         /* unix time at which its session or link ends; 0: never */
};

struct relay { /* one connection: two ends and a target */
    LIST_ENTRY(relay) link;
    TAILQ_ENTRY(relay) turn;
    struct gate *gate;
    const struct way_in *way_in;
    struct binding *binding; /* of a bound port; else NULL */
    struct viewer *viewer;   /* of a WebSocket on a process; else NULL */
    struct port_target target;
    struct box_traffic *usage; /* NULL until the target is known, and after it was lost */
    struct gate_caller caller;
    enum relay_stage stage;
    struct watch end[2];
    struct asker *asker; /* the question to init, while it is open (connect.c) */
    struct timer timer;
    uint64_t retry_until_ms;
    uint64_t moved_ms; /* when the last byte moved */
    bool throttled;    /* its tenant has moved enough for now: in gate.throttled, by `turn` */
    struct direction way[2];
    struct buf head; /* what was read from the client before the sandbox was connected */
    size_t head_sent;
    bool html;        /* the client wants pages for people */
    bool kept;        /* nginx knew the verdict; so it is a request without a body */
    bool quiet;       /* the client's end is not read until the next sweep: see hosts.c */
    char reason[120]; /* what an owner may know beyond the usual answer */
};

LIST_HEAD(relay_list, relay);

/* The next client that waits at a listening socket; its end is kept, and not yet watched. NULL: there is
 * none, or no room for it. */
struct relay *relay_accept(struct gate *g, struct watch *listener, const struct way_in *way_in);
void relay_begin(struct relay *r, int box_fd); /* the sandbox's end is there: move bytes */
/* The sandbox cannot be reached: the client is told so, as its way in does that. */
void relay_refuse(struct relay *r, const struct cove_err *why);
void relay_refuse_with(struct relay *r, enum cove_code code, const char *text);
void relay_close(struct relay *r); /* frees it */
void relays_close_of(struct gate *g, const struct binding *b);
void relays_sweep(struct gate *g); /* those of sandboxes that have ended */
bool relays_have_room(const struct gate *g);

/* ------------------------------------------------------------------ connect.c */

void relay_connect(struct relay *r, const struct port_target *t);
/* Count it as a connection of the sandbox. False: there is no such sandbox, or it has its share already, and
 * the client was told. */
bool relay_claim(struct relay *r, const struct port_target *t);
void connect_stop(struct relay *r); /* no longer wait for a turn or for init's answer */
void connect_take_turns(struct timer *t);
void connect_sweep(struct gate *g);

/* ------------------------------------------------------------------ shares.c: what a tenant may use */

/* What the keeper has written for us into a file, as text. */
int gate_read_copy(int fd, struct buf *text, struct cove_err *e);
int shares_open(struct gate *g, struct cove_err *e);
struct tenant_share *share_of(struct gate *g, const char *tenant); /* NULL: out of memory */
void shares_sweep(struct gate *g); /* take up what an operator has changed; count what moved */

/* ------------------------------------------------------------------ callers.c */

int callers_open(struct gate *g, struct cove_err *e);
/* Ends the connections whose key, session or link has ended. */
void callers_sweep(struct gate *g);

/* ------------------------------------------------------------------ bindings.c: bound ports */

struct binding_record { /* in the bindings file, which outlives this process; port 0: free */
    char tenant[COVE_TENANT_MAX];
    char project[COVE_PROJECT_MAX];
    char id[24];
    uint16_t port, proxy_port;
    uint32_t serial; /* never given to another binding */
};

struct binding {
    LIST_ENTRY(binding) link;
    struct watch watch; /* the listening socket */
    struct binding_record rec;
    uint32_t slot; /* in the file */
};

int bindings_load(struct gate *g, int before, struct cove_err *e);
int bindings_add(struct gate *g, const struct gate_bind *ask, uint16_t *ret_proxy_port,
                 struct cove_err *e);
bool bindings_remove(struct gate *g, const char *tenant, const char *project);
void bindings_unlisten(struct gate *g); /* no new connections */
/* End those whose sandbox has ended; listen for those that wait for their port. */
void bindings_sweep(struct gate *g);

/* ------------------------------------------------------------------ hosts.c: PORT-ID.DOMAIN */

bool caller_read(const char *word, struct gate_caller *ret); /* key=NAME or until=SECONDS */
int hosts_listen(struct gate *g, int fd, struct cove_err *e);

/* ------------------------------------------------------------------ sockets.c: WebSockets */

/* What nginx's line says about a WebSocket on a process. False: the line is about something else. */
bool sockets_follow(struct relay *r, const char *line);
bool sockets_meant(const char *line);

/* ------------------------------------------------------------------ access.c: who may, per port */

struct access_record { /* in the bindings file too; port 0: free */
    char id[24];
    uint16_t port, word; /* enum gate_access_word */
};

int access_load(struct gate *g, struct cove_err *e);
int access_set(struct gate *g, const struct gate_access *ask, struct cove_err *e);
enum gate_access_word access_of(const struct gate *g, const struct port_target *t);
void access_sweep(struct gate *g); /* forget those of sandboxes that have ended */

/* ------------------------------------------------------------------ answer.c */

void answer_refusal(struct relay *r, const struct cove_err *why);
/* Sends a status and a sentence that a worker has chosen. */
void answer_status(struct relay *r, unsigned status, const char *message);

/* ------------------------------------------------------------------ handover.c */

/* Reads the keeper's first messages: the socket nginx connects to, and a connection to the gate before us,
 * which has stepped back; -1 each if there is none. */
void handover_begin(int keeper, int *ret_hosts, int *ret_before);
int handover_listener(int before, const struct binding *b); /* its listening socket, or -1 */
int on_succeed(struct gate *g, int sock, const struct msg *m, struct cove_err *e);
int on_listener(struct gate *g, int sock, const struct msg *m, struct cove_err *e);

/* ------------------------------------------------------------------ gate.c */

struct gate {
    struct cove_config config;
    struct state *state;
    struct loop loop;
    struct timer sweep, turns;
    struct watch control; /* workers ask here */
    struct watch hosts;   /* nginx connects here */
    struct watch keeper;  /* off: the keeper is gone */
    struct watch term;    /* SIGTERM */
    LIST_HEAD(binding_list, binding) bindings;
    struct relay_list relays;
    LIST_HEAD(attachment_list, attachment) attachments;
    struct budget
        socket_bytes; /* messages of WebSockets that are not whole, or wait for their process */
    struct box_traffic *usage; /* by slot of the shared table */
    struct access_record *access;
    LIST_HEAD(share_list, tenant_share) shares;
    int tenants_fd;              /* the tenants' own limits, which the keeper writes; -1: none */
    uint32_t tenants_generation; /* of the file's content that was read last */
    int keys_fd;                 /* which keys hold, likewise */
    struct key_names keys;
    uint32_t keys_generation;
    uint64_t swept_ms;
    struct relay_queue throttled; /* connections that wait, the longest first */
    struct timer unthrottle;
    size_t held_bytes;   /* of all connections */
    unsigned kept_count; /* sockets to inits, of all sandboxes */
    unsigned binding_count, relay_count, relay_max;
    uint32_t serial;
    bool leaving;    /* told to stop: WebSockets hear it first */
    bool full;       /* no new connections until one ends */
    bool superseded; /* the next keeper has a gate: no new connections, and the file is not ours */
};

void gate_room_changed(struct gate *g); /* accept, or stop accepting, as there is room */
void gate_stop_if_idle(struct gate *g); /* nothing is left to do, and nobody could ask for it */

#endif
