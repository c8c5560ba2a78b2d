#include "helpers/auth/backoff.h"

#include <string.h>

#include "cove/text.h"

static const struct backoff_slot *find(const struct backoff *b, const char *who)
{
    for (int i = 0; i < BACKOFF_SLOTS; i++)
        if (b->slots[i].failures && strcmp(b->slots[i].who, who) == 0)
            return &b->slots[i];
    return NULL;
}

uint64_t backoff_wait(const struct backoff *b, const char *who, uint64_t now_ms)
{
    const struct backoff_slot *s = find(b, who);

    return s && s->until_ms > now_ms ? s->until_ms - now_ms : 0;
}

/* Returns a free slot, or the one whose wait ended longest ago: a flood of names pushes out slots that hardly
 * matter any more. */
static struct backoff_slot *take(struct backoff *b)
{
    struct backoff_slot *oldest = &b->slots[0];

    for (int i = 0; i < BACKOFF_SLOTS; i++) {
        if (!b->slots[i].failures)
            return &b->slots[i];
        if (b->slots[i].until_ms < oldest->until_ms)
            oldest = &b->slots[i];
    }
    return oldest;
}

void backoff_failed(struct backoff *b, const char *who, uint64_t now_ms)
{
    struct backoff_slot *s = (struct backoff_slot *)find(b, who);
    uint64_t wait_ms = 0;

    if (!s) {
        s = take(b);
        *s = (struct backoff_slot){ 0 };
        text_copy(s->who, sizeof(s->who), who);
    }
    s->failures++;
    if (s->failures > BACKOFF_FREE_TRIES) {
        uint32_t doublings = s->failures - BACKOFF_FREE_TRIES - 1;

        wait_ms = doublings > 9 ? BACKOFF_MAX_MS : 1000ull << doublings;
    }
    s->until_ms = now_ms + (wait_ms > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : wait_ms);
}

void backoff_succeeded(struct backoff *b, const char *who)
{
    struct backoff_slot *s = (struct backoff_slot *)find(b, who);

    if (s)
        *s = (struct backoff_slot){ 0 };
}
