/* What the gate's files share. Reading order: gate.c, bindings.c, relay.c. */
#ifndef GATE_PRIVATE_H
#define GATE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cove/config.h"
#include "cove/err.h"
#include "cove/msg.h"
#include "cove/state.h"

enum {
    MAX_BINDINGS = 1024,
    MAX_RELAYS = 4096,
    MAX_CONNECTING = 32, /* of one binding: an init takes no more than 64 */
    CONNECT_MS = 10000,
    SWEEP_MS = 1000,
    SUPERSEDED_SWEEP_MS = 100, /* by then the file alone tells what was unbound */
};

struct gate;

struct watch { /* one descriptor in the loop; embedded in what it belongs to */
    int fd;    /* -1: none */
    uint32_t events;
    void (*ready)(struct gate *g, struct watch *w, uint32_t events);
};

int watch_start(struct gate *g, struct watch *w, int fd, uint32_t events,
                void (*ready)(struct gate *, struct watch *, uint32_t));
void watch_want(struct gate *g, struct watch *w, uint32_t events);
void watch_stop(struct gate *g, struct watch *w); /* and close */

/* --- bindings.c --- */
struct binding_record { /* in the bindings file, which outlives us; port 0: free */
    char tenant[COVE_TENANT_MAX];
    char project[COVE_PROJECT_MAX];
    char id[24];
    uint16_t port, proxy_port;
    uint32_t serial; /* of this binding and no other, ever */
};

struct binding {
    LIST_ENTRY(binding) link;
    struct watch watch; /* the listening socket */
    struct binding_record rec;
    uint32_t slot;       /* in the file */
    unsigned connecting; /* clients for whom the sandbox's socket is on its way */
};

int bindings_load(struct gate *g, int before, struct cove_err *e);
int bindings_add(struct gate *g, const struct gate_bind *ask, uint16_t *ret_proxy_port,
                 struct cove_err *e);
bool bindings_remove(struct gate *g, const char *tenant, const char *project);
struct binding *bindings_find(struct gate *g, const char *tenant, const char *project);
void bindings_unlisten(struct gate *g); /* no new connections */
void bindings_sweep(
    struct gate *g); /* those whose sandbox has ended, and those that wait for a port */
void binding_pause(struct gate *g, struct binding *b); /* take no more, or take more again */

void binding_follow(struct gate *g, struct binding *b); /* to its project's next sandbox */

/* --- succession.c --- */
int succession_begin(int keeper); /* a connection to the gate before us, which steps back; or -1 */
int succession_listener(int before, const struct binding *b); /* what it listened with, or -1 */
int on_succeed(struct gate *g, int sock, const struct msg *m, struct cove_err *e);
int on_listener(struct gate *g, int sock, const struct msg *m, struct cove_err *e);

/* --- relay.c --- */
struct relay;
LIST_HEAD(relay_list, relay);
void relay_accept(struct gate *g, struct watch *listener, uint32_t events);
void relays_close_of(struct gate *g, struct binding *b);
void relays_expire(struct gate *g); /* those that wait too long, and those of ended sandboxes */
void relays_reap(struct gate *g);   /* free what was closed while its events were at hand */

struct gate {
    struct cove_config config;
    struct state *state;
    int epoll;
    struct watch control, keeper;
    LIST_HEAD(binding_list, binding) bindings;
    struct relay_list relays, closed;
    unsigned binding_count, relay_count;
    uint32_t serial;
    bool orphaned;   /* its keeper is gone */
    bool superseded; /* and the next one has a gate: no new connections, and the file is not ours */
};

#endif
