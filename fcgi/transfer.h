/* Files of any size between a client and a sandbox: one buffer holds what is on its way. */
#ifndef COVE_FCGI_TRANSFER_H
#define COVE_FCGI_TRANSFER_H

#include "fcgi/core.h"
#include "fcgi/http.h"
#include "fcgi/reply.h"

/* Replies with this many bytes of the file, after the headers that the reply has already. The client sees a broken
 * transfer when the file turns out to be shorter. */
void transfer_send(struct request *req, struct reply *rep, int fd, uint64_t bytes);

/* The same for a stream whose head is made already, which ends with the last byte. A length that was
 * announced is kept exactly, or the connection breaks: half a file must not look whole. One that was not
 * announced is a maximum, and the file's end is the end. */
struct stream;
int transfer_bytes(struct stream *s, int fd, uint64_t left, bool announced);

/* Writes the body of a ROUTE_RAW request into the file; the caller commits the file. */
int transfer_receive(struct request *req, struct core_file *file, struct cove_err *e);

/* What a command in the sandbox writes to its stdout is the reply, after the headers that the reply has
 * already. The client sees a broken transfer when the command fails. */
struct policy_filter;
int transfer_output(struct request *req, struct reply *rep, struct core_session *s,
                    const char *const *argv, const struct policy_filter *filter,
                    struct cove_err *e);

#endif
