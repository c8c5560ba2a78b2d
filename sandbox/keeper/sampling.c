/*
 * Looks at what running sandboxes use and writes it down (cove/samples.h). The keeper does it because
 * only root can see all cgroups and disks. Each sandbox has its own time, counted from its start, so
 * that not all of them are looked at in the same moment.
 */
#include "cove/samples.h"

#include <stdio.h>

#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

int sampling_setup(struct keeper *k, struct cove_err *e)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/samples", k->config.run_dir);
    return samples_open(path, k->worker_gid, state_box_count(k->state), &k->samples_fd, e);
}

static void sample(struct keeper *k, uint32_t i)
{
    const struct box_info *info = &k->boxes[i].info;
    struct sample_look look = {
        .unix_ms = clock_unix_ms(),
        .cpu_us = cgroup_cpu_usec(&k->cgroups, info->id),
        .disk_bytes = disk_used(&k->disk, info->id, (pid_t)info->init_pid),
    };

    cgroup_memory_bytes(&k->cgroups, info->id, &look.memory_bytes, &look.cache_bytes);
    samples_add(k->samples_fd, i, info->generation, &look); /* without it a sample is missing */
}

void sampling_tick(struct keeper *k, uint64_t now)
{
    struct box *b;

    if (k->samples_fd <= 0)
        return; /* unit tests have none */
    TAILQ_FOREACH(b, &k->found.places[PLACE_OWNED], in_place)
    {
        if (b->dead || (b->info.state != BOX_LIVE && b->info.state != BOX_AGEING) ||
            (b->sampled_ms && now - b->sampled_ms < SAMPLE_EVERY_MS))
            continue;
        b->sampled_ms = now;
        sample(k, (uint32_t)(b - k->boxes));
    }
}
