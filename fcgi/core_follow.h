/*
 * Following a process of a sandbox: its output as bytes, as it comes, and then its end. The process
 * lives in the sandbox's init, so it goes on when whoever follows it leaves.
 */
#ifndef COVE_FCGI_CORE_FOLLOW_H
#define COVE_FCGI_CORE_FOLLOW_H

#include "fcgi/core.h"

struct core_follow {
    uint32_t proc;
    bool only_new;         /* output that was written before is left out */
    bool whole;            /* nothing may be missing: the process waits for the follower */
    size_t chunk_bytes;    /* at most this much at a time */
    struct stream *stream; /* what output() writes into; after each call it is sent */
    void (*output)(void *arg, enum run_stream stream, const char *bytes, size_t len);
    void *arg;
};

enum core_follow_end {
    FOLLOW_ENDED,  /* the process has ended, and all of its output was told */
    FOLLOW_LEFT,   /* nobody follows any more; the process goes on */
    FOLLOW_SERVER, /* this worker ends soon; the process goes on */
};

/* Follows until one of the three ends. *ret_end is set with FOLLOW_ENDED. -1: COVE_GONE when the sandbox has ended. */
int core_follow(struct core_session *s, const struct core_follow *args,
                enum core_follow_end *ret_how, struct cove_end *ret_end, struct cove_err *e);

#endif
