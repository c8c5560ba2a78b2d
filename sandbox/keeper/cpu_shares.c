/*
 * Fair shares of the cpu. The kernel divides it equally between sandboxes that want it, so next to
 * one that never stops a short command takes twice its time or more. So a sandbox that has kept a
 * cpu busy for a while steps back: its weight falls to a tenth, and whoever has been quiet comes
 * first. Several busy ones still share equally, and alone on the machine a busy one loses nothing.
 * When it has calmed down it gets its weight back.
 *
 * As long as all sandboxes together use less cpu time than one busy sandbox would, none is looked at. Otherwise
 * the keeper looks at some of them at a time, so that its other work does not wait.
 */
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/quota.h"

enum {
    LOOK_EVERY_MS = 1000,
    LOOK_AT_ONCE = 256,
    BUSY_PERMILLE = 200, /* this much of one cpu, since the last look */
    CALM_PERMILLE = 100,
    STEP_BACK = 10,
};

static bool is_running(const struct box *b)
{
    return !b->dead && (b->info.state == BOX_LIVE || b->info.state == BOX_AGEING);
}

static void look_at(struct keeper *k, struct box *b, uint64_t now)
{
    uint64_t before = b->cpu_us, elapsed_ms = now - b->looked_ms, permille;
    uint64_t weight = b->limits.cpu_weight;
    bool busy;

    b->cpu_us = cgroup_cpu_usec(&k->cgroups, b->info.id);
    b->looked_ms = now;
    if (before == 0 || b->cpu_us < before || weight == 0 || elapsed_ms > 2 * LOOK_EVERY_MS)
        return; /* the last look is too long ago to compare with */
    permille = (b->cpu_us - before) / (elapsed_ms ? elapsed_ms : 1);
    busy = permille >= (b->busy ? CALM_PERMILLE : BUSY_PERMILLE);
    if (busy == b->busy)
        return;
    weight = busy ? weight / STEP_BACK : weight;
    if (cgroup_weigh_box(&k->cgroups, b->info.id, weight ? weight : 1, NULL) == 0)
        b->busy = busy;
}

/* Has anybody been busy, or could anybody have been since the last round? */
static bool is_worth_a_round(struct keeper *k, uint64_t elapsed_ms)
{
    uint64_t before = k->cpu_shares.all_us;

    k->cpu_shares.all_us = cgroup_all_cpu_usec(&k->cgroups);
    return k->cpu_shares.any_busy || k->cpu_shares.all_us < before ||
           (k->cpu_shares.all_us - before) / elapsed_ms >= BUSY_PERMILLE;
}

static void begin_round(struct keeper *k, uint64_t now)
{
    uint64_t elapsed_ms = now - k->cpu_shares.began_ms;

    if (elapsed_ms < LOOK_EVERY_MS)
        return;
    k->cpu_shares.began_ms = now;
    k->cpu_shares.left = is_worth_a_round(k, elapsed_ms) ? state_box_count(k->state) : 0;
    k->cpu_shares.any_busy = false;
}

/* Returns when to call again, which is at once while a round is going on. */
uint64_t cpu_shares_tick(struct keeper *k, uint64_t now, uint64_t next)
{
    if (k->cpu_shares.left == 0)
        begin_round(k, now);
    for (unsigned looks = 0; k->cpu_shares.left > 0 && looks < LOOK_AT_ONCE;) {
        struct box *b = &k->boxes[--k->cpu_shares.left];

        if (!is_running(b))
            continue;
        look_at(k, b, now);
        k->cpu_shares.any_busy |= b->busy;
        looks++;
    }
    return k->cpu_shares.left > 0 ? now : next;
}
