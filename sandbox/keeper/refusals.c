/*
 * The last commands that were refused in each sandbox, for whoever looks at it in the console. The audit
 * log has all of them, but it is root's. These few are kept in memory alone, in a ring for each slot of the
 * table of sandboxes, and are gone with the keeper.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

struct refusal_ring {
    char id[24]; /* the sandbox that these refusals belong to */
    uint32_t count;
    struct keeper_refusal items[KEEPER_REFUSALS_MAX];
};

static struct refusal_ring *ring_of(struct keeper *k, const struct box *b)
{
    if (!k->refusals) /* made at the first refusal; pages that nobody writes to cost nothing */
        k->refusals = calloc(state_box_count(k->state), sizeof(*k->refusals));
    return k->refusals ? &k->refusals[b - k->boxes] : NULL;
}

void refusals_note(struct keeper *k, const struct audit_entry *entry)
{
    bool is_one = strcmp(entry->event, "refused") == 0 || strcmp(entry->event, "exec-denied") == 0;
    const struct box *b = is_one && entry->sandbox ? boxes_by_id(k, entry->sandbox) : NULL;
    struct refusal_ring *ring = b ? ring_of(k, b) : NULL;
    struct keeper_refusal *r;

    if (!ring || strcmp(b->info.tenant, entry->tenant) != 0)
        return;
    if (strcmp(ring->id, b->info.id) != 0) {
        *ring = (struct refusal_ring){ 0 };
        text_copy(ring->id, sizeof(ring->id), b->info.id);
    }
    r = &ring->items[ring->count++ % KEEPER_REFUSALS_MAX];
    *r = (struct keeper_refusal){ .unix_ms = clock_unix_ms() };
    text_copy(r->event, sizeof(r->event), entry->event);
    text_copy(r->rule, sizeof(r->rule), entry->rule ? entry->rule : "");
    text_copy(r->form, sizeof(r->form), entry->form ? entry->form : "");
    text_copy(r->command, sizeof(r->command), entry->command); /* cut to its beginning */
}

void refusals_list(struct keeper *k, const char *tenant, const char *id,
                   struct keeper_refusal_list *ret)
{
    const struct box *b = boxes_by_id(k, id);
    const struct refusal_ring *ring = b && k->refusals ? &k->refusals[b - k->boxes] : NULL;
    uint32_t first;

    *ret = (struct keeper_refusal_list){ 0 };
    if (!ring || strcmp(b->info.tenant, tenant) != 0 || strcmp(ring->id, id) != 0)
        return;
    first = ring->count > KEEPER_REFUSALS_MAX ? ring->count - KEEPER_REFUSALS_MAX : 0;
    for (uint32_t i = ring->count; i-- > first;) /* the newest first */
        ret->items[ret->count++] = ring->items[i % KEEPER_REFUSALS_MAX];
}
