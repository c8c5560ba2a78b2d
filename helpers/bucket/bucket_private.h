/* What the files of cove-bucket share. */
#ifndef COVE_BUCKET_PRIVATE_H
#define COVE_BUCKET_PRIVATE_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "cove/bucket.h"
#include "cove/buf.h"
#include "cove/err.h"

enum { ANSWER_MAX = 4 << 20, KEY_MAX = 400 };

struct s3 { /* a bucket, and the credentials for it */
    const struct bucket_place *place;
    char key_id[160], secret[256], token[2048];
    struct buf ca; /* CA certificates for the bucket, as PEM; empty: the system's */
    CURL *curl;
    uint64_t requests;
    uint64_t now_unix_ms; /* the bucket's clock, from its latest answer; 0: not known */
};

/* ------------------------------------------------------------------ s3.c: one request */

typedef int (*s3_take)(void *arg, const char *bytes, size_t len, struct cove_err *e);

struct s3_request {
    const char *method; /* GET, PUT, POST or DELETE */
    const char *key;    /* of the object; "": the bucket itself */
    const char *query;  /* its names sorted, its values encoded; NULL: none */
    const char *header; /* one more header; NULL: none */
    /* the body: a text, or `size` bytes of a file */
    const char *text;
    int file;
    uint64_t at, size;
    /* the answer: into `answer`, or piece by piece to take() */
    struct buf *answer;
    s3_take take;
    void *arg;
    uint64_t got; /* bytes that take() was given; a further try asks for the bytes after them */
    long status;
    char etag[160];
};

/* ca: -1 = the system's certificates. */
int s3_open(struct s3 *s, const struct bucket_place *place, int credentials, int ca,
            struct cove_err *e);
void s3_done(struct s3 *s);
void s3_encode(const char *text, char *out, size_t size); /* for a query */
/* 0: the answer was 2xx. After a failure that may pass (no connection, 429, 5xx) the request is tried again,
 * with longer and longer pauses. r->status is that of the last answer. */
int s3_perform(struct s3 *s, struct s3_request *r, struct cove_err *e);

/* ------------------------------------------------------------------ credentials.c */

/* Reads aws_access_key_id, aws_secret_access_key and, if it is there, aws_session_token. */
int credentials_read(struct s3 *s, int file, struct cove_err *e);
int credentials_read_ca(struct s3 *s, int file, struct cove_err *e);

/* ------------------------------------------------------------------ objects.c: one object */

void object_key(const struct s3 *s, const struct bucket_order *o, const char *name,
                char ret[KEY_MAX]);
int object_put(struct s3 *s, const char *key, int file, uint64_t size, struct cove_err *e);
int object_put_text(struct s3 *s, const char *key, const char *text, const char *header,
                    struct cove_err *e);
/* Reads a small object; *ret_there false: there is none. */
int object_read(struct s3 *s, const char *key, struct buf *ret, bool *ret_there,
                struct cove_err *e);
/* Writes an object's bytes to `out` (-1: nowhere); fails if size or digest differ. The last byte is not written but
 * returned where ret_last is not NULL: without it nobody can take what was written for the whole. */
int object_get(struct s3 *s, const char *key, int out, uint64_t size, const char *digest,
               char *ret_last, struct cove_err *e);
int object_remove(struct s3 *s, const char *key, struct cove_err *e);
/* Ends the uploads in parts that were begun before that time and never ended, of keys with this prefix. */
void object_abort_uploads(struct s3 *s, const char *prefix, uint64_t before_unix_ms);

/* ------------------------------------------------------------------ owner.c: whose sandbox it is */

/* Reads which machine the object `taken` names; "": there is no such object. */
int owner_read(struct s3 *s, const struct bucket_order *o, char ret[BUCKET_OWNER_TEXT],
               struct cove_err *e);
/* Names the machine that gave the order, whatever `taken` says now. */
int owner_write(struct s3 *s, const struct bucket_order *o, struct cove_err *e);
/* Takes the sandbox for the machine that gave the order: of several that try, one succeeds, the others get
 * COVE_CONFLICT. *ret_settled_ms: when owner_check() can tell which one; 0: it is decided already. */
int owner_take(struct s3 *s, const struct bucket_order *o, uint64_t *ret_settled_ms,
               struct cove_err *e);
int owner_check(struct s3 *s, const struct bucket_order *o, struct cove_err *e);
/* Removes `taken`, if it names the machine that gave the order or the order says `force`. */
int owner_release(struct s3 *s, const struct bucket_order *o, struct cove_err *e);
int owner_fail(struct cove_err *e); /* the sandbox is another machine's */

/* ------------------------------------------------------------------ listing.c */

struct bucket_entry { /* one saved sandbox in the bucket */
    char id[COVE_ID_LEN + 1];
    uint64_t saved_unix_ms, bytes, changed_unix_ms;
    bool whole, taken;
};
typedef int (*listed_fn)(struct s3 *s, const struct bucket_entry *l, void *arg, struct cove_err *e);
int listing_each(struct s3 *s, const char *id, listed_fn fn, void *arg, struct cove_err *e);
/* The text between <tag> and </tag>, from *at on, which moves behind it; NULL: there is none. */
const char *xml_next(const char **at, const char *tag, char *out, size_t size);

#endif
