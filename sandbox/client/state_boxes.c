/* Sandboxes in shared memory: their records, the hints by which they are found, and the current generation
 * of policy and keys. Only the keeper writes here. */
#include <assert.h>
#include <string.h>

#include "cove/text.h"
#include "sandbox/client/state_private.h"

enum { HINT_PROBES = 16 };

uint32_t state_box_count(const struct state *s)
{
    return s->geometry.boxes;
}

void state_box_read(const struct state *s, uint32_t index, struct box_info *ret)
{
    const struct box_slot *slot = &s->boxes[index];
    uint32_t seq, again;

    assert(index < s->geometry.boxes);
    do {
        seq = atomic_load_explicit(&slot->seq, memory_order_acquire);
        memcpy(ret, &slot->record[seq & 1], sizeof(*ret));
        atomic_thread_fence(memory_order_acquire);
        again = atomic_load_explicit(&slot->seq, memory_order_relaxed);
    } while (seq != again);
    /* Strings end even in a record that was never written, or that was written by a faulty keeper. */
    ret->id[sizeof(ret->id) - 1] = '\0';
    ret->tenant[sizeof(ret->tenant) - 1] = '\0';
    ret->project[sizeof(ret->project) - 1] = '\0';
    ret->template[sizeof(ret->template) - 1] = '\0';
}

static uint32_t hash_project(const struct state *s, const char *tenant, const char *project)
{
    uint64_t h = text_hash_part(text_hash_part(TEXT_HASH_START, tenant), project);

    return (uint32_t)(h ^ h >> 32) & (s->hint_count - 1);
}

static uint32_t hash_id(const struct state *s, const char *id)
{
    uint64_t h = text_hash_part(TEXT_HASH_START, id);

    return (uint32_t)(h ^ h >> 32) & (s->hint_count - 1);
}

/* Puts a hint near its hash. If there is no room nearby, the lookup has to ask the keeper, which is slower. */
static void hint_add(const struct state *s, _Atomic uint32_t *hints, uint32_t hash, uint32_t index)
{
    for (uint32_t i = 0; i < HINT_PROBES; i++) {
        uint32_t at = (hash + i) & (s->hint_count - 1);

        if (atomic_load(&hints[at]) == 0) {
            atomic_store(&hints[at], index + 1);
            return;
        }
    }
}

static void hint_remove(const struct state *s, _Atomic uint32_t *hints, uint32_t hash,
                        uint32_t index)
{
    for (uint32_t i = 0; i < HINT_PROBES; i++) {
        uint32_t at = (hash + i) & (s->hint_count - 1);

        if (atomic_load(&hints[at]) == index + 1)
            atomic_store(&hints[at], 0);
    }
}

static bool has_project(const struct box_info *b)
{
    return b->state == BOX_LIVE || b->state == BOX_FROZEN || b->state == BOX_SAVED ||
           b->state == BOX_ENDED;
}

static bool has_id(const struct box_info *b)
{
    return has_project(b) || b->state == BOX_AGEING;
}

static void hints_of(struct state *s, uint32_t index, const struct box_info *b,
                     void (*change)(const struct state *, _Atomic uint32_t *, uint32_t, uint32_t))
{
    if (has_project(b))
        change(s, s->project_hints, hash_project(s, b->tenant, b->project), index);
    if (has_id(b))
        change(s, s->id_hints, hash_id(s, b->id), index);
}

void state_box_write(struct state *s, uint32_t index, const struct box_info *info)
{
    struct box_slot *slot = &s->boxes[index];
    uint32_t seq = atomic_load_explicit(&slot->seq, memory_order_relaxed);
    struct box_info before = slot->record[seq & 1];

    assert(index < s->geometry.boxes);
    slot->record[(seq + 1) & 1] = *info;
    atomic_store_explicit(&slot->seq, seq + 1, memory_order_release);
    hints_of(s, index, &before, hint_remove);
    hints_of(s, index, info, hint_add);
}

void state_rebuild_hints(struct state *s)
{
    for (uint32_t i = 0; i < s->hint_count; i++) {
        atomic_store(&s->project_hints[i], 0);
        atomic_store(&s->id_hints[i], 0);
    }
    for (uint32_t i = 0; i < s->geometry.boxes; i++) {
        struct box_info info;

        state_box_read(s, i, &info);
        hints_of(s, i, &info, hint_add);
    }
}

/* The slot that a hint leads to, if there is one. A hint may be stale, and the keeper may have died
   between writing a record and its hints. */
static bool follow_hint(const struct state *s, const _Atomic uint32_t *hints, uint32_t at,
                        uint32_t *ret_index, struct box_info *ret)
{
    uint32_t hint = atomic_load_explicit(&hints[at & (s->hint_count - 1)], memory_order_acquire);

    if (hint == 0 || hint > s->geometry.boxes)
        return false;
    *ret_index = hint - 1;
    state_box_read(s, hint - 1, ret);
    return true;
}

bool state_find_project(const struct state *s, const char *tenant, const char *project,
                        uint32_t *ret_index, struct box_info *ret)
{
    uint32_t hash = hash_project(s, tenant, project);

    for (uint32_t i = 0; i < HINT_PROBES; i++)
        if (follow_hint(s, s->project_hints, hash + i, ret_index, ret) && has_project(ret) &&
            strcmp(ret->tenant, tenant) == 0 && strcmp(ret->project, project) == 0)
            return true;
    return false;
}

bool state_find_id_any(const struct state *s, const char *id, uint32_t *ret_index,
                       struct box_info *ret)
{
    uint32_t hash = hash_id(s, id);

    for (uint32_t i = 0; i < HINT_PROBES; i++)
        if (follow_hint(s, s->id_hints, hash + i, ret_index, ret) && has_id(ret) &&
            strcmp(ret->id, id) == 0)
            return true;
    return false;
}

bool state_find_id(const struct state *s, const char *tenant, const char *id, uint32_t *ret_index,
                   struct box_info *ret)
{
    return state_find_id_any(s, id, ret_index, ret) && strcmp(ret->tenant, tenant) == 0;
}

/* ------------------------------------------------------------------ generations */

uint32_t state_policy_generation(const struct state *s)
{
    return atomic_load(&s->box_head->policy_generation);
}

void state_policy_raise(struct state *s)
{
    atomic_fetch_add(&s->box_head->policy_generation, 1);
}

uint32_t state_keys_generation(const struct state *s)
{
    return atomic_load(&s->box_head->keys_generation);
}

void state_keys_raise(struct state *s)
{
    atomic_fetch_add(&s->box_head->keys_generation, 1);
}
