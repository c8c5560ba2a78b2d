/* The audit log between its files, and the shape of a line, which audit_line.c writes and audit_verify.c reads. */
#ifndef POLICY_AUDIT_PRIVATE_H
#define POLICY_AUDIT_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/audit.h"

/*
 * {"seq":7,"time":"...","event":"refused",...,"prev":"<64 hex>","hash":"<64 hex>"}
 *
 * The hash is the SHA-256 of everything before `,"hash":"`. It comes last, at a fixed distance from
 * the end of the line, so that it can be found without parsing JSON; so can prev. The first line of
 * all has 64 zeros as prev; the first line of a file after rotation has the hash of the last one
 * before.
 */
#define AUDIT_HASH_LEN  64
#define AUDIT_HASH_KEY  ",\"hash\":\""
#define AUDIT_PREV_KEY  ",\"prev\":\""
#define AUDIT_TAIL_LEN  (sizeof(AUDIT_HASH_KEY) - 1 + AUDIT_HASH_LEN + 2) /* with "} */
#define AUDIT_PREV_LEN  (sizeof(AUDIT_PREV_KEY) - 1 + AUDIT_HASH_LEN + 1) /* with " */
#define AUDIT_LINE_MAX  (256 * 1024) /* lines of older versions could be this long */
#define AUDIT_FIELD_MAX 512          /* what a name may take up in a line */
#define AUDIT_ZERO      "0000000000000000000000000000000000000000000000000000000000000000"

struct audit_link { /* a line's place in the chain */
    uint64_t seq;
    char prev[AUDIT_HASH_LEN + 1];
    char hash[AUDIT_HASH_LEN + 1];
};

/* SHA-256 in hex. */
int audit_hash(const char *text, size_t len, char out[AUDIT_HASH_LEN + 1]);

/* line without its newline; false if it does not have the shape or its hash is not its own. */
bool audit_parse_line(const char *line, size_t len, struct audit_link *ret);

/* "PATH.000042": files that were moved aside, in order. */
int audit_rotated_name(const char *path, unsigned number, char *out, size_t size);
/* Lists the numbers of such files in ascending order; *ret is malloc()ed. */
int audit_list_rotated(const char *path, unsigned **ret, size_t *ret_count, struct cove_err *e);

/* The longest beginning of a text that takes at most `max` bytes in a JSON string, whole characters
 * only. */
size_t audit_fitting(const char *text, size_t len, size_t max);

/* --- how much each source writes (audit_rate.c) ------------------------------------------------ */

struct audit_source {
    char tenant[AUDIT_FIELD_MAX], project[AUDIT_FIELD_MAX], sandbox[64];
    uint64_t last_ms; /* when it last asked; 0: the row is free */
    /* time that this source has saved up; a line costs 60000 / per_minute milliseconds of it */
    uint64_t credit_ms;
    uint64_t more;         /* lines that were counted only */
    uint64_t more_time_ms; /* time of the first of those lines, to be shown */
};

enum { AUDIT_SOURCES = 128 };

struct audit_limit { /* a rate, and the sources that it limits */
    struct audit_rate rate;
    struct audit_source *rows; /* AUDIT_SOURCES of them; NULL: no limit */
    bool by_tenant;            /* a row is a tenant's, whatever the project and the sandbox */
};

/* The entry's own row; if there is none, the row of the source that has been quiet longest, which is
 * still that source's: a caller that finds another name in it tells its `more` and begins anew. */
struct audit_source *audit_source_find(const struct audit_limit *l,
                                       const struct audit_entry *entry);
bool audit_source_is(const struct audit_limit *l, const struct audit_source *s,
                     const struct audit_entry *entry);
void audit_source_begin(const struct audit_limit *l, struct audit_source *s,
                        const struct audit_entry *entry, uint64_t now_ms);
/* True when this source may write a line now. */
bool audit_source_take(const struct audit_limit *l, struct audit_source *s, uint64_t now_ms);

/* --- an open log ------------------------------------------------------------------------------- */

enum { AUDIT_LIMIT_SOURCE, AUDIT_LIMIT_TENANT, AUDIT_LIMIT_RAN, AUDIT_LIMITS };

struct audit {
    char *path;
    struct audit_options options;
    struct redactor *redactor;
    pthread_mutex_t lock;
    int fd;
    uint64_t size;          /* of the file when we last saw it: is `last` still the last line? */
    struct audit_link last; /* of the last line */
    /* bytes that were cut off after a crash and are not yet noted in a line */
    uint64_t torn_bytes;
    char continues[300];    /* the file before this one, for its first line; "" if it has one */
    uint64_t removed_files; /* removed files that are not yet noted in a line */
    struct audit_counts counts;
    struct audit_limit limits[AUDIT_LIMITS];
};

/* Writes the text of the next line, with its line feed. count: of the lines that a "more" line stands for, or 0. 0,
 * or -1 when the line does not fit. */
int audit_line_make(struct audit *a, const struct audit_entry *entry, uint64_t count,
                    struct buf *line, char ret_hash[AUDIT_HASH_LEN + 1]);

/* Opens the file anew when it was moved aside between the open and the lock: then the lock is worth nothing. */
int audit_file_lock(struct audit *a, struct cove_err *e);
/* This function and the next are called under the lock. It brings `size` and `last` up to date with the file. */
int audit_file_catch_up(struct audit *a, struct cove_err *e);
/* All or nothing: what was written of a line that did not fit is taken back. */
int audit_file_write(struct audit *a, const struct buf *line, struct cove_err *e);
int audit_file_rotate(struct audit *a, struct cove_err *e);

#endif
