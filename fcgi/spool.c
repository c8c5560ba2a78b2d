#include "fcgi/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cove/names.h"
#include "cove/text.h"

enum {
    TENANT_SPOOLS = SPOOLS / 2, /* spool files that one tenant may use at a time */
    CHECK_BYTES = 1 << 20,      /* free space is looked at once in so many bytes */
};

struct slot {
    int fd;
    char tenant[COVE_TENANT_MAX]; /* "" = free */
    uint64_t bytes;
};

static struct {
    pthread_mutex_t lock;
    bool ready;
    uint64_t reserve_bytes; /* stays free on the file system */
    struct slot slots[SPOOLS];
} spools = { .lock = PTHREAD_MUTEX_INITIALIZER };

int spool_init(int dir, uint64_t reserve_bytes, struct cove_err *e)
{
    spools.reserve_bytes = reserve_bytes;
    for (int i = 0; i < SPOOLS; i++) {
        spools.slots[i].fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (spools.slots[i].fd < 0)
            return cove_fail_errno(e, COVE_UNSUPPORTED, "a spool file for uploads");
    }
    spools.ready = true;
    return 0;
}

/* ------------------------------------------------------------------ taking one */

static struct slot *find_free_locked(const char *tenant)
{
    struct slot *free_one = NULL;
    int held = 0;

    for (int i = 0; i < SPOOLS; i++) {
        if (!*spools.slots[i].tenant)
            free_one = &spools.slots[i];
        else
            held += strcmp(spools.slots[i].tenant, tenant) == 0;
    }
    return held < TENANT_SPOOLS ? free_one : NULL;
}

int spool_take(const char *tenant, uint64_t most, uint64_t tenant_most, struct spool *ret,
               struct cove_err *e)
{
    struct slot *slot = NULL;

    pthread_mutex_lock(&spools.lock);
    if (spools.ready && (slot = find_free_locked(tenant)))
        text_copy(slot->tenant, sizeof(slot->tenant), tenant);
    pthread_mutex_unlock(&spools.lock);
    if (!slot)
        return cove_fail(e, COVE_BUSY,
                         "too many uploads at once whose file comes before sandbox_id and "
                         "file_path; send these fields first, or try again");
    slot->bytes = 0;
    *ret = (struct spool){
        .slot = (int)(slot - spools.slots),
        .fd = slot->fd,
        .most =
            tenant_most && tenant_most / TENANT_SPOOLS < most ? tenant_most / TENANT_SPOOLS : most,
    };
    return 0;
}

/* ------------------------------------------------------------------ filling it */

static int check_space(int fd, struct cove_err *e)
{
    struct statvfs fs;

    if (fstatvfs(fd, &fs) == 0 && fs.f_bavail * fs.f_frsize > spools.reserve_bytes)
        return 0;
    return cove_fail(e, COVE_BUSY, "no disk space to keep the upload, try again later");
}

int spool_write(struct spool *s, const char *bytes, size_t len, struct cove_err *e)
{
    char size[32];

    if (len > s->most - s->written) {
        text_format_bytes(s->most, size);
        return cove_fail(e, COVE_TOO_LARGE, "file: larger than %s", size);
    }
    while (len > 0) {
        ssize_t n;

        if (s->written % CHECK_BYTES < len && check_space(s->fd, e) < 0)
            return -1;
        n = pwrite(s->fd, bytes, len, (off_t)s->written);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cove_fail_errno(e, COVE_BUSY, "keeping the upload");
        bytes += n;
        len -= (size_t)n;
        s->written += (uint64_t)n;
    }
    return 0;
}

void spool_release(struct spool *s)
{
    if (s->slot < 0)
        return;
    /* If the file cannot be emptied, this slot is not used again: its content must not reach another tenant. */
    if (ftruncate(s->fd, 0) < 0)
        return;
    pthread_mutex_lock(&spools.lock);
    spools.slots[s->slot].tenant[0] = '\0';
    pthread_mutex_unlock(&spools.lock);
    s->slot = -1;
}
