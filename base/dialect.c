/* The rows of the dialects: see cove/dialect.h. */
#include "cove/dialect.h"

#include <string.h>

struct row {
    const char *name, *access;
    unsigned traits;
};

#define TO_ROW(number, name, access, traits)  [DIALECT_##number] = { name, access, traits },
#define TO_NAME(number, name, access, traits) name,

static const struct row rows[DIALECT_COUNT] = { { "none", "private", 0 }, DIALECT_ROWS(TO_ROW) };
const char *const dialect_names[] = { DIALECT_ROWS(TO_NAME) NULL };

static const struct row *row_of(uint32_t dialect)
{
    return &rows[dialect < DIALECT_COUNT ? dialect : DIALECT_NONE];
}

const char *dialect_name(uint32_t dialect)
{
    return row_of(dialect)->name;
}

uint32_t dialect_number(const char *name)
{
    for (uint32_t i = DIALECT_NONE + 1; i < DIALECT_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0)
            return i;
    return DIALECT_NONE;
}

bool dialect_has(uint32_t dialect, enum dialect_traits trait)
{
    return row_of(dialect)->traits & trait;
}

const char *dialect_access(uint32_t dialect)
{
    return row_of(dialect)->access;
}
