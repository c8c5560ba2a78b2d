/* A growing byte buffer that is born with its ceiling. */
#ifndef COVE_BUF_H
#define COVE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "cove/budget.h"

struct buf {
    char *data; /* NUL-terminated whenever it is not NULL; the NUL is not counted in len */
    size_t len;
    size_t cap;
    size_t max;            /* the ceiling; len never exceeds it */
    struct budget *budget; /* NULL = only `max` holds */
    bool starved;          /* the budget had no room: sticky, like overflow, which is set too */
    bool overflow; /* something did not fit, or memory ran out. Sticky: callers may check once */
};

void buf_init(struct buf *b, size_t max);
void buf_init_within(struct buf *b, size_t max, struct budget *budget); /* budget may be NULL */
void buf_done(struct buf *b);
void buf_clear(struct buf *b);          /* len = 0, overflow = false; keeps the memory */
void buf_drop(struct buf *b, size_t n); /* the first n bytes */

/* All return 0, or -1 when the bytes did not fit; then none of them was added. */
int buf_add(struct buf *b, const void *data, size_t len);
int buf_add_str(struct buf *b, const char *s);
int buf_add_char(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Room for at least `want` more bytes at b->data + b->len, to read() into; NULL if that breaks the
 * ceiling. */
char *buf_reserve(struct buf *b, size_t want);

/* Text as JSON has it between quotes. The bytes may be anything: what is not UTF-8 becomes U+FFFD,
 * control characters are escaped. Objects and arrays: cove/json.h. */
int buf_add_json_str(struct buf *b, const char *s, size_t len);  /* with the quotes */
int buf_add_json_part(struct buf *b, const char *s, size_t len); /* without them */

static inline void buf_auto_done(struct buf *b)
{
    buf_done(b);
}
#define AUTO_BUF __attribute__((cleanup(buf_auto_done)))
/* An empty buffer with this ceiling: `AUTO_BUF struct buf b = BUF(64 * 1024);` */
#define BUF(ceiling) ((struct buf){ .max = (ceiling) })

#endif
