/* The judge: told of every sandbox, so that it can attach to the sandbox's init and answer for each
 * execve under exec-time policy. */
#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"

void judge_tell(struct keeper *k, uint32_t box)
{
    struct judge_box m = { .index = box };

    text_copy(m.id, sizeof(m.id), k->boxes[box].info.id);
    helper_tell(&k->helpers[HELPER_JUDGE], JUDGE_BOX, &m, sizeof(m), NULL, 0);
}

static void started(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (boxes_runs(k, i))
            judge_tell(k, i);
}

/* A judge that does not read its messages is of no use: it is replaced, and the next one is told of all
 * sandboxes. */
const struct helper_kind judge_kind = {
    .name = "judge",
    .program = "cove-judge",
    .takeover = LEAVES_BY_ITSELF,
    .has_socket = true,
    .queue_bytes = 4 << 20,
    .started = started,
};
