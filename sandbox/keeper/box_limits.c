/*
 * What a sandbox gets of memory, processes, cpu and disk. A sandbox of the pool was made before anybody knew
 * whose it would be: when it is claimed, its cgroup takes the claimant's limits, which is a few small writes.
 * Its disk and the cpus that it sees cannot change any more, so a claimant whose limits differ there gets a
 * sandbox that is built on demand.
 */

#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/quota.h"

void box_limits_resolve(const struct keeper *k, const char *template_name, const char *tenant,
                        struct limits *ret)
{
    uint64_t all = *tenant ? quota_disk(k, tenant) : 0;

    limits_resolve(&k->config, &k->templates, template_name, &k->tenants, tenant, ret);
    if (all && (!ret->disk_max_bytes || all < ret->disk_max_bytes))
        ret->disk_max_bytes = all; /* a single sandbox may hold no more than the whole quota */
}

void box_limits_narrow(const struct snapshot *s, struct limits *l)
{
    if (s && s->manifest)
        limits_narrow(l, s->manifest->cpus, s->manifest->memory_bytes);
}

struct cgroup_limits box_limits_cgroup(const struct limits *l)
{
    return (struct cgroup_limits){
        .memory_bytes = l->memory_max_bytes,
        .pids = l->pids_max,
        .cpu_percent = l->cpu_percent,
        .cpu_weight = l->cpu_weight,
    };
}

uint32_t box_limits_cpus(const struct limits *l)
{
    return (uint32_t)((l->cpu_percent + 99) / 100);
}

bool box_limits_fit(const struct limits *has, const struct limits *want)
{
    return has->disk_max_bytes == want->disk_max_bytes && has->inodes_max == want->inodes_max &&
           box_limits_cpus(has) == box_limits_cpus(want);
}

static bool same_cgroup(const struct limits *a, const struct limits *b)
{
    return a->memory_max_bytes == b->memory_max_bytes && a->pids_max == b->pids_max &&
           a->cpu_percent == b->cpu_percent && a->cpu_weight == b->cpu_weight;
}

int box_limits_apply(struct keeper *k, struct box *b, const struct limits *want, struct cove_err *e)
{
    struct cgroup_limits limits = box_limits_cgroup(want);

    if (!same_cgroup(&b->limits, want) && cgroup_limit_box(&k->cgroups, b->info.id, &limits, e) < 0)
        return -1;
    b->limits = *want;
    return 0;
}
