/*
 * Saved sandboxes in an S3-compatible bucket. The objects of one saved sandbox:
 *
 *   PREFIX/ID/SAVED_UNIX_MS/archive.tar.zst  (.age behind it when it is encrypted)
 *                           record attributes network layers seal   as in its directory, cove/saved.h
 *                           manifest.json   written last: without it the other objects are rubbish
 *                           taken           names the machine that may wake it: the first one to write this object
 *
 * Everything that talks to the bucket is done by cove-bucket, a process for each order
 * (sandbox/box/bucket_start.c). The keeper and `cove store` give orders and hear numbers.
 */
#ifndef COVE_BUCKET_H
#define COVE_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/saved.h"
#include "cove/text.h"

#define BUCKET_TAKEN "taken"

enum {
    BUCKET_NOTES = 6, /* small objects beside the archive, bucket_notes[] */
    BUCKET_NOTE_MAX = 256 * 1024,
    BUCKET_OWNER_TEXT = 33, /* a machine's own name in `taken`, with its NUL */
    BUCKET_SOCK_FD = 3,
};

extern const char *const bucket_notes[BUCKET_NOTES]; /* the manifest is the last one */

/* keeper, or `cove store`, to cove-bucket */
enum bucket_msg {
    /* struct bucket_order + credentials (+ notes) -> BUCKET_REPORT or MSG_ERROR */
    BUCKET_ORDER = 850,
    BUCKET_REPORT, /* struct bucket_report */
};

enum bucket_work {
    /* in: the archive; the notes come with the order. Both are read again from the bucket and compared.
     * Afterwards the sandbox belongs to this machine. */
    BUCKET_PUT = 1,
    BUCKET_RELEASE, /* gives the sandbox back, if this machine had taken it */
    BUCKET_TAKE,    /* out: the archive, after `taken` was written */
    BUCKET_GET,     /* out: the archive, whoever has taken it */
    BUCKET_READ,    /* out: the object `name`, a small one */
    BUCKET_REMOVE,  /* removes all objects, unless the sandbox is another machine's */
    BUCKET_LIST,    /* out: a line for each: ID MS BYTES CHANGED_UNIX_MS whole|part owner|- */
    BUCKET_COLLECT, /* out: the same lines, of those without a manifest that were removed */
};

struct bucket_place { /* from the configuration */
    char endpoint[256], region[64], bucket[64], prefix[128];
    uint32_t path_style;
    uint32_t stall_ms;   /* a request on which no byte moves for so long has failed */
    uint32_t has_ca;     /* a file with the accepted CA certificates is beside the order */
    uint64_t part_bytes; /* larger objects go in parts of this size */
};

/* Descriptors come with the order: the credentials, the CA certificates (place.has_ca) and, for BUCKET_PUT, up to
 * BUCKET_NOTES files. */
struct bucket_order {
    uint32_t work;  /* enum bucket_work */
    uint32_t notes; /* bit N: bucket_notes[N] is among the files */
    uint32_t force; /* RELEASE: also if another machine has taken it */
    uint64_t saved_unix_ms;
    uint64_t bytes;                 /* of the archive */
    char digest[SAVED_DIGEST_TEXT]; /* likewise */
    char id[COVE_ID_LEN + 1];
    char name[32];                 /* of the archive; READ: of the object */
    char owner[BUCKET_OWNER_TEXT]; /* this machine */
    struct bucket_place place;
};

struct bucket_report {
    uint64_t bytes;
    uint64_t requests; /* HTTP requests made, repeated ones included */
};

#endif
