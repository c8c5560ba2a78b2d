/*
 * Writing the audit log: how much each source may write (audit_rate.c counts), the line as text (audit_line.c),
 * and its place in the file (audit_file.c).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "policy/audit/audit_private.h"

/* --- one line --------------------------------------------------------------------------------- */

static void remember_line(struct audit *a, const struct buf *line, const char *hash)
{
    a->size += line->len;
    a->last.seq++;
    memcpy(a->last.hash, hash, sizeof(a->last.hash));
    a->torn_bytes = a->removed_files = 0;
    a->continues[0] = '\0';
    a->counts.lines++;
}

static int append_line(struct audit *a, const struct audit_entry *entry, uint64_t count,
                       struct cove_err *e)
{
    char hash[AUDIT_HASH_LEN + 1];
    struct buf line;
    int r;

    buf_init(&line, AUDIT_LINE_MAX);
    if (audit_line_make(a, entry, count, &line, hash) < 0)
        r = cove_fail(e, COVE_TOO_LARGE, "audit log %s: an entry does not fit a line", a->path);
    else
        r = audit_file_write(a, &line, e);
    if (r == 0)
        remember_line(a, &line, hash);
    buf_done(&line);
    return r;
}

/* --- if its source may write it --------------------------------------------------------------- */

static int rotate_if_full(struct audit *a, struct cove_err *e)
{
    return a->options.max_bytes && a->size >= a->options.max_bytes ? audit_file_rotate(a, e) : 0;
}

/* Appends one line under the file's lock. */
static int append_one(struct audit *a, const struct audit_entry *entry, uint64_t count,
                      struct cove_err *e)
{
    int r = audit_file_lock(a, e);

    if (r == 0)
        r = audit_file_catch_up(a, e);
    if (r == 0)
        r = rotate_if_full(a, e);
    if (r == 0)
        r = append_line(a, entry, count, e);
    if (a->fd >= 0)
        flock(a->fd, LOCK_UN);
    return r;
}

/* Tells how many lines of a source were left out. */
static int append_more(struct audit *a, const struct audit_limit *l, struct audit_source *s,
                       struct cove_err *e)
{
    struct audit_entry entry = { .event = "more",
                                 .tenant = s->tenant,
                                 .project = s->project,
                                 .sandbox = s->sandbox[0] ? s->sandbox : NULL,
                                 .form = l == &a->limits[AUDIT_LIMIT_RAN] ? "ran" : NULL,
                                 .time_ms = s->more_time_ms };

    if (s->more == 0)
        return 0;
    if (append_one(a, &entry, s->more, e) < 0)
        return -1;
    s->more = 0;
    return 0;
}

static uint64_t now_ms(const struct audit *a)
{
    return a->options.clock_ms ? a->options.clock_ms() : clock_boot_ms();
}

/* The entry's own row of a limit, or NULL. */
static struct audit_source *find_own(const struct audit_limit *l, const struct audit_entry *entry)
{
    struct audit_source *s = audit_source_find(l, entry);

    return audit_source_is(l, s, entry) ? s : NULL;
}

/* False: this source writes too much, and the line was counted. */
static bool admit_by(struct audit *a, const struct audit_limit *l, const struct audit_entry *entry)
{
    struct audit_source *s;

    if (!l->rows)
        return true;
    s = audit_source_find(l, entry);
    if (!audit_source_is(l, s, entry)) {
        /* tells the lines that were left out of the source that had this row until now */
        append_more(a, l, s, NULL);
        audit_source_begin(l, s, entry, now_ms(a));
    }
    if (audit_source_take(l, s, now_ms(a))) {
        /* a failure need not be looked at: on a full disk the line itself fails, too */
        append_more(a, l, s, NULL);
        return true;
    }
    if (s->more++ == 0)
        s->more_time_ms = clock_unix_ms();
    a->counts.suppressed++;
    return false;
}

/*
 * A sandbox that is known to write too much is stopped by its own limit, so that it does not use up
 * what its tenant's other sandboxes may write. A name that is new must pass the tenant's limit first:
 * otherwise a tenant with a new name of a project in each request would push out the rows of others.
 */
static bool admit(struct audit *a, const struct audit_entry *entry)
{
    const struct audit_limit *source = &a->limits[AUDIT_LIMIT_SOURCE],
                             *tenant = &a->limits[AUDIT_LIMIT_TENANT];

    if (entry->ran)
        return admit_by(a, &a->limits[AUDIT_LIMIT_RAN], entry);
    if (source->rows && find_own(source, entry))
        return admit_by(a, source, entry) && admit_by(a, tenant, entry);
    return admit_by(a, tenant, entry) && admit_by(a, source, entry);
}

/* --- the public side ------------------------------------------------------------------------- */

int audit_append(struct audit *a, const struct audit_entry *entry, struct cove_err *e)
{
    int r = 0;

    pthread_mutex_lock(&a->lock);
    if (entry->always || admit(a, entry))
        r = append_one(a, entry, 0, e);
    pthread_mutex_unlock(&a->lock);
    return r;
}

static int flush_limit(struct audit *a, const struct audit_limit *l, bool all, struct cove_err *e)
{
    for (size_t i = 0; l->rows && i < AUDIT_SOURCES; i++) {
        struct audit_source *s = &l->rows[i];

        if (s->more && (all || audit_source_take(l, s, now_ms(a))) && append_more(a, l, s, e) < 0)
            return -1;
    }
    return 0;
}

static int flush(struct audit *a, bool all, struct cove_err *e)
{
    for (size_t i = 0; i < AUDIT_LIMITS; i++)
        if (flush_limit(a, &a->limits[i], all, e) < 0)
            return -1;
    return 0;
}

int audit_flush(struct audit *a, struct cove_err *e)
{
    int r;

    pthread_mutex_lock(&a->lock);
    r = flush(a, false, e);
    pthread_mutex_unlock(&a->lock);
    return r;
}

void audit_get_counts(struct audit *a, struct audit_counts *ret)
{
    pthread_mutex_lock(&a->lock);
    *ret = a->counts;
    pthread_mutex_unlock(&a->lock);
}

static int open_limit(struct audit_limit *l, const struct audit_rate *rate, bool by_tenant)
{
    *l = (struct audit_limit){ .rate = *rate, .by_tenant = by_tenant };
    if (rate->per_minute)
        l->rows = calloc(AUDIT_SOURCES, sizeof(*l->rows));
    return rate->per_minute && !l->rows ? -1 : 0;
}

static int open_parts(struct audit *a, struct cove_err *e)
{
    if (!a->path || open_limit(&a->limits[AUDIT_LIMIT_SOURCE], &a->options.source, false) < 0 ||
        open_limit(&a->limits[AUDIT_LIMIT_TENANT], &a->options.tenant, true) < 0 ||
        open_limit(&a->limits[AUDIT_LIMIT_RAN], &a->options.ran, true) < 0)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    return a->options.already_redacted ? 0 : redactor_new(&a->redactor, e);
}

int audit_open(const char *path, const struct audit_options *options, struct audit **ret,
               struct cove_err *e)
{
    struct audit *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    pthread_mutex_init(&a->lock, NULL);
    a->fd = -1;
    a->path = strdup(path);
    if (options)
        a->options = *options;
    r = open_parts(a, e);
    if (r == 0)
        r = audit_file_lock(a, e);
    if (r == 0) {
        r = audit_file_catch_up(a, e);
        flock(a->fd, LOCK_UN);
    }
    if (r < 0)
        audit_close(a);
    else
        *ret = a;
    return r;
}

void audit_close(struct audit *a)
{
    if (!a)
        return;
    if (a->fd >= 0)
        flush(a, true, NULL);
    cove_close(a->fd);
    for (size_t i = 0; i < AUDIT_LIMITS; i++)
        free(a->limits[i].rows);
    redactor_free(a->redactor);
    pthread_mutex_destroy(&a->lock);
    free(a->path);
    free(a);
}
