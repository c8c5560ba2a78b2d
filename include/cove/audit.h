/*
 * The audit log: JSON lines in which each line carries a SHA-256 over itself, which includes the
 * hash of the line before. Whoever changes, inserts or removes a line breaks the chain from there
 * on.
 */
#ifndef COVE_AUDIT_H
#define COVE_AUDIT_H

#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/err.h"

struct audit;
struct redactor;

struct audit_entry {   /* NULL fields are left out of the line */
    const char *event; /* "refused", "exec-denied", "ran" */
    const char *dialect, *tenant, *key, *project, *sandbox; /* key: the name of the caller's */
    const char *rule, *form;
    const char *command; /* any bytes; secrets are redacted on the way in */
    size_t command_len;
    uint64_t time_ms; /* 0: now */
};

struct audit_options {
    uint64_t max_bytes; /* a file this large is moved aside; 0: never */
    unsigned keep;      /* how many moved-aside files stay; 0: all of them */
};

/*
 * Any number of processes may have the same file open: a lock orders their lines. A line that a
 * crash left half-written is cut off and noted in the next line. Threads share one struct audit.
 */
int audit_open(const char *path, const struct audit_options *options, struct audit **ret,
               struct cove_err *e);
void audit_close(struct audit *a);

/* On error (disk full) nothing of the line stays in the file and the chain is whole. */
int audit_append(struct audit *a, const struct audit_entry *entry, struct cove_err *e);

struct audit_report {
    uint64_t lines; /* lines whose hash and place in the chain are right */
    unsigned files; /* moved-aside files and the current one */
    char head[65];  /* the last good line's hash: keep it elsewhere to notice a cut-off end */
    char broken_file[256]; /* "" when all is well */
    uint64_t broken_line;
    char what[120];
};

/* 0 with a report, also when the chain is broken; -1 only when the files cannot be read. */
int audit_verify(const char *path, struct audit_report *ret, struct cove_err *e);

/* Redaction alone, for other logs: the command with secrets replaced by [redacted]. */
int redactor_new(struct redactor **ret, struct cove_err *e);
void redactor_free(struct redactor *r);
int redactor_run(const struct redactor *r, const char *text, size_t len, struct buf *out);

/* All lines, of files that were moved aside too, oldest first; fn returns false to stop. */
typedef bool (*audit_line_fn)(void *ctx, const char *line);
int audit_each_line(const char *path, audit_line_fn fn, void *ctx, struct cove_err *e);

#endif
