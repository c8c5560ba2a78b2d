/* Fair shares of a worker's threads: see shares.h. */
#include "fcgi/shares.h"

#include <stdlib.h>
#include <string.h>

#include "cove/text.h"

int shares_init(struct shares *s, size_t threads, unsigned total, unsigned percent,
                struct cove_err *e)
{
    *s = (struct shares){ .most = (total * percent + 99) / 100, .count = threads };
    s->most_among = s->most;
    pthread_mutex_init(&s->lock, NULL);
    s->rows = calloc(threads, sizeof(*s->rows));
    return s->rows ? 0 : cove_fail(e, COVE_INTERNAL, "out of memory");
}

void shares_done(struct shares *s)
{
    free(s->rows);
    s->rows = NULL;
    pthread_mutex_destroy(&s->lock);
}

void shares_halve_among(struct shares *s, unsigned total)
{
    unsigned half = (total + 1) / 2;

    if (s->most_among > half)
        s->most_among = half;
}

/* Returns the row of `who`, else a free one, else NULL. */
static struct share *find_locked(struct shares *s, const char *who)
{
    struct share *spare = NULL;

    for (size_t i = 0; i < s->count; i++) {
        struct share *row = &s->rows[i];

        if (row->users && strcmp(row->who, who) == 0)
            return row;
        if (!row->users && !spare)
            spare = row;
    }
    return spare;
}

static void begin_row(struct shares *s, struct share *row, const char *who)
{
    text_copy(row->who, sizeof(row->who), who);
    row->held = 0;
    row->bytes = (struct budget){ .max = s->bytes_max, .above = s->all };
}

static bool has_room_locked(const struct shares *s, const struct share *row)
{
    unsigned held = row->users ? row->held : 0;
    bool among_others = s->holders > (held > 0);

    return !s->most || held < (among_others ? s->most_among : s->most);
}

static void count_locked(struct shares *s, struct share *row, int by)
{
    if (row->held == 0 && by > 0)
        s->holders++;
    row->held += (unsigned)by;
    if (row->held == 0 && by < 0)
        s->holders--;
}

bool shares_take(struct shares *s, const char *who, bool counts, struct budget **ret_bytes)
{
    struct share *row;
    bool taken;

    if (ret_bytes)
        *ret_bytes = s ? s->all : NULL;
    if (!s)
        return true;
    pthread_mutex_lock(&s->lock);
    row = find_locked(s, who);
    taken = row && (!counts || has_room_locked(s, row));
    if (taken && row->users++ == 0)
        begin_row(s, row, who);
    if (taken)
        count_locked(s, row, counts);
    if (taken && ret_bytes)
        *ret_bytes = &row->bytes;
    pthread_mutex_unlock(&s->lock);
    return taken;
}

void shares_release(struct shares *s, const char *who, bool counts)
{
    struct share *row;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    row = find_locked(s, who);
    if (row && row->users > 0) {
        row->users--;
        count_locked(s, row, -counts);
    }
    pthread_mutex_unlock(&s->lock);
}
