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
#include "cove/json.h"
#include "fcgi/http.h"
#include "fcgi/wire.h"

enum { REPLY_HEADERS_MAX = 12 };

struct reply {
    int status;
    struct buf body;          /* JSON, or empty; of a streamed reply, what has not left yet */
    struct json_writer json;  /* writes into the body */
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

/* The shape of errors outside any dialect: {"error": "..."}. */
void reply_plain_error(struct request *req, struct reply *rep, const struct cove_err *e);

/* The whole body by a table (cove/json.h). What a table cannot say is written by rep->json. */
void reply_json(struct reply *rep, const struct json_field *fields, const void *from);

#endif
