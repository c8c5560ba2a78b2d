#include "cove/samples.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"

enum { READ_TRIES = 5, MS_PER_S = 1000, HEAD_BYTES = offsetof(struct sample_ring, samples) };

static off_t place(uint32_t slot)
{
    return (off_t)slot * (off_t)sizeof(struct sample_ring);
}

/* ------------------------------------------------------------------ the keeper's side */

int samples_open(const char *path, gid_t worker_gid, uint32_t slots, int *ret_fd,
                 struct cove_err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 ||
        (st.st_size != place(slots) && (ftruncate(fd, 0) < 0 || ftruncate(fd, place(slots)) < 0)) ||
        fchown(fd, (uid_t)-1, worker_gid) < 0 || fchmod(fd, 0640) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    *ret_fd = take_fd(&fd);
    return 0;
}

/* Drops every second sample. */
static int thin_out(int fd, uint32_t slot, struct sample_ring *head)
{
    struct sample_ring r;

    if (pread(fd, &r, sizeof(r), place(slot)) != sizeof(r))
        return -1;
    for (uint32_t i = 0; i < SAMPLES_MAX / 2; i++)
        r.samples[i] = r.samples[2 * i + 1];
    head->count = SAMPLES_MAX / 2;
    head->every *= 2;
    memcpy(&r, head, HEAD_BYTES);
    return pwrite(fd, &r, sizeof(r), place(slot)) == sizeof(r) ? 0 : -1;
}

/* By how much a growing figure has grown per millisecond, times `unit`. 0: there is no earlier figure to
 * compare with. */
static uint32_t rate(const struct sample_ring *head, const struct sample_look *look,
                     uint64_t before, uint64_t now, uint64_t unit)
{
    uint64_t rate;

    if (!head->last_unix_ms || look->unix_ms <= head->last_unix_ms || now < before)
        return 0;
    rate = (now - before) * unit / (look->unix_ms - head->last_unix_ms);
    return rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
}

static int keep(int fd, uint32_t slot, struct sample_ring *head, const struct sample *sample)
{
    off_t at = place(slot) + HEAD_BYTES;

    if (head->count == SAMPLES_MAX && thin_out(fd, slot, head) < 0)
        return -1;
    at += (off_t)head->count * (off_t)sizeof(*sample);
    head->count++;
    return pwrite(fd, sample, sizeof(*sample), at) == sizeof(*sample) ? 0 : -1;
}

int samples_add(int fd, uint32_t slot, uint32_t generation, const struct sample_look *look)
{
    struct sample_ring head;
    struct sample sample = {
        .unix_ms = look->unix_ms,
        .memory_bytes = look->memory_bytes,
        .cache_bytes = look->cache_bytes,
        .disk_bytes = look->disk_bytes,
    };

    if (pread(fd, &head, HEAD_BYTES, place(slot)) != HEAD_BYTES)
        return -1;
    if (head.generation != generation || head.count > SAMPLES_MAX || head.every == 0)
        head = (struct sample_ring){ .generation = generation, .every = 1 };
    sample.cpu_permille = rate(&head, look, head.last_cpu_us, look->cpu_us, 1);
    sample.received_bps =
        rate(&head, look, head.last_received_bytes, look->received_bytes, MS_PER_S);
    sample.sent_bps = rate(&head, look, head.last_sent_bytes, look->sent_bytes, MS_PER_S);
    if (++head.skipped >= head.every) {
        head.skipped = 0;
        if (keep(fd, slot, &head, &sample) < 0)
            return -1;
        head.last_unix_ms = look->unix_ms; /* the next sample covers all the time in between */
        head.last_cpu_us = look->cpu_us;
        head.last_received_bytes = look->received_bytes;
        head.last_sent_bytes = look->sent_bytes;
    }
    return pwrite(fd, &head, HEAD_BYTES, place(slot)) == HEAD_BYTES ? 0 : -1;
}

/* ------------------------------------------------------------------ the workers' side */

/* The keeper may write meanwhile, so the file is read until two reads agree. */
int samples_read(const char *path, uint32_t slot, uint32_t generation, struct sample_ring *ret,
                 struct cove_err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct sample_ring again;

    if (fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    for (int i = 0; i < READ_TRIES; i++) {
        if (pread(fd, ret, sizeof(*ret), place(slot)) != sizeof(*ret) ||
            pread(fd, &again, sizeof(again), place(slot)) != sizeof(again))
            break;
        if (memcmp(ret, &again, sizeof(again)) != 0)
            continue;
        if (ret->generation != generation || ret->count > SAMPLES_MAX)
            ret->count = 0;
        return 0;
    }
    return cove_fail(e, COVE_BUSY, "the samples change too fast to be read");
}
