/*
 * Connections to sandboxes' inits that a worker keeps between two requests, so that the next command in the same
 * sandbox need not connect. Only a connection on which init owes no message is kept (box_is_settled()), a few
 * seconds at most. A kept connection carries no rights: whoever takes it was admitted to its sandbox by the same checks as
 * whoever connects.
 */
#ifndef COVE_FCGI_KEPT_H
#define COVE_FCGI_KEPT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/client.h"

struct core_box;

enum {
    KEPT_MAX = 64,       /* of a worker */
    KEPT_OF_ONE_BOX = 8, /* so that an init, which has room for 1,024, is never filled by them */
    KEPT_MS = 2000,
};

struct kept_conn {
    uint32_t index,
        generation; /* the sandbox's slot in shared memory: another sandbox never has both */
    char id[24];
    int sock;
    uint32_t tag;
    uint64_t since_ms;
};

struct kept_conns { /* all zero, with an initialized lock: none */
    pthread_mutex_t lock;
    size_t count;
    bool closed;                      /* nothing is kept any more */
    struct kept_conn conns[KEPT_MAX]; /* the one that was put last stands last */
};

/* k may be NULL: nothing is kept. false: there is none for this sandbox, or it was closed by its init, or init has said
 * something on it that nobody asked for. */
bool kept_take(struct kept_conns *k, const struct core_box *box, struct box_conn *ret);
/* Takes the socket if it may be kept, and closes the oldest if there are too many; else the caller closes the connection. */
void kept_put(struct kept_conns *k, const struct core_box *box, struct box_conn *c);
/* Closes what has been there for KEPT_MS. Called every second. */
void kept_expire(struct kept_conns *k, uint64_t now_ms);
/* Closes them all. Later ones are not kept: the worker drains, and nobody would take them. */
void kept_close(struct kept_conns *k);
void kept_done(struct kept_conns *k);

#endif
