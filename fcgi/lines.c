/* Splitting output into lines. */
#include "fcgi/lines.h"

#include <string.h>

void lines_init(struct lines *l)
{
    *l = (struct lines){ 0 };
    buf_init(&l->held,
             LINE_MAX_BYTES + 1); /* one byte more, to see whether a cut would divide a character */
}

void lines_done(struct lines *l)
{
    buf_done(&l->held);
}

static int tell(struct lines *l, const char *text, size_t len, size_t taken, bool goes_on,
                lines_fn each, void *arg)
{
    if (!goes_on && len > 0 && text[len - 1] == '\r')
        len--;
    l->offset += taken;
    l->inside = goes_on;
    return each(arg, text, len, goes_on);
}

static int tell_held(struct lines *l, size_t line_feed, lines_fn each, void *arg)
{
    int rc = tell(l, l->held.data ? l->held.data : "", l->held.len, l->held.len + line_feed, false,
                  each, arg);

    buf_clear(&l->held);
    return rc;
}

/* Finds where to cut a text, at most at LINE_MAX_BYTES, so that no character is divided. Bytes that are no text are
 * cut anywhere. */
static size_t cut_at(const char *text)
{
    size_t cut = LINE_MAX_BYTES;

    while (cut > LINE_MAX_BYTES - 4 && ((unsigned char)text[cut] & 0xC0) == 0x80)
        cut--;
    return cut > LINE_MAX_BYTES - 4 ? cut : LINE_MAX_BYTES;
}

/* The line is longer than the bound: passes on a piece of it and keeps the rest. */
static int tell_piece(struct lines *l, lines_fn each, void *arg)
{
    size_t cut = cut_at(l->held.data);
    int rc = tell(l, l->held.data, cut, cut, true, each, arg);

    memmove(l->held.data, l->held.data + cut, l->held.len - cut);
    l->held.len -= cut;
    return rc;
}

/* Keeps as many of the bytes as fit and returns how many. */
static size_t hold(struct lines *l, const char *bytes, size_t len)
{
    size_t room = l->held.max - l->held.len;
    size_t n = len < room ? len : room;

    return buf_add(&l->held, bytes, n) < 0 ? 0 : n;
}

int lines_feed(struct lines *l, const char *bytes, size_t len, lines_fn each, void *arg)
{
    int rc = 0;

    while (len > 0 && rc == 0) {
        const char *line_feed = memchr(bytes, '\n', len);
        size_t n = line_feed ? (size_t)(line_feed - bytes) : len;
        size_t taken = n + (line_feed != NULL);

        if (line_feed && l->held.len == 0 && n <= LINE_MAX_BYTES) {
            rc = tell(l, bytes, n, taken, false, each, arg); /* the common case copies nothing */
        } else if (l->held.len + n <= LINE_MAX_BYTES) {
            if (n > 0 && hold(l, bytes, n) == 0)
                return -1;
            rc = line_feed ? tell_held(l, 1, each, arg) : 0;
        } else {
            taken = hold(l, bytes, n);
            rc = taken == 0 ? -1 : tell_piece(l, each, arg);
        }
        bytes += taken;
        len -= taken;
    }
    return rc;
}

int lines_end(struct lines *l, lines_fn each, void *arg)
{
    return l->held.len > 0 || l->inside ? tell_held(l, 0, each, arg) : 0;
}
