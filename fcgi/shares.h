/*
 * Fair shares: how many of a worker's requests under way may be one tenant's, and how many may be in
 * one sandbox, so that no tenant holds all threads. Each worker counts for itself: connections are
 * dealt out among workers, and no tenant can fill one of them.
 */
#ifndef COVE_FCGI_SHARES_H
#define COVE_FCGI_SHARES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "cove/buf.h"
#include "cove/err.h"
#include "cove/names.h"

struct share {
    char who[COVE_TENANT_MAX]; /* a tenant, or a sandbox's id */
    unsigned users;            /* 0: the row is free */
    unsigned held;             /* how many of those count against the limit */
    struct budget bytes;       /* what its requests may keep in memory together */
};

struct shares {
    pthread_mutex_t lock;
    unsigned most;       /* requests that one tenant or sandbox may hold; 0 = no limit */
    unsigned most_among; /* the same, while another tenant or sandbox holds some too */
    unsigned holders;    /* how many tenants or sandboxes hold some now */
    struct share *rows;
    struct budget *all; /* of the worker, above the shares' own; NULL = no limit */
    size_t bytes_max;   /* of one share; 0 = no limit of its own */
    size_t count;       /* as many as there are threads: a thread holds one share at a time */
};

/* One tenant or sandbox may hold `percent` of `total`, rounded up; 0 = no limit. */
int shares_init(struct shares *s, size_t threads, unsigned total, unsigned percent,
                struct cove_err *e);
void shares_done(struct shares *s);
/* While another tenant or sandbox holds some too, none takes more than half. What is held already stays. */
void shares_halve_among(struct shares *s, unsigned total);

/*
 * s may be NULL: no limit. false: it counts, and `who` holds its share already. *ret_bytes, if wanted, is the budget of
 * all that `who` has under way, until the share is released; NULL when nothing is counted.
 */
bool shares_take(struct shares *s, const char *who, bool counts, struct budget **ret_bytes);
void shares_release(struct shares *s, const char *who, bool counts); /* as it was taken */

#endif
