/*
 * Live files: files in the run directory that the keeper may replace at any time (the policy, the keys). A
 * reader takes the current version and gives it back; a change loads a new version beside it, and the old one
 * is freed with its last reader. Nobody waits for a load, and nobody sees half of one.
 */
#ifndef COVE_PROCESS_LIVE_H
#define COVE_PROCESS_LIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cove/err.h"

struct state;

struct live_kind {
    const char *what; /* for the log */
    int (*load)(const char *path, void **ret, struct cove_err *e);
    void (*free)(void *value);
    uint32_t (*generation)(const struct state *state); /* another number: load again */
};

struct live_ref {
    void *value;
    const struct live_kind *kind;
    atomic_uint users;
};

struct live {
    const struct live_kind *kind;
    const struct state *state;
    char path[256];
    pthread_mutex_t lock;    /* guards `current`, held for a moment only */
    pthread_mutex_t loading; /* held by the thread that loads */
    struct live_ref *current;
    atomic_bool fresh; /* `current` was loaded at generation_seen */
    atomic_uint generation_seen;
    uint64_t retry_at_ms; /* after a failure; under loading */
};

/* Tries to load at once; a failure is logged, and tried again a second later when somebody asks. */
void live_init(struct live *l, const struct live_kind *kind, const struct state *state,
               const char *run_dir, const char *name);
void live_done(struct live *l);

/* NULL as long as no load has succeeded. */
struct live_ref *live_get(struct live *l);
void live_put(struct live_ref *ref);

/* The load() of most kinds: reads a file of at most `max` bytes and has `parse` fill a struct of `size`
 * bytes, which is malloc()ed and zeroed. */
typedef int (*live_parse_fn)(const char *text, void *ret, struct cove_err *e);
int live_load_text(const char *path, size_t max, size_t size, live_parse_fn parse, void **ret,
                   struct cove_err *e);

#endif
