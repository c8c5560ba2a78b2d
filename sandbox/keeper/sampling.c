/*
 * Measures what running sandboxes use and writes it down (cove/samples.h). The keeper does this because only
 * root can see all cgroups and disks. Each sandbox is due at a time of its own, counted from its start, so that
 * they are not all measured in the same moment.
 */
#include "cove/samples.h"

#include <stdio.h>

#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/quota.h"

enum { SEARCH_EVERY_MS = 100, IDLE_AFTER = 3, IDLE_ONE_OF = 6 };

int sampling_setup(struct keeper *k, struct cove_err *e)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/samples", k->config.run_dir);
    return samples_open(path, k->worker_gid, state_box_count(k->state), &k->samples_fd, e);
}

/* While no process of a sandbox runs, only uploads by its client change what it uses, and a disk reports its
 * usage late. So the first few looks at an idle sandbox measure everything, and after that only one look in
 * several. */
static bool is_whole_look(const struct box *b)
{
    return b->idle_looks < IDLE_AFTER || b->idle_looks % IDLE_ONE_OF == 0;
}

static void look_at(struct keeper *k, struct box *b)
{
    uint64_t cpu_us = cgroup_cpu_usec(&k->cgroups, b->info.id);

    b->idle_looks = b->sampled_ms && cpu_us == b->look.cpu_us ? b->idle_looks + 1 : 0;
    b->look.unix_ms = clock_unix_ms();
    b->look.cpu_us = cpu_us;
    if (!is_whole_look(b))
        return;
    b->look.disk_bytes = disk_used(&k->disk, b->info.id, (pid_t)b->info.init_pid);
    cgroup_memory_bytes(&k->cgroups, b->info.id, &b->look.memory_bytes, &b->look.cache_bytes);
    /* A sandbox in which no process runs sends nothing, and nobody outside can reach it unasked. */
    if (b->idle_looks == 0 && k->net.rules.mode != NET_NONE)
        net_traffic(&k->net, (uint32_t)(b - k->boxes), &b->look.received_bytes,
                    &b->look.sent_bytes);
}

void sampling_tick(struct keeper *k, uint64_t now)
{
    struct box *b;

    if (k->samples_fd <= 0 || now - k->sampling_ms < SEARCH_EVERY_MS)
        return; /* unit tests have no such file */
    k->sampling_ms = now;
    TAILQ_FOREACH(b, &k->found.places[PLACE_OWNED], in_place)
    {
        if (b->dead || (b->info.state != BOX_LIVE && b->info.state != BOX_AGEING) ||
            (b->sampled_ms && now - b->sampled_ms < SAMPLE_EVERY_MS))
            continue;
        look_at(k, b);
        b->sampled_ms = now;
        /* If this fails, only a sample is missing. */
        samples_add(k->samples_fd, (uint32_t)(b - k->boxes), b->info.generation, &b->look);
    }
}
