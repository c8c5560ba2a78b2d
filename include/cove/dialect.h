/*
 * The dialects, as far as code outside the dialect must know them. A row of DIALECT_ROWS is all that the
 * rest of cove knows of a dialect; nothing outside fcgi/dialects/ names one (tests/names.sh).
 */
#ifndef COVE_DIALECT_H
#define COVE_DIALECT_H

#include <stdbool.h>
#include <stdint.h>

/* How the sandboxes of a dialect are treated differently. */
enum dialect_traits {
    /* A client says for each sandbox what becomes of it at the end of its lifetime, and whether a
     * request for a port may wake it. With other dialects the configuration says both. */
    DIALECT_CLIENT_DECIDES = 1 << 0,
    /* The environment variables that a client gives to a sandbox are kept in memory only: a sandbox would
     * lose them by being saved. */
    DIALECT_KEEPS_IN_MEMORY = 1 << 1,
};

/*
 * ROW(number, name, access to ports, traits). The number travels with a spawn and stands in records: new
 * rows come last. The name is what sections of the policy, settings of keys and `port_access_NAME` use.
 * The access is that to sandboxes' ports where cove.conf does not say.
 */
/* clang-format off */
#define DIALECT_ROWS(ROW)                                                                       \
    ROW(EXECUTE,  "execute",  "private", 0)                                                     \
    ROW(EXECUTOR, "executor", "private", 0)                                                     \
    ROW(E2B,      "e2b",      "public",  DIALECT_CLIENT_DECIDES | DIALECT_KEEPS_IN_MEMORY)      \
    ROW(RELAY,    "relay",    "private", 0)                                                     \
    ROW(AGENT,    "agent",    "private", 0)                                                     \
    ROW(MCP,      "mcp",      "private", 0)                                                     \
    ROW(CONSOLE,  "console",  "private", 0)
/* clang-format on */

#define DIALECT_NUMBER(number, name, access, traits) DIALECT_##number,
enum cove_dialect { DIALECT_NONE, DIALECT_ROWS(DIALECT_NUMBER) DIALECT_COUNT };

/* Clients of the e2b dialect refuse a key that does not begin so; all other clients take any key. So
 * every key begins so, and one key serves all dialects. */
#define DIALECT_KEY_PREFIX "e2b_"

/* The image that clients of the e2b dialect build on where they name none is the template `base` here. */
#define DIALECT_IMAGES "e2bdev/base=base"

#define DIALECT_OF_OPERATORS DIALECT_CONSOLE /* the requests that operators sign come by this one */
#define DIALECT_SHOWN        DIALECT_EXECUTE /* for `cove policy explain` without a dialect */

const char *dialect_name(uint32_t dialect); /* "none" for numbers that no dialect has */
uint32_t dialect_number(const char *name);  /* DIALECT_NONE for names that no dialect has */
bool dialect_has(uint32_t dialect, enum dialect_traits trait);
const char *dialect_access(uint32_t dialect); /* to ports: "public" or "private" */
extern const char *const dialect_names[];     /* ends with NULL */

#endif
