/*
 * Reads a piece of a process's log without waiting for more, by either of two kinds of places: a position in the ring,
 * which is a plain number, or how many bytes of each stream were told. core_logs.c follows a log.
 */
#include "cove/mem.h"
#include "cove/ring.h"
#include "fcgi/core.h"

/* ------------------------------------------------------------------ by position */

/* Reads records until the buffer has no room for another. */
static int read_records(struct ring_reader *r, struct core_log_piece *p, struct cove_err *e)
{
    AUTO_FREE char *bytes = malloc(RING_REC_MAX);
    struct ring_rec rec;
    uint64_t gap;
    int n = 0;

    if (!bytes)
        return core_fail_memory(e);
    for (p->next = r->pos; p->text->max - p->text->len >= RING_REC_MAX; p->next = r->pos) {
        n = ring_read(r, &rec, bytes, &gap, e);
        if (n <= 0)
            break;
        p->lost |= gap > 0;
        if (buf_add(p->text, bytes, rec.len) < 0)
            return core_fail_memory(e);
    }
    p->more = n > 0;
    return n < 0 ? -1 : 0;
}

int core_log_read(struct core_session *s, const char *label, uint64_t from,
                  struct core_log_piece *p, struct cove_err *e)
{
    struct box_log_opened opened;
    struct ring_reader reader;
    AUTO_CLOSE int ring = -1;

    if (box_log(&s->conn, 0, label, &opened, &ring, e) < 0)
        return -1;
    if (ring_reader_init(&reader, ring, from, e) < 0 || read_records(&reader, p, e) < 0)
        return cove_context(e, "log of '%.60s'", label);
    return 0;
}

/* ------------------------------------------------------------------ by bytes of each stream */

/* Takes a record. One that begins before the place was told in part; one that begins behind it means that output was
 * lost. */
static void take_record(struct core_log_part *p, const struct ring_rec *rec, const char *bytes)
{
    uint64_t *at = &p->place.offset[rec->stream == RING_STDOUT ? 0 : 1];
    uint64_t end = rec->offset + rec->len;
    size_t skip, n;

    if (end <= *at)
        return;
    if (rec->offset > *at) {
        p->lost += rec->offset - *at;
        *at = rec->offset;
    }
    skip = (size_t)(*at - rec->offset);
    n = rec->len - skip;
    n = n < p->most - p->text.len ? n : p->most - p->text.len;
    if (buf_add(&p->text, bytes + skip, n) == 0)
        *at += n;
}

static int read_ring(int ring, struct core_log_part *p, struct cove_err *e)
{
    AUTO_FREE char *bytes = malloc(RING_REC_MAX);
    struct ring_reader reader;
    struct ring_rec rec;
    uint64_t gap, seen = 0;
    int n = 1;

    if (!bytes)
        return core_fail_memory(e);
    if (ring_reader_init(&reader, ring, 0, e) < 0)
        return -1; /* cppcheck-suppress memleak ; bytes frees itself */
    /* No more than the ring holds: a fast writer would keep us reading. */
    while (p->text.len < p->most && seen < reader.capacity &&
           (n = ring_read(&reader, &rec, bytes, &gap, e)) > 0) {
        take_record(p, &rec, bytes);
        seen += rec.len + 1;
        if (p->text.overflow)
            return core_fail_memory(e);
    }
    return n < 0 ? -1 : 0;
}

int core_log_read_part(struct core_session *s, uint32_t proc, struct core_log_part *p,
                       struct cove_err *e)
{
    struct box_log_opened opened;
    AUTO_CLOSE int ring = -1;

    buf_init_within(&p->text, p->most, s->core->bytes);
    if (box_log(&s->conn, proc, NULL, &opened, &ring, e) < 0)
        return -1;
    return read_ring(ring, p, e);
}
