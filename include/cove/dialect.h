/* The dialects by number and name: the number travels with a spawn, the name is what policy
 * sections use. */
#ifndef COVE_DIALECT_H
#define COVE_DIALECT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum cove_dialect {
    DIALECT_NONE,
    DIALECT_EXECUTE,
    DIALECT_EXECUTOR,
    DIALECT_E2B,
    DIALECT_RELAY,
    DIALECT_AGENT,
    DIALECT_MCP,
    DIALECT_CONSOLE,
    DIALECT_COUNT
};

/* Clients of the e2b dialect refuse a key that does not begin so; all other clients take any key. So
 * every key begins so, and one key serves all dialects. */
#define DIALECT_KEY_PREFIX "e2b_"

static inline const char *dialect_name(uint32_t dialect)
{
    static const char *const names[] = { "none",  "execute", "executor", "e2b",
                                         "relay", "agent",   "mcp",      "console" };

    return dialect < sizeof(names) / sizeof(names[0]) ? names[dialect] : names[0];
}

static inline uint32_t dialect_number(const char *name)
{
    for (uint32_t i = DIALECT_EXECUTE; i < DIALECT_COUNT; i++)
        if (strcmp(dialect_name(i), name) == 0)
            return i;
    return DIALECT_NONE;
}

#endif
