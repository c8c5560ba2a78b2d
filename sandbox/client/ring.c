#include "config.h" /* _GNU_SOURCE */

#include "cove/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3; Debian 12's headers are older than many a kernel */
#endif

enum {
    CAPACITY_MIN = 4096,
    CAPACITY_MAX = 1 << 30,
    READ_TRIES = 100, /* after so many overtakings by the writer a read returns "nothing yet" */
};

/* --------------------------------------------------------------- what both sides know */

static uint64_t record_size(uint32_t len)
{
    return (sizeof(struct ring_rec) + (uint64_t)len + 7) & ~(uint64_t)7;
}

static bool capacity_is_sane(uint64_t capacity)
{
    return capacity >= CAPACITY_MIN && capacity <= CAPACITY_MAX && capacity % 8 == 0;
}

/* --------------------------------------------------------------- writer */

static int make_memfd(void)
{
    int fd = memfd_create("cove-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("cove-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

int ring_create(uint64_t capacity, struct ring *ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    char *map;

    if (capacity < CAPACITY_MIN)
        capacity = CAPACITY_MIN;
    capacity = (capacity + 4095) & ~(uint64_t)4095;
    if (!capacity_is_sane(capacity))
        return cove_fail(e, COVE_INVALID, "a log ring of %" PRIu64 " bytes", capacity);
    fd = make_memfd();
    if (fd < 0 || ftruncate(fd, (off_t)(RING_HEAD_BYTES + capacity)) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "making a log ring");
    map = mmap(NULL, RING_HEAD_BYTES + capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return cove_fail_errno(e, COVE_LIMIT, "mapping a log ring");
    /* Children of init would keep the ring's memory taken, and the launcher lives for hours. */
    madvise(map, RING_HEAD_BYTES + capacity, MADV_DONTFORK);
    *ret = (struct ring){
        .head = (struct ring_head *)map,
        .data = map + RING_HEAD_BYTES,
        .capacity = capacity,
    };
    ret->head->magic = RING_MAGIC;
    ret->head->capacity = capacity;
    /* From here on only this mapping can write. Whoever gets the descriptor can only read. */
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    ret->fd = take_fd(&fd);
    return 0;
}

void ring_settle(struct ring *r)
{
    if (!r->head)
        return;
    r->end = r->head->end;
    munmap(r->head, RING_HEAD_BYTES + r->capacity);
    r->head = NULL;
    r->data = NULL;
}

uint64_t ring_end(const struct ring *r)
{
    return r->head ? r->head->end : r->end;
}

void ring_done(struct ring *r)
{
    ring_settle(r);
    if (r->capacity > 0)
        cove_close(r->fd);
    *r = (struct ring){ .fd = -1 };
}

static void copy_in(struct ring *r, uint64_t pos, const void *bytes, size_t len)
{
    uint64_t at = pos % r->head->capacity, room = r->head->capacity - at;
    size_t first = len < room ? len : (size_t)room;

    memcpy(r->data + at, bytes, first);
    memcpy(r->data, (const char *)bytes + first, len - first);
}

static void copy_out(const struct ring *r, uint64_t pos, void *bytes, size_t len)
{
    uint64_t at = pos % r->head->capacity, room = r->head->capacity - at;
    size_t first = len < room ? len : (size_t)room;

    memcpy(bytes, r->data + at, first);
    memcpy((char *)bytes + first, r->data, len - first);
}

/* Gives up the oldest records until `need` bytes fit behind `end`. Readers are told before the records are
 * overwritten. */
static void make_room(struct ring *r, uint64_t end, uint64_t need)
{
    uint64_t start = atomic_load_explicit(&r->head->start, memory_order_relaxed);

    while (end + need - start > r->head->capacity) {
        struct ring_rec oldest;

        copy_out(r, start, &oldest, sizeof(oldest));
        start += record_size(oldest.len);
    }
    atomic_store_explicit(&r->head->start, start, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void append_one(struct ring *r, const struct ring_rec *rec, const void *bytes)
{
    uint64_t end = atomic_load_explicit(&r->head->end, memory_order_relaxed);

    make_room(r, end, record_size(rec->len));
    copy_in(r, end, rec, sizeof(*rec));
    copy_in(r, end + sizeof(*rec), bytes, rec->len);
    atomic_store_explicit(&r->head->end, end + record_size(rec->len), memory_order_release);
}

static uint64_t count_lines(const char *bytes, size_t len)
{
    const char *end = bytes + len, *at = bytes;
    uint64_t lines = 0;

    while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
        lines++;
        at++;
    }
    return lines;
}

void ring_append(struct ring *r, enum ring_stream stream, uint64_t unix_ns, const void *bytes,
                 uint32_t len)
{
    /* A record takes at most half the ring, so that at least one record is left to read when room is made
     * for it. */
    uint64_t most = r->head->capacity / 2 - sizeof(struct ring_rec);
    const char *from = bytes;

    if (most > RING_REC_MAX)
        most = RING_REC_MAX;
    while (len > 0) {
        struct ring_rec rec = { .len = len < most ? len : (uint32_t)most,
                                .stream = stream,
                                .unix_ns = unix_ns,
                                .offset = r->offsets[stream],
                                .lines = r->lines[stream] };

        append_one(r, &rec, from);
        r->offsets[stream] += rec.len;
        r->lines[stream] += count_lines(from, rec.len);
        from += rec.len;
        len -= rec.len;
    }
}

/* --------------------------------------------------------------- reader: trusts nothing */

struct bounds {
    uint64_t start, end;
};

static int read_head(int fd, uint64_t *ret_capacity, struct bounds *ret, struct cove_err *e)
{
    struct ring_head head;
    uint64_t start, end;

    if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head))
        return cove_fail(e, COVE_INVALID, "the log ring has no head");
    start = atomic_load_explicit(&head.start, memory_order_relaxed);
    end = atomic_load_explicit(&head.end, memory_order_relaxed);
    if (head.magic != RING_MAGIC || !capacity_is_sane(head.capacity))
        return cove_fail(e, COVE_INVALID, "the log ring's head makes no sense");
    if (start > end || end - start > head.capacity || start % 8 || end % 8 || end > INT64_MAX)
        return cove_fail(e, COVE_INVALID, "the log ring's positions make no sense");
    *ret_capacity = head.capacity;
    *ret = (struct bounds){ start, end };
    return 0;
}

static int read_bounds(const struct ring_reader *r, struct bounds *ret, struct cove_err *e)
{
    uint64_t capacity;

    atomic_thread_fence(memory_order_seq_cst); /* a second look must not be older than the data */
    if (read_head(r->fd, &capacity, ret, e) < 0)
        return -1;
    if (capacity != r->capacity)
        return cove_fail(e, COVE_INVALID, "the log ring changed its size");
    return 0;
}

int ring_reader_init(struct ring_reader *r, int fd, uint64_t pos, struct cove_err *e)
{
    int seals = fcntl(fd, F_GET_SEALS);
    uint64_t capacity;
    struct bounds now;
    struct stat st;

    /* Only files in memory have seals: reading them never waits for a disk, a FIFO or FUSE. */
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return cove_fail(e, COVE_INVALID, "the log ring is not a sealed memory file");
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return cove_fail(e, COVE_INVALID, "the log ring is not a regular file");
    if (read_head(fd, &capacity, &now, e) < 0)
        return -1;
    if ((uint64_t)st.st_size != RING_HEAD_BYTES + capacity)
        return cove_fail(e, COVE_INVALID, "the log ring's size is not what its head says");
    if (pos > now.end || pos % 8)
        return cove_fail(e, COVE_INVALID, "the log has no position %" PRIu64, pos);
    *r = (struct ring_reader){ .fd = fd, .capacity = capacity, .pos = pos };
    return 0;
}

int ring_reader_skip(struct ring_reader *r, struct cove_err *e)
{
    struct bounds now;

    if (read_bounds(r, &now, e) < 0)
        return -1;
    r->pos = now.end;
    return 0;
}

static int read_data(const struct ring_reader *r, uint64_t pos, void *buf, size_t len,
                     struct cove_err *e)
{
    uint64_t at = pos % r->capacity, room = r->capacity - at;
    size_t first = len < room ? len : (size_t)room;

    if (pread(r->fd, buf, first, (off_t)(RING_HEAD_BYTES + at)) != (ssize_t)first)
        return cove_fail(e, COVE_INVALID, "the log ring ends early");
    if (first < len &&
        pread(r->fd, (char *)buf + first, len - first, RING_HEAD_BYTES) != (ssize_t)(len - first))
        return cove_fail(e, COVE_INVALID, "the log ring ends early");
    return 0;
}

static bool record_is_sane(const struct ring_rec *rec, uint64_t pos, uint64_t end)
{
    return rec->len > 0 && rec->len <= RING_REC_MAX &&
           (rec->stream == RING_STDOUT || rec->stream == RING_STDERR) &&
           record_size(rec->len) <= end - pos;
}

/* 1: the record was read; 0: it was overwritten meanwhile; -1: it makes no sense. */
static int read_record(const struct ring_reader *r, uint64_t pos, uint64_t end,
                       struct ring_rec *ret, void *buf, struct cove_err *e)
{
    struct ring_rec rec;
    struct bounds now;
    bool sane;

    if (end - pos < sizeof(rec))
        return cove_fail(e, COVE_INVALID, "the log ring ends inside a record");
    if (read_data(r, pos, &rec, sizeof(rec), e) < 0)
        return -1;
    sane = record_is_sane(&rec, pos, end);
    if (sane && read_data(r, pos + sizeof(rec), buf, rec.len, e) < 0)
        return -1;
    if (read_bounds(r, &now, e) < 0)
        return -1;
    if (pos < now.start)
        return 0;
    if (!sane)
        return cove_fail(e, COVE_INVALID, "the log ring has a broken record");
    *ret = rec;
    return 1;
}

int ring_read(struct ring_reader *r, struct ring_rec *ret, void *buf, uint64_t *ret_gap,
              struct cove_err *e)
{
    *ret_gap = 0;
    for (int i = 0; i < READ_TRIES; i++) {
        struct bounds now;
        uint64_t pos;
        int n;

        if (read_bounds(r, &now, e) < 0)
            return -1;
        if (r->pos > now.end)
            return cove_fail(e, COVE_INVALID, "the log ring went backwards");
        pos = r->pos < now.start ? now.start : r->pos;
        if (pos == now.end)
            return 0; /* a gap is reported together with the record that follows it */
        n = read_record(r, pos, now.end, ret, buf, e);
        if (n < 0)
            return -1;
        if (n == 0)
            continue;
        *ret_gap = pos - r->pos;
        r->pos = pos + record_size(ret->len);
        return 1;
    }
    return 0; /* the writer is faster than we are: this counts as nothing there yet */
}
