/*
 * Fair shares of the cpu. The kernel divides it equally between sandboxes that want it, so next to
 * one that never stops a short command takes twice its time or more. So a sandbox that has kept a
 * cpu busy for a while steps back: its weight falls to a tenth, and whoever has been quiet comes
 * first. Several busy ones still share equally, and alone on the machine a busy one loses nothing.
 * When it has calmed down it gets its weight back.
 */
#include "sandbox/keeper/keeper_private.h"

enum {
    LOOK_EVERY_MS = 1000,
    BUSY_PERMILLE = 200, /* of one cpu, since the last look */
    CALM_PERMILLE = 100,
    STEP_BACK = 10,
};

static bool is_running(const struct box *b)
{
    return !b->dead && (b->info.state == BOX_LIVE || b->info.state == BOX_AGEING);
}

static void look_at(struct keeper *k, struct box *b, uint64_t elapsed_ms)
{
    uint64_t before = b->cpu_us, permille, weight = b->limits.cpu_weight;
    bool busy;

    b->cpu_us = cgroup_cpu_usec(&k->cgroups, b->info.id);
    if (before == 0 || b->cpu_us < before || weight == 0)
        return; /* the first look, or one that an earlier keeper made */
    permille = (b->cpu_us - before) / elapsed_ms;
    busy = permille >= (b->busy ? CALM_PERMILLE : BUSY_PERMILLE);
    if (busy == b->busy)
        return;
    weight = busy ? weight / STEP_BACK : weight;
    if (cgroup_weigh_box(&k->cgroups, b->info.id, weight ? weight : 1, NULL) == 0)
        b->busy = busy;
}

void cpu_shares_tick(struct keeper *k, uint64_t now)
{
    uint64_t elapsed_ms = now - k->fair_at_ms;

    if (elapsed_ms < LOOK_EVERY_MS)
        return;
    k->fair_at_ms = now;
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (is_running(&k->boxes[i]))
            look_at(k, &k->boxes[i], elapsed_ms);
}
