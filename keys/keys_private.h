/* What the parsers of keys and tenants share. */
#ifndef COVE_KEYS_PRIVATE_H
#define COVE_KEYS_PRIVATE_H

#include "cove/keys.h"

/* Sets requests, sandboxes, processes or disk. Returns the bit of that member, 0 if `name` is
 * none of them, -1 if the value is wrong. */
int quota_set(struct quota *q, const char *name, const char *value, struct cove_err *e);
void quota_format(const struct quota *q, struct buf *out);

/* Calls `line` for each line that is not blank or a comment; failures get "line N:" in front. */
typedef int (*line_fn)(void *arg, char *line, struct cove_err *e);
int lines_parse(const char *text, line_fn line, void *arg, struct cove_err *e);

/* Reads the whole file; a missing file counts as empty. *ret is malloc()ed. */
int lines_read(const char *path, char **ret, struct cove_err *e);
/* Waits for the lock of those who edit this file. Returns a descriptor, or -1; closing it
 * unlocks. */
int lines_lock(const char *path, struct cove_err *e);
/* Replaces the file by these bytes, with one rename. */
int lines_replace(const char *path, const struct buf *b, struct cove_err *e);

/* The next word of a line, or NULL; *at moves on. */
char *next_word(char **at);

#endif
