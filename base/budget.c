#include "cove/budget.h"

static void give_until(struct budget *from, const struct budget *until, size_t bytes)
{
    for (struct budget *b = from; b != until; b = b->above)
        atomic_fetch_sub(&b->used, bytes);
}

bool budget_take(struct budget *budget, size_t bytes)
{
    for (struct budget *b = budget; b; b = b->above) {
        size_t used = atomic_fetch_add(&b->used, bytes);

        if (b->max && used + bytes > b->max) {
            give_until(budget, b->above, bytes);
            return false;
        }
    }
    return true;
}

bool budget_charge(struct budget *budget, size_t bytes)
{
    bool fits = true;

    for (struct budget *b = budget; b; b = b->above)
        fits &= atomic_fetch_add(&b->used, bytes) + bytes <= b->max || !b->max;
    return fits;
}

void budget_give(struct budget *budget, size_t bytes)
{
    give_until(budget, NULL, bytes);
}
