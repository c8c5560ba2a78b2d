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
    bool collected;   /* of a streamed one: nginx may keep it for a slow client */
    bool failed;      /* of a streamed one: its handler failed after the head had left */
    bool ended;       /* of a streamed one: properly, or it was cut */
    struct wire wire; /* of a streamed one */
};

void reply_init(struct reply *rep, size_t body_max);
void reply_done(struct reply *rep);

/* Forget the body that was written so far, to write another. */
void reply_clear(struct reply *rep);

/* The body's memory is paid from this budget from now on; the body is empty. */
void reply_within(struct reply *rep, struct budget *budget);

/* value must live until the reply is sent: a constant, or in the request's arena. */
void reply_header(struct reply *rep, const char *name, const char *value);

/* The head as FastCGI wants it, with the blank line. */
int reply_head(const struct reply *rep, const struct request *req, struct buf *out);
void reply_send(const struct reply *rep, const struct request *req, struct FCGX_Stream *out);

/* For stream_begin(): the head leaves, the body follows by way of rep->wire. */
void reply_begin(struct reply *rep, const struct request *req);

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
