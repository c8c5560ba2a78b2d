/*
 * Fair shares: how many of a worker's requests under way may be one tenant's, and how many may be in
 * one sandbox, so that nobody holds all threads. Counted by each worker for itself: connections are
 * dealt out among workers, and no worker can be filled by one of them.
 */
#ifndef COVE_FCGI_SHARES_H
#define COVE_FCGI_SHARES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "cove/err.h"
#include "cove/msg.h"

struct share {
    char who[COVE_TENANT_MAX]; /* a tenant, or a sandbox's id */
    unsigned held;             /* 0: the row is free */
};

struct shares {
    pthread_mutex_t lock;
    unsigned most; /* that one of them may hold; 0 = no limit, nothing is counted */
    struct share *rows;
    size_t count; /* as many as there are threads: a thread holds one share at a time */
};

/* percent of `total`, rounded up; 0 = no limit. */
int shares_init(struct shares *s, size_t threads, unsigned total, unsigned percent,
                struct cove_err *e);
void shares_done(struct shares *s);

/* s may be NULL: no limit. false: `who` holds its share already. */
bool shares_take(struct shares *s, const char *who);
void shares_release(struct shares *s, const char *who);

#endif
