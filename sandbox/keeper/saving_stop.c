/* The server stops for good: frozen sandboxes go to the store before all others end. */
#include "cove/log.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/store.h"

static bool outlives_stop(const struct keeper *k, const struct box *b)
{
    return b->info.state == BOX_FROZEN && !b->saving && saving_loses_nothing(k, &b->info);
}

static unsigned begin_all(struct keeper *k)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct cove_err err = { 0 };

        if (!outlives_stop(k, &k->boxes[i]))
            continue;
        if (saving_begin(k, i, NULL, &err) < 0)
            log_error("a frozen sandbox could not be saved and ends with the server", &err,
                      LOG_S("sandbox", k->boxes[i].info.id));
        else
            count++;
    }
    return count;
}

static unsigned still_saving(struct keeper *k, uint64_t now)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        if (k->boxes[i].saving && now >= saving_due_ms(&k->boxes[i]))
            saving_tick(k, i, now);
        count += k->boxes[i].saving != NULL;
    }
    return count;
}

static void tell_of_rest(const struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (k->boxes[i].saving)
            log_event(
                LOG_LEVEL_ERROR,
                "a frozen sandbox was not saved in time (save_at_stop) and ends with the server",
                LOG_S("sandbox", k->boxes[i].info.id), LOG_S("tenant", k->boxes[i].info.tenant));
}

void saving_before_stop(struct keeper *k)
{
    uint64_t until = clock_boot_ms() + k->config.save_at_stop_ms, now;
    unsigned count = k->config.save_at_stop_ms ? begin_all(k) : 0;

    if (count)
        log_event(LOG_LEVEL_INFO, "saving frozen sandboxes before the server stops",
                  LOG_N("count", count));
    while ((now = clock_boot_ms()) < until && still_saving(k, now))
        loop_turn(&k->loop, 10);
    tell_of_rest(k);
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        saving_cancel(k, i, "the server stops");
}
