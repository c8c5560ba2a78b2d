/*
 * Server-Sent Events: a reply that goes on. An event gathers in the reply's body and leaves with
 * reply_flush(), together with all others that are there at that moment.
 */
#ifndef COVE_FCGI_SSE_H
#define COVE_FCGI_SSE_H

#include "fcgi/reply.h"

enum {
    SSE_IDLE_MS = 15000, /* a comment after this much silence: proxies cut what looks dead */
    SSE_BATCH_BYTES = 48 * 1024, /* no more than this waits for a flush */
};

void sse_begin(struct reply *rep, const struct request *req);
void sse_event(struct reply *rep, const char *id, const char *name, const struct json_field *fields,
               const void *from);
void sse_comment(struct reply *rep); /* says that we are still here */
/* The same, sent; -1: the client is gone. */
int sse_heartbeat(struct reply *rep, const struct request *req);
/* Flush if much has gathered. */
int sse_flush_some(struct reply *rep, const struct request *req);

#endif
