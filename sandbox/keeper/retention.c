/* Which saved sandboxes are kept: saved_keep says for how long, tenant_saved_keep how many of each tenant. */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

enum { LOOK_EVERY_MS = 60000 };

/* Saved, and nobody wakes it or waits for it to be woken. */
static bool is_at_rest(const struct saved *s)
{
    return s->info.box.state == BOX_SAVED && !(s->info.box.flags & BOX_IS_WAKING) && !s->waiters;
}

static void remove_old(struct keeper *k)
{
    uint64_t now_unix = clock_unix_ms(), keep = k->config.saved_keep_ms;

    for (uint32_t i = 0; keep && i < saved_places(k); i++) {
        const struct saved *s = &k->saved[i];

        if (is_at_rest(s) && s->info.saved_unix_ms + keep < now_unix)
            saved_remove(k, i, END_EXPIRED, "saved sandbox removed: it is older than saved_keep");
    }
}

/* By tenant, the newest first. */
static int compare_age(const void *a, const void *b)
{
    const struct saved_info *x = &(*(const struct saved *const *)a)->info;
    const struct saved_info *y = &(*(const struct saved *const *)b)->info;
    int by_tenant = strcmp(x->box.tenant, y->box.tenant);

    if (by_tenant != 0 || x->saved_unix_ms == y->saved_unix_ms)
        return by_tenant;
    return x->saved_unix_ms > y->saved_unix_ms ? -1 : 1;
}

/* Each tenant keeps as many of its newest as tenant_saved_keep says. */
static void remove_surplus(struct keeper *k)
{
    uint64_t keep = k->config.tenant_saved_keep;
    AUTO_FREE struct saved **order = keep ? calloc(saved_places(k), sizeof(struct saved *)) : NULL;
    size_t count = 0, first = 0; /* first: the newest of this tenant, which stays */

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
}
