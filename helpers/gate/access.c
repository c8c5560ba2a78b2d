/*
 * Who may reach single ports by host name. A port may have a setting of its own, its access word; a port
 * without one is as the dialect that made the sandbox decides (fcgi/port_access.c). A word lasts until it is
 * taken back or the sandbox ends. Words are kept in the bindings file, behind the bindings, for the next gate.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "cove/which.h"
#include "helpers/gate/gate_private.h"

enum { FD_FILE = 1, WORDS_MAX = 4096, WORDS_PER_TENANT = WORDS_MAX / 2, WORDS_PER_SANDBOX = 64 };

static off_t place_of(uint32_t slot)
{
    return (off_t)(MAX_BINDINGS * sizeof(struct binding_record) +
                   slot * sizeof(struct access_record));
}

static void store(const struct gate *g, uint32_t slot)
{
    const struct access_record *rec = &g->access[slot];

    if (!g->superseded && pwrite(FD_FILE, rec, sizeof(*rec), place_of(slot)) != sizeof(*rec))
        log_event(LOG_LEVEL_WARN, "access to a port not stored: it ends with this gate");
}

int access_load(struct gate *g, struct cove_err *e)
{
    g->access = calloc(WORDS_MAX, sizeof(*g->access));
    if (!g->access)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    for (uint32_t i = 0; i < WORDS_MAX; i++)
        if (pread(FD_FILE, &g->access[i], sizeof(g->access[i]), place_of(i)) !=
            sizeof(g->access[i]))
            g->access[i] = (struct access_record){ 0 };
    return 0;
}

static struct access_record *find(const struct gate *g, const char *id, uint16_t port)
{
    for (uint32_t i = 0; i < WORDS_MAX; i++)
        if (g->access[i].port == port && strcmp(g->access[i].id, id) == 0)
            return &g->access[i];
    return NULL;
}

enum gate_access_word access_of(const struct gate *g, const struct port_target *t)
{
    const struct access_record *rec = find(g, t->id, t->port);

    return rec ? (enum gate_access_word)rec->word : GATE_ACCESS_DEFAULT;
}

static unsigned count_of(const struct gate *g, const char *id)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < WORDS_MAX; i++)
        count += g->access[i].port && strcmp(g->access[i].id, id) == 0;
    return count;
}

static unsigned count_of_tenant(const struct gate *g, const char *tenant)
{
    unsigned count = 0;
    struct which found;

    for (uint32_t i = 0; i < WORDS_MAX; i++)
        count += g->access[i].port &&
                 which_sandbox_id(g->state, tenant, g->access[i].id, &found) == WHICH_HERE;
    return count;
}

static int check_room(const struct gate *g, const struct gate_access *ask, struct cove_err *e)
{
    if (count_of(g, ask->id) >= WORDS_PER_SANDBOX)
        return cove_fail(e, COVE_QUOTA, "quota: %d ports of a sandbox may have access of their own",
                         WORDS_PER_SANDBOX);
    if (count_of_tenant(g, ask->tenant) >= WORDS_PER_TENANT)
        return cove_fail(e, COVE_QUOTA, "quota: %d ports of a tenant may have access of their own",
                         WORDS_PER_TENANT);
    return 0;
}

int access_set(struct gate *g, const struct gate_access *ask, struct cove_err *e)
{
    struct access_record *rec = find(g, ask->id, ask->port);
    struct which which;

    if (which_sandbox_id(g->state, ask->tenant, ask->id, &which) != WHICH_HERE)
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox");
    if (!rec && ask->word == GATE_ACCESS_DEFAULT)
        return 0;
    if (!rec && check_room(g, ask, e) < 0)
        return -1;
    if (!rec)
        rec = find(g, "", 0);
    if (!rec)
        return cove_fail(e, COVE_BUSY, "%d ports have access of their own already", WORDS_MAX);
    *rec = (struct access_record){ .port = ask->port, .word = (uint16_t)ask->word };
    text_copy(rec->id, sizeof(rec->id), ask->id);
    if (ask->word == GATE_ACCESS_DEFAULT)
        *rec = (struct access_record){ 0 };
    store(g, (uint32_t)(rec - g->access));
    return 0;
}

void access_sweep(struct gate *g)
{
    struct which found;

    for (uint32_t i = 0; i < WORDS_MAX; i++) {
        if (!g->access[i].port ||
            which_sandbox_id(g->state, NULL, g->access[i].id, &found) == WHICH_HERE)
            continue;
        g->access[i] = (struct access_record){ 0 };
        store(g, i);
    }
}
