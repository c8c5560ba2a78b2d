/* Requests that wait for an answer about a sandbox until it is ready, or dead. */
#include <stdlib.h>

#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

void waiters_add(struct box *b, const struct waiter *w)
{
    struct waiter *copy = malloc(sizeof(*copy));

    if (!copy)
        return; /* the client runs into its own deadline */
    *copy = *w;
    copy->next = b->waiters;
    b->waiters = copy;
}

/* Takes the next waiter off the list. The caller frees it. */
static struct waiter *pop(struct box *b)
{
    struct waiter *w = b->waiters;

    if (w)
        b->waiters = w->next;
    return w;
}

void waiters_answer(struct keeper *k, uint32_t i, uint32_t type, const void *body, size_t len)
{
    struct waiter *w;

    while ((w = pop(&k->boxes[i]))) {
        keeper_answer(k, w, type, body, len);
        free(w);
    }
}

void waiters_fail(struct keeper *k, uint32_t i, const struct cove_err *err)
{
    waiters_answer(k, i, MSG_ERROR, err, sizeof(*err));
}

void waiters_fail_list(struct keeper *k, struct waiter **list, const struct cove_err *err)
{
    while (*list) {
        struct waiter *w = *list;

        *list = w->next;
        keeper_answer_error(k, w, err);
        free(w);
    }
}

void waiters_move(struct waiter **from, struct box *to)
{
    while (*from) {
        struct waiter *w = *from;

        *from = w->next;
        w->next = to->waiters;
        to->waiters = w;
    }
}

static void forget_in(struct waiter **at, uint32_t client)
{
    while (*at) {
        struct waiter *w = *at;

        if (w->client == client) {
            *at = w->next;
            free(w);
        } else {
            at = &w->next;
        }
    }
}

void waiters_forget_client(struct keeper *k, uint32_t client)
{
    const struct state *saved = state_saved(k->state);

    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        forget_in(&k->boxes[i].waiters, client);
    for (uint32_t i = 0; saved && i < state_box_count(saved); i++)
        if (k->saved[i].waiters)
            forget_in(&k->saved[i].waiters, client);
}

void waiters_answer_box(struct keeper *k, uint32_t i, bool created)
{
    const struct box_info *info = &k->boxes[i].info;
    struct keeper_box reply = { .index = i, .generation = info->generation, .created = created };

    text_copy(reply.id, sizeof(reply.id), info->id);
    waiters_answer(k, i, KEEPER_BOX, &reply, sizeof(reply));
}
