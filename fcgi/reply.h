/*
 * A reply: status, a few headers, a JSON body. Built whole and sent once with its length, unless its
 * handler makes a stream of it (stream.h).
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
    bool streamed;    /* the head has left: stream.c sends the rest */
    bool collected;   /* nginx may buffer the streamed reply for a slow client */
    bool failed;      /* the handler of the streamed reply failed after the head had left */
    bool ended;       /* the streamed reply is over: it ended properly, or it was cut */
    struct wire wire; /* of a streamed one */
};

void reply_init(struct reply *rep, size_t body_max);
void reply_done(struct reply *rep);

/* Forgets the body that was written so far, so that another can be written. */
void reply_clear(struct reply *rep);

/* The body's memory is paid from this budget from now on; the body is empty. */
void reply_within(struct reply *rep, struct budget *budget);

/* value must live until the reply is sent: a constant, or in the request's arena. */
void reply_header(struct reply *rep, const char *name, const char *value);

/* Writes the head in FastCGI's form, with the blank line at its end. */
int reply_head(const struct reply *rep, const struct request *req, struct buf *out);
void reply_send(const struct reply *rep, const struct request *req, struct FCGX_Stream *out);

/* For stream_begin(): the head leaves, the body follows by way of rep->wire. */
void reply_begin(struct reply *rep, const struct request *req);

/* A row for each error whose status in this dialect is not the usual one (reply.c has those). */
struct error_reply {
    enum cove_code code;
    int status;
};
int reply_error_status(const struct error_reply *rows, size_t count, enum cove_code code);

/* The shape of errors outside any dialect: {"error": "..."}. */
void reply_plain_error(struct request *req, struct reply *rep, const struct cove_err *e);

/* Writes the whole body by a table (cove/json.h). Lists that a table cannot describe are written by rep->json. */
void reply_json(struct reply *rep, const struct json_field *fields, const void *from);

#endif
