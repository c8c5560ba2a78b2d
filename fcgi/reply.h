/*
 * A reply: status, a few headers, a JSON body. Built whole and sent once with its length, unless
 * its handler begins it early: then the head leaves at once and the body whenever reply_flush() is
 * called.
 */
#ifndef COVE_FCGI_REPLY_H
#define COVE_FCGI_REPLY_H

#include <stdbool.h>

#include "cove/buf.h"
#include "cove/err.h"
#include "fcgi/http.h"
#include "fcgi/wire.h"

enum { REPLY_HEADERS_MAX = 12 };

struct reply {
    int status;
    struct buf body;          /* JSON, or empty; of a streamed reply, what has not left yet */
    const char *content_type; /* NULL = JSON */
    struct pair headers[REPLY_HEADERS_MAX];
    size_t header_count;
    bool streamed; /* the head has left */
    struct wire wire;
};

void reply_init(struct reply *rep, size_t body_max);
void reply_done(struct reply *rep);

/* value must live until the reply is sent: a constant, or in the request's arena. */
void reply_header(struct reply *rep, const char *name, const char *value);

/* The head as FastCGI wants it, with the blank line. */
int reply_head(const struct reply *rep, const struct request *req, struct buf *out);
void reply_send(const struct reply *rep, const struct request *req, struct FCGX_Stream *out);

/* Streams. Content-Type and, if it is known, Content-Length are headers the handler sets before. */
void reply_begin(struct reply *rep, const struct request *req);
/* Send what is in the body and forget it; -1: the client is gone. */
int reply_flush(struct reply *rep, const struct request *req);
/* Likewise, but only what leaves at once: the rest stays in the body. */
int reply_push(struct reply *rep, const struct request *req);
/* Give the client up, with all that has not left. */
void reply_cut(struct reply *rep, const struct request *req);

/* Where a dialect's status for an error is not the usual one (reply.c has those). */
struct error_reply {
    enum cove_code code;
    int status;
};
int reply_error_status(const struct error_reply *rows, size_t count, enum cove_code code);

struct policy_result;
/* What the policy refused, in the words that clients know; code_name is what the dialect calls an
 * exit code. */
void reply_forbidden(struct request *req, struct reply *rep, const char *code_name,
                     const char *command, const struct policy_result *verdict);

/* The shape of errors outside any dialect: {"error": "..."}. */
void reply_plain_error(struct request *req, struct reply *rep, const struct cove_err *e);

/* JSON members, for bodies written by hand: ,"name":"text" (the comma unless it is the first of the
 * object). */
void reply_str(struct reply *rep, const char *name, const char *text, size_t len);
void reply_num(struct reply *rep, const char *name, long long number);
void reply_bool(struct reply *rep, const char *name, int value);
void reply_open(struct reply *rep, const char *name); /* name NULL: the body's own object */
void reply_close(struct reply *rep);

#endif
