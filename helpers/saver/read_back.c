/*
 * Reading an archive back from the disk while it is still being written. A thread follows behind the writer,
 * CHUNK by CHUNK: it has the kernel write a chunk out, takes it from the cache and reads it, so that what
 * is compared are the disk's bytes. When the writer has finished, only the last chunk is left to read.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"
#include "helpers/saver/saver_private.h"

enum { CHUNK = 8 << 20, READ_BYTES = 256 * 1024 };

struct read_back {
    int fd;
    pthread_t thread;
    bool has_thread; /* a small archive is read at the end, without one */
    char *buf;
    struct sha sha; /* of what was read; this and the next two are the thread's until it ends */
    int rc;
    struct cove_err err;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t news;
    uint64_t written;
    bool is_all; /* the writer has finished */
};

/* ------------------------------------------------------------------ reading */

/* Without the file system's journal: the keeper syncs the archive together with the files beside it. */
static int write_out(int fd, uint64_t at, uint64_t len)
{
    if (sync_file_range(fd, (off_t)at, (off_t)len,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER) == 0)
        return 0;
    if (errno != ENOSYS && errno != EINVAL && errno != EOPNOTSUPP)
        return -1;
    return fdatasync(fd); /* a file system that cannot write a range out by itself */
}

static int read_until(struct read_back *r, uint64_t end)
{
    uint64_t at = r->sha.bytes;

    if (write_out(r->fd, at, end - at) < 0)
        return cove_fail_errno(&r->err, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL, "archive");
    posix_fadvise(r->fd, (off_t)at, (off_t)(end - at), POSIX_FADV_DONTNEED);
    while (r->sha.bytes < end) {
        uint64_t left = end - r->sha.bytes;
        ssize_t n = pread(r->fd, r->buf, left < READ_BYTES ? (size_t)left : READ_BYTES,
                          (off_t)r->sha.bytes);

        if (n < 0)
            return cove_fail_errno(&r->err, COVE_INTERNAL, "reading the archive again");
        if (n == 0)
            break; /* shorter than what was written: the digest will tell */
        sha_add(&r->sha, r->buf, (size_t)n);
    }
    return 0;
}

static bool wait_for_more(struct read_back *r, uint64_t *ret_end)
{
    bool is_all;

    pthread_mutex_lock(&r->lock);
    while (!r->is_all && r->written < r->sha.bytes + CHUNK)
        pthread_cond_wait(&r->news, &r->lock);
    is_all = r->is_all;
    *ret_end = is_all ? r->written : r->written / CHUNK * CHUNK;
    pthread_mutex_unlock(&r->lock);
    return !is_all;
}

static void *follow(void *arg)
{
    struct read_back *r = arg;
    uint64_t end;
    bool more;

    do {
        more = wait_for_more(r, &end);
        if (r->rc == 0 && end > r->sha.bytes)
            r->rc = read_until(r, end);
    } while (more);
    return NULL;
}

/* ------------------------------------------------------------------ the writer's side */

int read_back_new(int fd, struct read_back **ret, struct cove_err *e)
{
    struct read_back *r = calloc(1, sizeof(*r));

    if (!r || !(r->buf = malloc(READ_BYTES))) {
        read_back_free(r);
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    }
    sha_init(&r->sha);
    r->fd = fd;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->news, NULL);
    *ret = r;
    return 0;
}

static void tell(struct read_back *r, uint64_t written, bool is_all)
{
    pthread_mutex_lock(&r->lock);
    r->written = written;
    r->is_all = is_all;
    pthread_cond_signal(&r->news);
    pthread_mutex_unlock(&r->lock);
}

void read_back_tell(struct read_back *r, uint64_t written)
{
    if (!r->has_thread && written >= CHUNK)
        r->has_thread = pthread_create(&r->thread, NULL, follow, r) == 0;
    tell(r, written, false);
}

static void read_rest(struct read_back *r, uint64_t written)
{
    tell(r, written, true);
    if (r->has_thread)
        pthread_join(r->thread, NULL);
    else
        follow(r);
    r->has_thread = false;
}

int read_back_end(struct read_back *r, uint64_t written, char ret[SAVED_DIGEST_TEXT],
                  struct cove_err *e)
{
    read_rest(r, written);
    sha_end(&r->sha, ret);
    if (r->rc < 0 && e)
        *e = r->err;
    return r->rc;
}

void read_back_free(struct read_back *r)
{
    if (!r)
        return;
    if (r->has_thread)
        read_rest(r, 0); /* the archive was given up: nothing more is read */
    free(r->buf);
    free(r);
}
