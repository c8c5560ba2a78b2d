/* How many sandboxes a tenant may have, and how much disk in all of them: counted where they are
 * made, so that no number of workers can race past it. */
#include <string.h>

#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/quota.h"

struct tally {
    uint64_t current; /* sandboxes of the tenant's other projects */
    uint64_t ending;  /* sandboxes that are no longer used and have not ended yet */
};

/* The sandboxes of this tenant, or only those of them that were claimed with `key`. */
static struct tally count_boxes(const struct keeper *k, const char *tenant, const char *project,
                                const char *key)
{
    struct tally t = { 0 };

    for (const struct box *b = boxes_of_tenant(k, tenant); b; b = LIST_NEXT(b, same_tenant)) {
        bool building = b->info.state == BOX_BUILDING && b->promised;
        bool owned = b->info.state == BOX_LIVE || b->info.state == BOX_FROZEN || building;

        if (b->dead || strcmp(b->info.tenant, tenant) != 0 ||
            (key && strcmp(b->info.key, key) != 0))
            continue;
        if (b->info.state == BOX_AGEING)
            t.ending++;
        else if (owned && strcmp(b->info.project, project) != 0)
            t.current++;
    }
    return t;
}

static int refuse(struct keeper *k, const char *whose, uint64_t have, const char *what,
                  struct cove_err *e)
{
    state_count(k->state, STATE_KEEPER, COUNT_LIMIT_SANDBOXES, 1);
    return cove_fail(e, COVE_QUOTA, "quota: this %s has %llu sandboxes%s, and may have no more",
                     whose, (unsigned long long)have, what);
}

/* key: NULL for all sandboxes of the tenant. They are counted one by one, so only if there are so many of all tenants
 * together that the limit can be reached. */
static int check(struct keeper *k, const char *whose, const struct keeper_claim *args,
                 const char *key, uint64_t limit, struct cove_err *e)
{
    struct tally t;

    if (!limit || state_box_count(k->state) - k->found.counts[PLACE_FREE] < limit)
        return 0;
    t = count_boxes(k, args->tenant, args->project, key);
    if (t.current >= limit)
        return refuse(k, whose, t.current, "", e);
    if (t.ending >= limit)
        return refuse(k, whose, t.ending, " that wait for their end", e);
    return 0;
}

static uint64_t count_all(const struct keeper *k, const char *tenant)
{
    struct tally t = count_boxes(k, tenant, "", NULL);

    return t.current + t.ending;
}

/*
 * Without a quota a tenant gets another sandbox while it has fewer than SHARE times as many as are free. So a tenant
 * that takes all it can get, while no other does, has three quarters of all. Several such tenants have a part of that
 * each, and the last free sandbox goes to a tenant that has fewer than three. Servers with fewer than four sandboxes
 * have no such share, and neither have servers that know one tenant only: nobody else could use the rest.
 */
enum { SHARE = 3 };

static bool has_one_tenant(const struct keeper *k)
{
    return k->keys_of_one_tenant && !k->config.pam_service[0];
}

static int check_share(struct keeper *k, const char *tenant, struct cove_err *e)
{
    const uint32_t *counts = k->found.counts;
    uint64_t taken = counts[PLACE_OWNED] + counts[PLACE_DYING] + counts[PLACE_DEAD];
    uint64_t most = k->config.max_sandboxes, left = most > taken ? most - taken : 0, have;

    if (left == 0 || counts[PLACE_OWNED] < SHARE * left || has_one_tenant(k))
        return 0; /* if none is free, creation.c says so */
    have = count_all(k, tenant);
    if (have < SHARE * left)
        return 0;
    state_count(k->state, STATE_KEEPER, COUNT_LIMIT_SANDBOXES, 1);
    return cove_fail(e, COVE_QUOTA,
                     "quota: this tenant has %llu sandboxes, and the last free ones are kept for "
                     "other tenants (tenant_sandboxes)",
                     (unsigned long long)have);
}

static int check_processes(struct keeper *k, const char *tenant, struct cove_err *e)
{
    if (!process_shares_holds(k, tenant))
        return 0;
    state_count(k->state, STATE_KEEPER, COUNT_LIMIT_PROCESSES, 1);
    return cove_fail(e, COVE_QUOTA,
                     "quota: this tenant's sandboxes run more than half of the processes that the "
                     "server can have");
}

static uint64_t disk_of(const struct keeper *k, const char *tenant)
{
    uint64_t sum;

    snapshots_count(k, tenant, &sum);
    for (const struct box *b = boxes_of_tenant(k, tenant); b; b = LIST_NEXT(b, same_tenant))
        if (strcmp(b->info.tenant, tenant) == 0)
            sum += disk_used(&k->disk, b->info.id, (pid_t)b->info.init_pid);
    return sum;
}

static int check_disk(struct keeper *k, const char *tenant, uint64_t limit, struct cove_err *e)
{
    uint64_t used = limit ? disk_of(k, tenant) : 0;

    if (used < limit || !limit)
        return 0;
    state_count(k->state, STATE_KEEPER, COUNT_LIMIT_DISK, 1);
    return cove_fail(
        e, COVE_QUOTA,
        "quota: this tenant's sandboxes and snapshots hold %llu MiB on disk, and may hold %llu",
        (unsigned long long)(used >> 20), (unsigned long long)(limit >> 20));
}

uint64_t quota_disk(const struct keeper *k, const char *tenant)
{
    const struct quota defaults = { .disk = k->config.tenant_disk_bytes };

    return tenants_quota(&k->tenants, tenant, &defaults).disk;
}

int quota_check_snapshot(struct keeper *k, const char *tenant, struct cove_err *e)
{
    uint64_t bytes, count = snapshots_count(k, tenant, &bytes);

    if (k->config.tenant_snapshots && count >= k->config.tenant_snapshots)
        return cove_fail(e, COVE_QUOTA,
                         "quota: this tenant has %llu snapshots, and may have no more",
                         (unsigned long long)count);
    return check_disk(k, tenant, quota_disk(k, tenant), e);
}

int quota_check_claim(struct keeper *k, const struct keeper_claim *args, struct cove_err *e)
{
    const struct quota defaults = { .sandboxes = k->config.tenant_sandboxes };
    struct quota q = tenants_quota(&k->tenants, args->tenant, &defaults);

    if (check_disk(k, args->tenant, quota_disk(k, args->tenant), e) < 0 ||
        check_processes(k, args->tenant, e) < 0 ||
        (!q.sandboxes && check_share(k, args->tenant, e) < 0))
        return -1;
    if (check(k, "tenant", args, NULL, q.sandboxes, e) < 0)
        return -1;
    return check(k, "key", args, args->key, args->key_sandboxes, e);
}
