#include "cove/endings.h"

#include <string.h>

#include "cove/text.h"

static size_t bucket_of(const char *sandbox)
{
    return text_hash(TEXT_HASH_START, sandbox) % ENDINGS_BUCKETS;
}

void endings_put(struct endings *all, const char *sandbox, uint32_t dialect, const char *command,
                 const struct cove_end *end)
{
    size_t bucket = bucket_of(sandbox);
    uint64_t n = atomic_fetch_add(&all->buckets[bucket].next, 1);
    struct ending_slot *slot = &all->buckets[bucket].slots[n % ENDINGS_EACH];

    atomic_store(&slot->turn, 2 * n + 1);
    text_copy(slot->record.sandbox, sizeof(slot->record.sandbox), sandbox);
    slot->record.end = *end;
    slot->record.dialect = dialect;
    slot->record.command_bytes = (uint32_t)strlen(command);
    text_copy(slot->record.command, sizeof(slot->record.command), command);
    atomic_store(&slot->turn, 2 * n + 2);
}

/* Copies the record. False: it is another sandbox's, or it was changed meanwhile. */
static bool read_slot(const struct ending_slot *slot, const char *sandbox, uint64_t *ret_turn,
                      struct ending *ret)
{
    uint64_t before = atomic_load(&slot->turn);

    if (before == 0 || before % 2 == 1)
        return false;
    *ret = slot->record;
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&slot->turn) != before)
        return false;
    ret->sandbox[sizeof(ret->sandbox) - 1] = '\0';
    ret->command[sizeof(ret->command) - 1] = '\0';
    *ret_turn = before;
    return strcmp(ret->sandbox, sandbox) == 0;
}

uint64_t endings_next(const struct endings *all, const char *sandbox, uint64_t turn,
                      struct ending *ret)
{
    const struct ending_slot *slots = all->buckets[bucket_of(sandbox)].slots;
    uint64_t found = 0;

    for (size_t i = 0; i < ENDINGS_EACH; i++) {
        struct ending one;
        uint64_t its;

        if (!read_slot(&slots[i], sandbox, &its, &one) || its <= turn || (found && its >= found))
            continue;
        found = its;
        *ret = one;
    }
    return found;
}
