/*
 * The audit log: JSON lines in which each line carries a SHA-256 over itself, which includes the
 * hash of the line before. Whoever changes, inserts or removes a line breaks the chain from there
 * on.
 */
#ifndef COVE_AUDIT_H
#define COVE_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/err.h"

struct audit;
struct redactor;

struct audit_entry {   /* NULL fields are left out of the line */
    const char *event; /* "refused", "exec-denied", "ran" */
    const char *dialect, *tenant, *key, *project, *sandbox; /* key: the public name of the key */
    const char *rule, *form;
    const char *command; /* any bytes */
    size_t command_len;
    size_t command_bytes; /* of the whole command; 0: `command` is the whole */
    uint64_t time_ms;     /* 0: now */
    bool always;          /* exempt from the rates below */
    bool ran;             /* a command that was allowed: such lines have a rate of their own */
};

/*
 * What a log may cost. One line is at most about 8 KiB long: its command takes no more room than
 * AUDIT_COMMAND_MAX bytes, whatever its characters become in JSON. Each rate allows `burst` lines at
 * once and `per_minute` lines in the long run; further ones are counted, and told in one line with
 * "event":"more" and their number. Old files are removed above `keep` files or `total_bytes`; the
 * next line says how many.
 */
struct audit_rate {
    unsigned burst, per_minute; /* per_minute 0: no limit */
};

struct audit_options {
    uint64_t max_bytes;   /* a file this large is moved aside; 0: never */
    uint64_t total_bytes; /* of all files together; the newest two stay in any case; 0: no limit */
    unsigned keep;        /* how many moved-aside files stay; 0: all of them */
    struct audit_rate source; /* refusals of a sandbox, or of a project where no sandbox is known */
    struct audit_rate tenant; /* refusals of one tenant, who can invent names of projects */
    struct audit_rate ran;    /* commands of one tenant that ran */
    bool already_redacted;    /* callers have passed commands through redactor_command() */
    uint64_t (*clock_ms)(void); /* for tests; NULL: the machine's */
};

enum { AUDIT_COMMAND_MAX = 4096 };

/*
 * Any number of processes may have the same file open: a lock orders their lines. A line that a
 * crash left half-written is cut off and noted in the next line. Threads share one struct audit.
 */
int audit_open(const char *path, const struct audit_options *options, struct audit **ret,
               struct cove_err *e);
void audit_close(struct audit *a);

/* On error (disk full) nothing of the line stays in the file and the chain stays whole. */
int audit_append(struct audit *a, const struct audit_entry *entry, struct cove_err *e);

/* Writes the "more" lines of sources that are quiet again. To be called now and then: every second
 * or so is enough. audit_close() writes all that is left. */
int audit_flush(struct audit *a, struct cove_err *e);

/* Since audit_open(). An operator is warned when one of the last three grows. */
struct audit_counts {
    uint64_t lines;
    uint64_t suppressed; /* lines that were only counted, because their source wrote too many */
    uint64_t removed_files, removed_bytes; /* because of keep or total_bytes */
};
void audit_get_counts(struct audit *a, struct audit_counts *ret);

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

/*
 * Redaction alone: secrets in a command are replaced by [redacted]. It runs about 30 patterns over
 * text that a sandbox may have chosen, so it belongs into a process without privileges.
 */
int redactor_new(struct redactor **ret, struct cove_err *e);
void redactor_free(struct redactor *r);
int redactor_run(const struct redactor *r, const char *text, size_t len, struct buf *out);
/* The beginning of a command as it goes into an audit line: redacted, and cut so that it costs no
 * more than AUDIT_COMMAND_MAX bytes there. *ret is malloc()ed, and never NULL on success. */
int redactor_command(const struct redactor *r, const char *text, size_t len, char **ret,
                     struct cove_err *e);

/* Walks all lines, also those of files that were moved aside, oldest first; fn returns false to stop. */
typedef bool (*audit_line_fn)(void *ctx, const char *line);
int audit_each_line(const char *path, audit_line_fn fn, void *ctx, struct cove_err *e);

#endif
