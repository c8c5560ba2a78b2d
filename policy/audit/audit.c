/*
 * Writing the audit log. See audit_private.h for the shape of a line.
 *
 * Many processes append to one file. Whoever holds the lock (flock on the file itself) may write:
 * it looks whether the file grew or was replaced meanwhile, finds the last line's hash, and appends
 * one line in one write. A write that does not fit is taken back, so the file always ends with a
 * whole line, except after a crash; then the next writer cuts the piece off and says so in a line.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/json.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "policy/audit/audit_private.h"

enum { LIMIT_SOURCE, LIMIT_TENANT, LIMIT_RAN, LIMITS };

struct audit {
    char *path;
    struct audit_options options;
    struct redactor *redactor;
    pthread_mutex_t lock;
    int fd;
    uint64_t size;          /* of the file when we last saw it: is `last` still the last line? */
    struct audit_link last; /* of the last line */
    uint64_t torn_bytes;    /* cut off after a crash, not yet noted */
    char continues[300];    /* the file before this one, for its first line; "" if it has one */
    uint64_t removed_files; /* not yet noted in a line */
    struct audit_counts counts;
    struct audit_limit limits[LIMITS];
};

/* --- opening and finding the end ------------------------------------------------------------- */

static int open_file(struct audit *a, struct cove_err *e)
{
    cove_close(a->fd);
    a->fd = open(a->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    a->size = UINT64_MAX; /* not known yet */
    return a->fd < 0 ? cove_fail_errno(e, COVE_INTERNAL, "audit log %s", a->path) : 0;
}

static bool is_current(const struct audit *a)
{
    struct stat ours, theirs;

    return fstat(a->fd, &ours) == 0 && stat(a->path, &theirs) == 0 &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

/* Moved aside between our open and our lock? Then the lock is worth nothing: try again. */
static int lock_file(struct audit *a, struct cove_err *e)
{
    for (int tries = 0; tries < 100; tries++) {
        if (a->fd < 0 && open_file(a, e) < 0)
            return -1;
        while (flock(a->fd, LOCK_EX) < 0) {
            if (errno != EINTR)
                return cove_fail_errno(e, COVE_INTERNAL, "locking %s", a->path);
        }
        if (is_current(a))
            return 0;
        a->fd = cove_close(a->fd);
    }
    return cove_fail(e, COVE_INTERNAL, "audit log %s: other processes replace it again and again",
                     a->path);
}

/* The last `want` bytes of a file. */
static char *read_tail(int fd, uint64_t size, size_t want, size_t *ret_len)
{
    size_t len = size < want ? (size_t)size : want;
    char *tail = malloc(len + 1);

    if (!tail || pread(fd, tail, len, (off_t)(size - len)) != (ssize_t)len) {
        free(tail);
        return NULL;
    }
    *ret_len = len;
    return tail;
}

/* A last line without its line feed is what a crash left: the line is cut off, and the next line says so. */
static int cut_torn_line(struct audit *a, const char *tail, size_t len, uint64_t *size,
                         struct cove_err *e)
{
    const char *newline = memrchr(tail, '\n', len);
    size_t torn = newline ? len - (size_t)(newline - tail) - 1 : len;

    if (torn == 0)
        return 0;
    if (ftruncate(a->fd, (off_t)(*size - torn)) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "audit log %s", a->path);
    a->torn_bytes += torn;
    *size -= torn;
    return 0;
}

/* tail ends with a whole line, or is empty. */
static int find_last(struct audit *a, const char *tail, size_t len, struct cove_err *e)
{
    const char *line = tail;

    if (len == 0) {
        memcpy(a->last.hash, AUDIT_ZERO, sizeof(a->last.hash));
        a->last.seq = 0;
        return 0;
    }
    for (const char *p = tail; p < tail + len - 1; p++) {
        if (*p == '\n')
            line = p + 1;
    }
    if (!audit_parse_line(line, (size_t)(tail + len - line) - 1, &a->last))
        return cove_fail(e, COVE_CONFLICT,
                         "audit log %s: its last line is broken; move it away and look into it",
                         a->path);
    return 0;
}

/* An empty file may be the first of all, or follow one that was just moved aside. */
static int follow_rotated(struct audit *a, struct cove_err *e)
{
    AUTO_FREE unsigned *numbers = NULL;
    AUTO_FREE char *tail = NULL;
    AUTO_CLOSE int fd = -1;
    char name[4096];
    size_t count, len;
    struct stat st;

    if (audit_list_rotated(a->path, &numbers, &count, e) < 0)
        return -1;
    if (count == 0)
        return 0;
    audit_rotated_name(a->path, numbers[count - 1], name, sizeof(name));
    fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0 ||
        !(tail = read_tail(fd, (uint64_t)st.st_size, AUDIT_LINE_MAX, &len)))
        return cove_fail_errno(e, COVE_INTERNAL, "audit log %s", name);
    text_copy(a->continues, sizeof(a->continues),
              strrchr(name, '/') ? strrchr(name, '/') + 1 : name);
    return find_last(a, tail, len, e);
}

/* Under the lock: bring size and last up to date with what is in the file. */
static int catch_up(struct audit *a, struct cove_err *e)
{
    AUTO_FREE char *tail = NULL;
    struct stat st;
    uint64_t size;
    size_t len;

    if (fstat(a->fd, &st) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "audit log %s", a->path);
    size = (uint64_t)st.st_size;
    if (size == a->size)
        return 0;
    tail = read_tail(a->fd, size, AUDIT_LINE_MAX, &len);
    if (!tail)
        return cove_fail_errno(e, COVE_INTERNAL, "reading %s", a->path);
    if (cut_torn_line(a, tail, len, &size, e) < 0)
        return -1;
    len -= (size_t)((uint64_t)st.st_size - size);
    a->continues[0] = '\0';
    if (find_last(a, tail, len, e) < 0 || (size == 0 && follow_rotated(a, e) < 0))
        return -1;
    a->size = size;
    return 0;
}

/* --- lines ----------------------------------------------------------------------------------- */

/* Upper bounds of what one character becomes in JSON. */
static size_t json_cost(unsigned char c)
{
    if (c < ' ' || c == 127)
        return 6;
    return c >= 0x80 ? 3 : c == '"' || c == '\\' ? 2 : 1;
}

size_t audit_fitting(const char *text, size_t len, size_t max)
{
    size_t n = 0, cost = 0;

    while (n < len) {
        size_t seq = text_utf8_seq(text + n, len - n);
        size_t more = seq > 1 ? seq : json_cost((unsigned char)text[n]);

        if (cost + more > max)
            break;
        cost += more;
        n += seq ? seq : 1;
    }
    return n;
}

static void add_field(struct json_writer *w, const char *key, const char *value)
{
    if (value)
        json_put_text(w, key, value, audit_fitting(value, strlen(value), AUDIT_FIELD_MAX));
}

static void add_number(struct json_writer *w, const char *key, uint64_t value)
{
    if (value)
        json_put_int(w, key, (int64_t)value);
}

static void add_command(struct audit *a, struct json_writer *w, const struct audit_entry *entry)
{
    size_t bytes = entry->command_bytes ? entry->command_bytes : entry->command_len, shown;
    AUTO_FREE char *clean = NULL;
    const char *text = entry->command;

    if (!text)
        return;
    shown = audit_fitting(text, entry->command_len, AUDIT_COMMAND_MAX);
    if (a->redactor) {
        if (redactor_command(a->redactor, text, entry->command_len, &clean, NULL) < 0)
            return;
        text = clean;
    }
    json_put_text(w, "command", text, clean ? strlen(clean) : shown);
    add_number(w, "command_bytes", shown < bytes ? bytes : 0);
}

/* All of a line that its hash covers. count: of the lines that a "more" line stands for, or 0. */
static void add_body(struct audit *a, struct json_writer *w, const struct audit_entry *entry,
                     uint64_t count)
{
    json_open(w, NULL, '{');
    json_put_int(w, "seq", (int64_t)a->last.seq + 1);
    json_put_time(w, "time", entry->time_ms ? entry->time_ms : clock_unix_ms());
    add_field(w, "event", entry->event);
    add_field(w, "dialect", entry->dialect);
    add_field(w, "tenant", entry->tenant);
    add_field(w, "key", entry->key);
    add_field(w, "project", entry->project);
    add_field(w, "sandbox", entry->sandbox);
    add_field(w, "rule", entry->rule);
    add_field(w, "form", entry->form);
    add_command(a, w, entry);
    add_number(w, "count", count);
    if (a->continues[0])
        add_field(w, "continues", a->continues);
    add_number(w, "torn_bytes", a->torn_bytes);
    add_number(w, "removed_files", a->removed_files);
    json_put_str(w, "prev", a->last.hash);
}

/* 0, or -1 when the line does not fit. */
static int make_line(struct audit *a, const struct audit_entry *entry, uint64_t count,
                     struct buf *line, char ret_hash[AUDIT_HASH_LEN + 1])
{
    struct json_writer w;

    json_writer_init(&w, line);
    add_body(a, &w, entry, count);
    if (line->overflow || audit_hash(line->data, line->len, ret_hash) < 0)
        return -1;
    json_put_str(&w, "hash", ret_hash);
    json_close(&w, '}');
    return buf_add_char(line, '\n');
}

/* All or nothing: what was written of a line that did not fit is taken back. */
static int write_line(struct audit *a, const struct buf *line, struct cove_err *e)
{
    size_t done = 0;

    while (done < line->len) {
        ssize_t n = write(a->fd, line->data + done, line->len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int why = n < 0 ? errno : ENOSPC;
            bool full = why == ENOSPC || why == EDQUOT || why == EFBIG;

            if (ftruncate(a->fd, (off_t)a->size) < 0)
                a->size = UINT64_MAX; /* the next append cuts the piece off */
            errno = why;
            return cove_fail_errno(e, full ? COVE_LIMIT : COVE_INTERNAL, "audit log %s", a->path);
        }
        done += (size_t)n;
    }
    return 0;
}

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
    if (make_line(a, entry, count, &line, hash) < 0)
        r = cove_fail(e, COVE_TOO_LARGE, "audit log %s: an entry does not fit a line", a->path);
    else
        r = write_line(a, &line, e);
    if (r == 0)
        remember_line(a, &line, hash);
    buf_done(&line);
    return r;
}

/* --- rotation -------------------------------------------------------------------------------- */

static uint64_t size_of(const struct audit *a, unsigned number)
{
    char name[4096];
    struct stat st;

    return audit_rotated_name(a->path, number, name, sizeof(name)) == 0 && stat(name, &st) == 0
               ? (uint64_t)st.st_size
               : 0;
}

static void remove_file(struct audit *a, unsigned number)
{
    uint64_t size = size_of(a, number);
    char name[4096];

    if (audit_rotated_name(a->path, number, name, sizeof(name)) < 0 || unlink(name) < 0)
        return;
    a->removed_files++;
    a->counts.removed_files++;
    a->counts.removed_bytes += size;
}

/* The oldest files go until the others, with a new file that may grow to its full size, are within
 * the limits. The newest one stays: without it the chain could not be shown to go on. */
static void remove_old(struct audit *a, const unsigned *numbers, size_t count)
{
    uint64_t total = a->options.max_bytes;

    for (size_t i = count; i-- > 0;) {
        bool newest = i + 1 == count;
        bool too_many = a->options.keep && count - i > a->options.keep;

        total += size_of(a, numbers[i]);
        if (!newest && (too_many || (a->options.total_bytes && total > a->options.total_bytes)))
            remove_file(a, numbers[i]);
    }
}

/*
 * Under the lock of the full file: a rename, then a new file whose first line carries the chain on.
 * A crash between the two leaves no file, and the next writer finds the one that was moved aside.
 */
static int rotate(struct audit *a, struct cove_err *e)
{
    AUTO_FREE unsigned *numbers = NULL, *after = NULL;
    size_t count, after_count;
    char name[4096];

    if (audit_list_rotated(a->path, &numbers, &count, e) < 0)
        return -1;
    if (audit_rotated_name(a->path, count ? numbers[count - 1] + 1 : 1, name, sizeof(name)) < 0)
        return cove_fail(e, COVE_INTERNAL, "audit log %s: the name is too long", a->path);
    fdatasync(a->fd);
    if (rename(a->path, name) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "audit log %s", a->path);
    if (audit_list_rotated(a->path, &after, &after_count, NULL) == 0)
        remove_old(a, after, after_count);
    a->fd = cove_close(a->fd);
    return lock_file(a, e) < 0 ? -1 : catch_up(a, e);
}

/* --- one line, if its source may write it ----------------------------------------------------- */

static int rotate_if_full(struct audit *a, struct cove_err *e)
{
    return a->options.max_bytes && a->size >= a->options.max_bytes ? rotate(a, e) : 0;
}

/* One line, under the file's lock. */
static int append_one(struct audit *a, const struct audit_entry *entry, uint64_t count,
                      struct cove_err *e)
{
    int r = lock_file(a, e);

    if (r == 0)
        r = catch_up(a, e);
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
                                 .form = l == &a->limits[LIMIT_RAN] ? "ran" : NULL,
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
        append_more(a, l, s, NULL); /* of the source that had this row until now */
        audit_source_begin(l, s, entry, now_ms(a));
    }
    if (audit_source_take(l, s, now_ms(a))) {
        append_more(a, l, s, NULL); /* on a full disk the line itself fails too, and says so */
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
    const struct audit_limit *source = &a->limits[LIMIT_SOURCE], *tenant = &a->limits[LIMIT_TENANT];

    if (entry->ran)
        return admit_by(a, &a->limits[LIMIT_RAN], entry);
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
    for (size_t i = 0; i < LIMITS; i++)
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
    if (!a->path || open_limit(&a->limits[LIMIT_SOURCE], &a->options.source, false) < 0 ||
        open_limit(&a->limits[LIMIT_TENANT], &a->options.tenant, true) < 0 ||
        open_limit(&a->limits[LIMIT_RAN], &a->options.ran, true) < 0)
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
        r = lock_file(a, e);
    if (r == 0) {
        r = catch_up(a, e);
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
    for (size_t i = 0; i < LIMITS; i++)
        free(a->limits[i].rows);
    redactor_free(a->redactor);
    pthread_mutex_destroy(&a->lock);
    free(a->path);
    free(a);
}
