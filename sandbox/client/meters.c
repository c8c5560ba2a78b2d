#include "cove/meters.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"

#define METERS_MAGIC 0x534554454d45564full
enum { METERS_VERSION = 4, PACE_SLOTS = 4096, PACE_PROBES = 16 };

const uint32_t meter_bounds_ms[METER_BUCKETS] = { 1,   2,   5,    10,   25,   50,    100,
                                                  250, 500, 1000, 2500, 5000, 10000, 60000 };

/*
 * The pace of one caller as a single number: the time at which all that it has called so far would
 * have been due ("generic cell rate algorithm"). One compare-and-swap admits a call; there is no
 * lock and no half-written state.
 */
struct pace {
    _Atomic uint64_t who; /* a hash, 0: free */
    _Atomic uint64_t due_us;
};

struct dialect_meter {
    _Atomic uint64_t replies[METER_STATUS_MAX];
    _Atomic uint64_t buckets[METER_BUCKETS + 1];
    _Atomic uint64_t sum_ms;
};

struct meters_head {
    uint64_t magic, version, size;
};

struct meters {
    struct meters_head head;
    struct dialect_meter dialects[METER_DIALECTS];
    struct pace paces[PACE_SLOTS];
    struct notes notes;
    struct endings endings;
    struct replays replays;
};

/* ------------------------------------------------------------------ the file */

static bool head_is_ours(const struct meters_head *h)
{
    return h->magic == METERS_MAGIC && h->version == METERS_VERSION &&
           h->size == sizeof(struct meters);
}

/* Reads through the descriptor: the keeper must not touch mapped pages of a file that workers can cut short. */
static bool file_is_ours(int fd)
{
    struct meters_head h;
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_size == (off_t)sizeof(struct meters) &&
           pread(fd, &h, sizeof(h), 0) == sizeof(h) && head_is_ours(&h);
}

static int set_up(int fd)
{
    const struct meters_head h = { METERS_MAGIC, METERS_VERSION, sizeof(struct meters) };

    if (ftruncate(fd, sizeof(struct meters)) < 0 || pwrite(fd, &h, sizeof(h), 0) != sizeof(h))
        return -1;
    return 0;
}

int meters_make(const char *path, gid_t worker_gid, struct cove_err *e)
{
    AUTO_CLOSE int old = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW), fd = -1;
    AUTO_FREE char *aside = NULL;

    if (old >= 0 && file_is_ours(old))
        return 0;
    if (asprintf(&aside, "%s.new", path) < 0)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    unlink(aside);
    fd = open(aside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || set_up(fd) < 0 || fchown(fd, (uid_t)-1, worker_gid) < 0 || fchmod(fd, 0660) < 0 ||
        rename(aside, path) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    return 0;
}

/* The keeper has made a file of this version. If the file is of another kind now, a hostile worker has
 * spoilt it. It is mended here, because otherwise no worker could start again. */
int meters_attach(const char *path, struct meters **ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    void *at;

    if (fd < 0 || (!file_is_ours(fd) && set_up(fd) < 0))
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    at = mmap(NULL, sizeof(struct meters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return cove_fail_errno(e, COVE_INTERNAL, "mapping the meters");
    *ret = at;
    return 0;
}

void meters_close(struct meters *m)
{
    if (m)
        munmap(m, sizeof(*m));
}

struct notes *meters_notes(struct meters *m)
{
    return &m->notes;
}

struct endings *meters_endings(struct meters *m)
{
    return &m->endings;
}

struct replays *meters_replays(struct meters *m)
{
    return &m->replays;
}

/* ------------------------------------------------------------------ requests */

static void add(_Atomic uint64_t *at, uint64_t n)
{
    atomic_fetch_add_explicit(at, n, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

void meters_request(struct meters *m, uint32_t dialect, int status, uint64_t duration_ms)
{
    struct dialect_meter *d = &m->dialects[dialect < METER_DIALECTS ? dialect : 0];
    size_t bucket = 0;

    while (bucket < METER_BUCKETS && duration_ms > meter_bounds_ms[bucket])
        bucket++;
    add(&d->replies[status > 0 && status < METER_STATUS_MAX ? status : 0], 1);
    add(&d->buckets[bucket], 1);
    add(&d->sum_ms, duration_ms);
}

uint64_t meters_replies(const struct meters *m, uint32_t dialect, int status)
{
    return dialect < METER_DIALECTS && status >= 0 && status < METER_STATUS_MAX
               ? get(&m->dialects[dialect].replies[status])
               : 0;
}

void meters_histogram(const struct meters *m, uint32_t dialect, struct meter_histogram *ret)
{
    *ret = (struct meter_histogram){ 0 };
    if (dialect >= METER_DIALECTS)
        return;
    for (size_t i = 0; i <= METER_BUCKETS; i++)
        ret->buckets[i] = get(&m->dialects[dialect].buckets[i]);
    ret->sum_ms = get(&m->dialects[dialect].sum_ms);
}

/* ------------------------------------------------------------------ pace */

/* A caller whose time lies in the past has nothing to remember, so its slot may go to another caller. */
static struct pace *find_pace(struct meters *m, uint64_t who, uint64_t now_us)
{
    struct pace *idle = NULL;

    for (uint32_t i = 0; i < PACE_PROBES; i++) {
        struct pace *p = &m->paces[(who + i) % PACE_SLOTS];

        if (get(&p->who) == who)
            return p;
        if (!idle && get(&p->due_us) < now_us)
            idle = p;
    }
    if (idle) {
        uint64_t before = get(&idle->who);

        if (!atomic_compare_exchange_strong(&idle->who, &before, who) && before != who)
            return NULL;
    }
    return idle;
}

uint64_t meters_admit(struct meters *m, const char *kind, const char *who, uint64_t per_second,
                      uint64_t now_us)
{
    uint64_t step_us = 1000000 / per_second, burst_us = 1000000 - step_us;
    uint64_t hash = text_hash_part(text_hash_part(TEXT_HASH_START, kind), who) | 1;
    struct pace *p = find_pace(m, hash, now_us);
    uint64_t due = p ? get(&p->due_us) : 0, from;

    if (!p)
        return 0; /* more callers than slots: admitting one call is better than refusing the wrong caller */
    do {
        from = due > now_us ? due : now_us;
        if (from - now_us > burst_us)
            return (from - now_us - burst_us) / 1000 + 1;
    } while (!atomic_compare_exchange_weak(&p->due_us, &due, from + step_us));
    return 0;
}
