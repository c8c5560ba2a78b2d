/*
 * How many sandboxes the pool keeps ready, and of which template. Each claim of a new sandbox counts as one,
 * and as half of that after every ten seconds. The sum is how many sandboxes of that template are kept ready,
 * between `pool` (for the default template; 0 for all others) and `pool_max` (for all templates together). So a
 * burst makes the pool grow for a minute, and a template that nobody asks for costs nothing.
 */
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"

enum { HALF_LIFE_MS = 10000 };

/* Between two halvings a straight line is near enough. */
static double cooled(const struct demand *d, uint64_t now)
{
    uint64_t age = now > d->at_ms ? now - d->at_ms : 0, halvings = age / HALF_LIFE_MS;
    double part = (double)(age % HALF_LIFE_MS) / HALF_LIFE_MS;

    return halvings >= 32 ? 0 : d->heat / (double)(1ULL << halvings) * (1 - part / 2);
}

static struct demand *find(struct keeper *k, const char *template_name)
{
    for (size_t i = 0; i < ARRAY_SIZE(k->demands); i++)
        if (strcmp(k->demands[i].template, template_name) == 0)
            return &k->demands[i];
    return NULL;
}

static struct demand *coldest(struct keeper *k, uint64_t now)
{
    struct demand *d = &k->demands[0];

    for (size_t i = 1; i < ARRAY_SIZE(k->demands); i++)
        if (cooled(&k->demands[i], now) < cooled(d, now))
            d = &k->demands[i];
    return d;
}

void demand_note(struct keeper *k, const char *template_name)
{
    uint64_t now = clock_boot_ms();
    struct demand *d = find(k, template_name);

    if (!d) {
        d = coldest(k, now);
        *d = (struct demand){ .at_ms = now };
        text_copy(d->template, sizeof(d->template), template_name);
    }
    d->heat = cooled(d, now) + 1;
    d->at_ms = now;
}

void demand_forget(struct keeper *k, const char *template_name)
{
    struct demand *d = find(k, template_name);

    if (d)
        d->heat = 0;
}

/* The pool never takes more than half of all slots: the others are for templates that it has not got ready. */
static uint64_t within_half(const struct keeper *k, uint64_t count)
{
    uint64_t half = (k->config.max_sandboxes + 1) / 2;

    return count < half ? count : half;
}

/* How many of the default template are always ready. */
static uint64_t least(const struct keeper *k)
{
    return within_half(k, k->config.pool);
}

/* The most that the pool may hold. With `pool = 0` nothing is made ahead, whatever the demand. */
static uint64_t most(const struct keeper *k)
{
    if (k->config.pool == 0)
        return 0;
    return within_half(k,
                       k->config.pool_max > k->config.pool ? k->config.pool_max : k->config.pool);
}

uint64_t demand_target(const struct keeper *k, const char *template_name, uint64_t now)
{
    uint64_t always = strcmp(template_name, k->config.template) == 0 ? least(k) : 0, want = 0;

    for (size_t i = 0; i < ARRAY_SIZE(k->demands); i++)
        if (strcmp(k->demands[i].template, template_name) == 0)
            want = (uint64_t)(cooled(&k->demands[i], now) + 0.5);
    if (want > most(k))
        want = most(k);
    return want > always ? want : always;
}

static uint64_t count_in(const struct keeper *k, enum box_place place, const char *template_name)
{
    const struct box *b;
    uint64_t count = 0;

    TAILQ_FOREACH(b, &k->found.places[place], in_place)
    count += strcmp(b->info.template, template_name) == 0;
    return count;
}

uint64_t demand_spare(const struct keeper *k, const char *template_name)
{
    return count_in(k, PLACE_SPARE, template_name) + count_in(k, PLACE_RAW, template_name);
}

static bool wants_more(const struct keeper *k, const char *template_name, uint64_t now)
{
    return demand_spare(k, template_name) < demand_target(k, template_name, now);
}

/* The default template comes first, because every tenant uses it. */
const char *demand_next(const struct keeper *k, uint64_t now)
{
    bool full = k->found.counts[PLACE_SPARE] + k->found.counts[PLACE_RAW] >= most(k);

    if (demand_spare(k, k->config.template) < least(k))
        return k->config.template;
    if (full)
        return NULL;
    if (wants_more(k, k->config.template, now))
        return k->config.template;
    for (size_t i = 0; i < ARRAY_SIZE(k->demands); i++)
        if (k->demands[i].template[0] && wants_more(k, k->demands[i].template, now))
            return k->demands[i].template;
    return NULL;
}

const struct box *demand_surplus(const struct keeper *k, uint64_t now)
{
    const struct box *b;

    TAILQ_FOREACH(b, &k->found.places[PLACE_SPARE], in_place)
    if (demand_spare(k, b->info.template) > demand_target(k, b->info.template, now))
        return b;
    return NULL;
}
