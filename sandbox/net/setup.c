/*
 * The network of all sandboxes: from the configuration to names, addresses and rules, and back.
 * Several keepers may be on one machine: names are derived from the run_dir, and each keeper takes a block of
 * addresses that no table of another keeper has (`base4`), under a lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/net/net_private.h"

enum { LOOK_AGAIN_MS = 5000 };

/* ------------------------------------------------------------------ what the configuration says */

/* The mode is valid: config_check() has seen it. */
void net_configure(const struct cove_config *c, bool strict, struct net_rules *ret)
{
    enum net_mode mode = strict ? NET_NONE : NET_EGRESS;

    if (strcmp(c->network, "auto") != 0)
        net_mode_parse(c->network, &mode, NULL);
    *ret = (struct net_rules){ .mode = mode };
    text_copy(ret->allow, sizeof(ret->allow), c->network_allow);
    text_copy(ret->deny, sizeof(ret->deny), c->network_deny);
}

/* ------------------------------------------------------------------ names and addresses */

static uint64_t hash_of(const char *text)
{
    uint64_t hash = text_hash(TEXT_HASH_START, text);

    return hash ^ hash >> 32;
}

static void name_all(struct net *n, const struct cove_config *c)
{
    uint64_t hash = hash_of(c->run_dir);

    snprintf(n->prefix, sizeof(n->prefix), "cv%06x-", (unsigned)(hash & 0xFFFFFF));
    snprintf(n->table, sizeof(n->table), "cove_%08x", (unsigned)hash);
    n->group =
        (uint32_t)(hash >> 8) | 0x40000000; /* not 0, the group of interfaces that have none */
    memset(n->base6, 0, sizeof(n->base6));
    n->base6[0] = 0xfd;
    for (int i = 0; i < 5; i++)
        n->base6[1 + i] = (uint8_t)(hash >> (8 * i + 3));
    n->connections = (uint32_t)c->network_connections;
    text_copy(n->uplink, sizeof(n->uplink), c->network_uplink);
}

struct taken {
    const struct net *self;
    struct net_range blocks[1024];
    unsigned count;
    struct net_range own; /* the block that our own table has; family 0 if there is no table */
};

static void note_block(void *arg, const char *table)
{
    struct taken *t = arg;
    struct net_range range;
    char text[64];

    netfilter_read_set(table, "base4", text, sizeof(text));
    if (!net_range_parse(text, &range))
        return;
    if (strcmp(table, t->self->table) == 0)
        t->own = range;
    else if (t->count < ARRAY_SIZE(t->blocks))
        t->blocks[t->count++] = range;
}

static uint32_t number_of(const struct net_range *r)
{
    return (uint32_t)r->bytes[0] << 24 | (uint32_t)r->bytes[1] << 16 | (uint32_t)r->bytes[2] << 8 |
           r->bytes[3];
}

/* Each block begins at a multiple of its size, so of two blocks one contains the other or they
 * do not touch. */
static bool is_free(const struct taken *t, uint32_t at, unsigned bits)
{
    for (unsigned i = 0; i < t->count; i++) {
        unsigned wider = bits < t->blocks[i].bits ? bits : t->blocks[i].bits;

        if ((at ^ number_of(&t->blocks[i])) >> (32 - wider) == 0)
            return false;
    }
    return true;
}

static unsigned bits_for(uint32_t slots)
{
    unsigned bits = 29;

    while (1u << (32 - bits) < slots * 2)
        bits--;
    return bits;
}

/* Takes the block that this keeper had before, or else the first free one, searched from a place
 * that follows from run_dir. */
static int choose_base(struct net *n, const struct cove_config *c, struct cove_err *e)
{
    AUTO_FREE struct taken *t = calloc(1, sizeof(*t));
    unsigned bits = bits_for(n->slots);
    struct net_range range;
    uint32_t count;

    if (!t || !net_range_parse(c->network_range, &range))
        return cove_fail(e, COVE_INTERNAL,
                         "network_range: there is no memory, or it is no range of addresses");
    t->self = n;
    n->base_bits = bits;
    netfilter_each_table(note_block, t);
    if (t->own.bits == bits && net_range_has(&range, AF_INET, t->own.bytes)) {
        n->base = number_of(&t->own);
        return 0;
    }
    count = range.bits > bits ? 0 : 1u << (bits - range.bits);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t nth = (uint32_t)((hash_of(c->run_dir) + i) % count);
        uint32_t at = number_of(&range) + (nth << (32 - bits));

        if (is_free(t, at, bits)) {
            n->base = at;
            return 0;
        }
    }
    return cove_fail(e, COVE_LIMIT, "network_range: no room for %u sandboxes in %s", n->slots,
                     c->network_range);
}

/* ------------------------------------------------------------------ all of it */

/* Reads which interfaces a keeper with this run_dir opened before it was killed: this keeper
 * closes them. */
static void inherit(struct net *n)
{
    netfilter_read_set(n->table, "opened4", n->opened4, sizeof(n->opened4));
    netfilter_read_set(n->table, "opened6", n->opened6, sizeof(n->opened6));
}

static int put_in_place(struct net *n, const struct cove_config *c, struct cove_err *e)
{
    AUTO_CLOSE int lock = -1;

    if (netfilter_check(e) < 0)
        return -1;
    lock = uplink_lock();
    inherit(n);
    if (choose_base(n, c, e) < 0 || (!n->loaded && net_probe(n, e) < 0))
        return -1;
    uplink_open(n);
    if (netfilter_load(n, e) < 0)
        return -1;
    n->loaded = true;
    return 0;
}

int net_init(struct net *n, const struct cove_config *c, const struct net_rules *rules,
             uint32_t slots, struct cove_err *e)
{
    struct net fresh = *n;

    if (!fresh.own)
        fresh.own = calloc(slots, sizeof(*fresh.own));
    if (!fresh.own)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    n->own = fresh.own;
    n->slots = fresh.slots = slots;
    fresh.rules = *rules;
    name_all(&fresh, c);
    if (rules->mode == NET_NONE) {
        if (!net_done(&fresh))
            net_sweep(
                c); /* removes the rules of a keeper before us; a host that never had any is left alone */
        *n = fresh;
        return 0;
    }
    if (put_in_place(&fresh, c, e) < 0)
        return -1;
    *n = fresh;
    return 0;
}

int net_restore(struct net *n, struct cove_err *e)
{
    AUTO_CLOSE int lock = uplink_lock();

    return netfilter_load(n, e);
}

/* Called now and then, because interfaces that lead outside come and go. */
bool net_tick(struct net *n, uint64_t now_ms)
{
    AUTO_CLOSE int lock = -1;

    if (!n->loaded || now_ms < n->next_ms)
        return false;
    n->next_ms = now_ms + LOOK_AGAIN_MS;
    lock = uplink_lock();
    uplink_open(n);
    return true;
}

bool net_done(struct net *n)
{
    AUTO_CLOSE int lock = -1;
    char text[160];

    if (!n->loaded)
        return false;
    lock = uplink_lock();
    snprintf(text, sizeof(text), "add table inet %s\ndelete table inet %s\n", n->table, n->table);
    netfilter_run(text, NULL, NULL);
    rtnl_remove_group(n->group);
    uplink_restore(n);
    n->loaded = false;
    return true;
}

bool net_sweep(const struct cove_config *c)
{
    struct net n = { 0 };
    char stamp[32];

    if (netfilter_check(NULL) < 0)
        return false;
    name_all(&n, c);
    netfilter_read_set(n.table, "stamp", stamp, sizeof(stamp));
    if (!stamp[0])
        return false;
    inherit(&n);
    n.loaded = true;
    return net_done(&n);
}
