/* What many buffers and arenas may take together. */
#ifndef COVE_BUDGET_H
#define COVE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * A buffer or an arena with a budget pays for its memory as it grows, to the budget and to all above it,
 * and gives it back when it is done. NULL stands for a budget without a limit.
 */
struct budget {
    atomic_size_t used;
    size_t max; /* 0 = no limit */
    struct budget *above;
};

/* Takes the bytes from the budget and all above it. False: one of them has no room, nothing was taken. */
bool budget_take(struct budget *budget, size_t bytes);
/* For memory that is needed in any case. False: the budget, or one above it, is overdrawn now. */
bool budget_charge(struct budget *budget, size_t bytes);
void budget_give(struct budget *budget, size_t bytes);

#endif
