/*
 * From chunks to lines: a process's output comes in pieces of any size, and streams send it line
 * by line. A line above the bound is sent in pieces, cut between characters, each but the last
 * marked as going on.
 */
#ifndef COVE_FCGI_LINES_H
#define COVE_FCGI_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/buf.h"

enum { LINE_MAX_BYTES = 32 * 1024 };

struct lines {
    struct buf held; /* of a line whose end has not come */
    uint64_t offset; /* place in the stream of the first byte that was not told yet */
    bool inside;     /* pieces of this line have been told */
};

/* Called with a line, without its line feed and a carriage return before it. A return value other than 0 stops. */
typedef int (*lines_fn)(void *arg, const char *text, size_t len, bool goes_on);

void lines_init(struct lines *l);
void lines_done(struct lines *l);

int lines_feed(struct lines *l, const char *bytes, size_t len, lines_fn each, void *arg);
/* No more output comes, or a gap follows: a last line without a line feed is passed on too. */
int lines_end(struct lines *l, lines_fn each, void *arg);

#endif
