/*
 * Which saved sandboxes are kept: saved_keep says for how long, tenant_saved_keep how many of each tenant.
 *
 * The wall clock has no part in that: if it jumped by years, because it was set or because a battery was
 * empty, everything would be too old at once. The keeper counts the time itself, by the clock of the
 * machine that never jumps, and the count goes on with the next keeper. The time in which no keeper runs
 * does not count. A count that is lost or damaged begins again, and then sandboxes are kept longer.
 *
 *   <state_dir>/saved-clock     for how many ms keepers have run with this store; written every minute
 *   <state_dir>/saved/ID/since  what that clock showed when the sandbox was saved or came here
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

enum { LOOK_EVERY_MS = 60000, COUNT_LEN = 20 };

/* ------------------------------------------------------------------ the time that counts */

static bool read_count(int dir, const char *name, uint64_t *ret)
{
    char text[COUNT_LEN + 2];

    return read_file_at(dir, name, text, sizeof(text)) == COUNT_LEN &&
           text_parse_u64(text, ret, NULL) == 0;
}

/* Writes the count in place and always with the same length, so that the file is never empty. */
static int write_count(int dir, const char *name, uint64_t count)
{
    AUTO_CLOSE int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    char text[COUNT_LEN + 1];

    snprintf(text, sizeof(text), "%0*" PRIu64, COUNT_LEN, count);
    return fd < 0 || pwrite(fd, text, COUNT_LEN, 0) != COUNT_LEN ? -1 : 0;
}

static uint64_t counted_ms(const struct keeper *k)
{
    return k->retention.counted_ms + (clock_boot_ms() - k->retention.began_ms);
}

void retention_open(struct keeper *k)
{
    k->retention.began_ms = clock_boot_ms();
    if (!read_count(k->state_dir, SAVED_CLOCK, &k->retention.counted_ms))
        k->retention.counted_ms = 0;
}

void retention_note(struct keeper *k, struct saved *s)
{
    AUTO_CLOSE int dir = -1;
    uint64_t now = counted_ms(k);

    if (saved_open_dir(k, s->info.box.id, &dir, NULL) == 0 &&
        read_count(dir, SAVED_SINCE, &s->since_ms) && s->since_ms <= now)
        return;
    s->since_ms = now;
    if (dir < 0 || write_count(dir, SAVED_SINCE, now) < 0)
        log_event(LOG_LEVEL_WARN, "the age of a saved sandbox counts from the keeper's start",
                  LOG_S("sandbox", s->info.box.id));
}

/* ------------------------------------------------------------------ what goes */

/* Is it saved, and does nobody wake it or wait for it to be woken? */
static bool is_at_rest(const struct saved *s)
{
    return s->info.box.state == BOX_SAVED && !(s->info.box.flags & BOX_IS_WAKING) && !s->waiters;
}

static void remove_old(struct keeper *k)
{
    uint64_t now = counted_ms(k), keep = k->config.saved_keep_ms;

    for (uint32_t i = 0; keep && i < saved_places(k); i++) {
        const struct saved *s = &k->saved[i];

        if (is_at_rest(s) && s->since_ms + keep < now)
            saved_remove(k, i, END_EXPIRED, "saved sandbox removed: it is older than saved_keep");
    }
}

/* Sorts by tenant, and the newest of each tenant first. */
static int compare_age(const void *a, const void *b)
{
    const struct saved *x = *(const struct saved *const *)a, *y = *(const struct saved *const *)b;
    int by_tenant = strcmp(x->info.box.tenant, y->info.box.tenant);

    if (by_tenant != 0)
        return by_tenant;
    if (x->since_ms != y->since_ms)
        return x->since_ms > y->since_ms ? -1 : 1;
    return x->info.saved_unix_ms > y->info.saved_unix_ms ? -1 : 1;
}

/* Each tenant keeps its newest saved sandboxes, as many as tenant_saved_keep says. */
static void remove_surplus(struct keeper *k)
{
    uint64_t keep = k->config.tenant_saved_keep;
    AUTO_FREE struct saved **order = keep ? calloc(saved_places(k), sizeof(struct saved *)) : NULL;
    size_t count = 0, first = 0; /* first: where this tenant's saved sandboxes begin */

    for (uint32_t i = 0; order && i < saved_places(k); i++)
        if (is_at_rest(&k->saved[i]))
            order[count++] = &k->saved[i];
    if (count)
        qsort(order, count, sizeof(struct saved *), compare_age);
    for (size_t n = 0; n < count; n++) {
        if (strcmp(order[n]->info.box.tenant, order[first]->info.box.tenant) != 0)
            first = n;
        if (n - first >= keep)
            saved_remove(k, (uint32_t)(order[n] - k->saved), END_EXPIRED,
                         "saved sandbox removed: its tenant has tenant_saved_keep newer ones");
    }
}

void retention_tick(struct keeper *k, uint64_t now)
{
    if (now < k->saved_next_ms)
        return;
    k->saved_next_ms = now + LOOK_EVERY_MS;
    remove_old(k);
    remove_surplus(k);
    if (write_count(k->state_dir, SAVED_CLOCK, counted_ms(k)) < 0)
        log_event(LOG_LEVEL_WARN, "the age of saved sandboxes could not be written down");
}
