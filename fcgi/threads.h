/* The serving threads of a worker: accept, serve, and leave when told to. */
#ifndef COVE_FCGI_THREADS_H
#define COVE_FCGI_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cove/config.h"
#include "cove/keys.h"
#include "cove/state.h"
#include "fcgi/kept.h"
#include "fcgi/router.h"
#include "fcgi/serve.h"
#include "fcgi/shares.h"
#include "process/live.h"

struct worker {
    struct cove_config config;
    uint32_t index;
    struct state *state;
    struct meters *meters;
    unsigned char token_secret[TOKEN_SECRET_BYTES];
    struct live policy;
    struct callers callers;
    struct router router;
    struct shares tenant_shares, box_shares;
    struct kept_conns kept;
    struct budget bytes; /* what all requests may keep in memory together */
    int listen_fd;
    struct {                  /* who may wait in accept() */
        pthread_mutex_t lock; /* also held while a thread is started */
        pthread_cond_t next;  /* signalled when the last thread has left accept() */
        uint32_t there;
        uint32_t waiting; /* threads that wait for their turn at the door */
    } door;
    atomic_bool draining;
    atomic_bool leaving; /* true: streams that another worker can continue are to end */
    atomic_uint running; /* threads that have not left yet */
    pthread_t *threads;
    atomic_bool *slotless;      /* by thread: it waits in accept() although no slot is its own */
    atomic_size_t thread_count; /* threads that were started */
    pthread_attr_t thread_kind;
    /* the thread that calls the slotless ones back when a worker has room again */
    pthread_t recaller;
};

/* Starts the threads. SIGUSR1 makes a thread leave accept(). */
int threads_start(struct worker *w, struct cove_err *e);
/* Stops accepting, and returns when all requests under way have been answered. */
void threads_drain(struct worker *w);

#endif
