/*
 * Replays: the latest bytes of streams that a client may pick up again after its connection broke, in
 * shared memory (a part of the meters' file). The worker that serves a stream writes its frames here too;
 * the client's next request may reach any worker, which sends on from the place that the client names.
 *
 * A stream has a ring of bytes. Its writer prolongs its life while the stream goes on; after its end the
 * ring is kept for a while, and when the writer dies the ring is free again soon. One tenant has a bounded
 * number of rings: the oldest one whose stream has ended makes room. A worker that was taken over can read
 * and write all rings, but it could talk to every sandbox anyway.
 */
#ifndef COVE_REPLAY_H
#define COVE_REPLAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    REPLAYS_MAX = 64,
    REPLAYS_PER_TENANT = 8,
    REPLAY_BYTES = 256 * 1024,
    REPLAY_NAME_MAX = 256,       /* with its NUL */
    REPLAY_ALIVE_MS = 75 * 1000, /* a writer that says nothing for so long is dead */
    REPLAY_KEPT_MS = 120 * 1000, /* how long the end of a stream can be fetched */
};

struct replay {
    /* Twice the CLOCK_BOOTTIME in ms until which the ring is its stream's, plus 1 once nothing follows. One word,
     * so that whoever takes a ring changes both at once. */
    _Atomic uint64_t life;
    _Atomic uint64_t turn;    /* grows whenever the ring gets another stream */
    _Atomic uint64_t tenant;  /* hash */
    _Atomic uint64_t begun;   /* bytes of the stream up to the end of the write that is going on */
    _Atomic uint64_t written; /* bytes of the stream that are whole */
    _Atomic uint64_t seen_ms; /* when a reader last looked; 0: never */
    char name[REPLAY_NAME_MAX];
};

struct replays {
    struct replay items[REPLAYS_MAX];
    _Alignas(4096) char bytes[REPLAYS_MAX][REPLAY_BYTES];
};

struct replay_ref { /* a stream in its ring; `all` NULL: there is none */
    struct replays *all;
    size_t index;
    uint64_t turn;
};

/* A ring for a new stream. False: all of them, or all of this tenant's, belong to streams that go on. */
bool replay_begin(struct replays *all, const char *tenant, const char *name,
                  struct replay_ref *ret);
/* Appends whole frames. False: they are more than a ring holds, or the ring is not this stream's any more. */
bool replay_write(const struct replay_ref *r, const char *bytes, size_t len);
void replay_prolong(const struct replay_ref *r);
void replay_end(const struct replay_ref *r);
uint64_t replay_written(const struct replay_ref *r);
uint64_t replay_seen_ms(const struct replay_ref *r);

bool replay_find(struct replays *all, const char *tenant, const char *name, struct replay_ref *ret);
/*
 * Copies up to `max` bytes that follow *at, and moves *at behind them. When the ring no longer has the
 * byte at *at, *at moves to the oldest byte that it has, and *ret_skipped is true. -1: the stream is no
 * longer there. 0: nothing more yet; *ret_ended tells whether anything can follow.
 */
long replay_read(const struct replay_ref *r, uint64_t *at, char *bytes, size_t max,
                 bool *ret_skipped, bool *ret_ended);

#endif
