/*
 * The file of the audit log, which many processes append to. Whoever holds the lock (flock on the file itself)
 * may write: it looks whether the file grew or was replaced meanwhile, finds the last line's hash, and appends
 * one line in one write. A write that does not fit is taken back, so the file always ends with a whole line,
 * except after a crash; then the next writer cuts the piece off and says so in a line.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "policy/audit/audit_private.h"

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

int audit_file_lock(struct audit *a, struct cove_err *e)
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

/* Reads the last `want` bytes of a file. */
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

/* Reads the place of the last line in the chain. `tail` ends with a whole line, or is empty. */
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

/* Finds the hash that an empty file's first line must carry on. The file may be the first of all, or follow one that
 * was just moved aside. */
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

int audit_file_catch_up(struct audit *a, struct cove_err *e)
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

int audit_file_write(struct audit *a, const struct buf *line, struct cove_err *e)
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
 * Renames the full file, whose lock is held, and makes a new file whose first line carries the chain on. A crash
 * between the two leaves no file, and the next writer finds the one that was moved aside.
 */
int audit_file_rotate(struct audit *a, struct cove_err *e)
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
    return audit_file_lock(a, e) < 0 ? -1 : audit_file_catch_up(a, e);
}
