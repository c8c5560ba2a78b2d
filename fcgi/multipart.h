/*
 * multipart/form-data as it comes: bytes are fed in pieces of any size, parts are passed to three
 * callbacks. Only the head of one part, and as many bytes as a boundary has, are kept in memory.
 */
#ifndef COVE_FCGI_MULTIPART_H
#define COVE_FCGI_MULTIPART_H

#include "cove/buf.h"
#include "cove/err.h"

enum { MULTIPART_BOUNDARY_MAX = 200, MULTIPART_HEAD_MAX = 16 * 1024, MULTIPART_PARTS_MAX = 1000 };

struct multipart_part {
    const char *name;     /* of the form's field; "" = none */
    const char *filename; /* with directories, as it was sent; NULL = none */
};

struct multipart {
    char boundary[MULTIPART_BOUNDARY_MAX + 8]; /* "\r\n--" and what the head said */
    size_t boundary_len;
    struct buf held; /* what may be the beginning of a boundary, or a head that is not whole */
    int state;
    unsigned parts;
    /* Each returns 0, or -1 with *e set, which ends the parsing. */
    int (*begin)(void *arg, const struct multipart_part *part, struct cove_err *e);
    int (*data)(void *arg, const char *bytes, size_t len, struct cove_err *e);
    int (*end)(void *arg, struct cove_err *e);
    void *arg;
};

/* `type` is the whole Content-Type. COVE_INVALID: it is none of multipart/form-data, or has no
 * boundary. */
int multipart_init(struct multipart *m, const char *type, struct cove_err *e);
void multipart_done(struct multipart *m);
int multipart_feed(struct multipart *m, const char *bytes, size_t len, struct cove_err *e);
/* Called when all bytes were fed. COVE_INVALID: the last boundary has not come. */
int multipart_finish(const struct multipart *m, struct cove_err *e);

#endif
