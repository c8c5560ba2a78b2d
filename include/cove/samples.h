/*
 * Samples: what each sandbox has used over its life, in <run_dir>/samples. The keeper takes one every
 * SAMPLE_EVERY_MS and is the only one who can write the file; workers read it. A sandbox has room for
 * SAMPLES_MAX of them. When that is full every second one is dropped and from then on half as many are
 * kept, so the samples always cover the whole life, a long one more coarsely.
 */
#ifndef COVE_SAMPLES_H
#define COVE_SAMPLES_H

#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"

enum { SAMPLE_EVERY_MS = 5000, SAMPLES_MAX = 240 };

struct sample {
    uint64_t unix_ms;
    uint64_t memory_bytes, cache_bytes, disk_bytes;
    /* Since the sample before: */
    uint32_t cpu_permille;           /* of one cpu */
    uint32_t received_bps, sent_bps; /* bytes a second through the sandbox's network interface */
    uint32_t unused;
};

struct sample_ring {     /* of one slot of the table of sandboxes; a new file is all zero */
    uint32_t generation; /* of the slot: whose samples these are */
    uint32_t count;
    uint32_t every;   /* one of this many looks is kept */
    uint32_t skipped; /* looks since the last one that was kept */
    /* At the last look that was kept: */
    uint64_t last_unix_ms, last_cpu_us, last_received_bytes, last_sent_bytes;
    struct sample samples[SAMPLES_MAX];
};

struct sample_look { /* what the keeper sees */
    uint64_t unix_ms, cpu_us, memory_bytes, cache_bytes, disk_bytes;
    uint64_t received_bytes, sent_bytes; /* since the sandbox was made; 0 without a network */
};

/* For the keeper: opens the file, or makes it. A file of another size was left by another version and cannot be
 * read: it is made anew. */
int samples_open(const char *path, gid_t worker_gid, uint32_t slots, int *ret_fd,
                 struct cove_err *e);
int samples_add(int fd, uint32_t slot, uint32_t generation, const struct sample_look *look);

/* Reads the samples of that very sandbox. It is no failure if there are none. */
int samples_read(const char *path, uint32_t slot, uint32_t generation, struct sample_ring *ret,
                 struct cove_err *e);

#endif
