/* Reads a piece of a process's log without waiting for more. core_logs.c follows a log. */
#include "cove/mem.h"
#include "cove/ring.h"
#include "fcgi/core.h"

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
