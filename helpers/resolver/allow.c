/*
 * What a sandbox may ask for and be told: the rules of the operator, of its template, its tenant and its client. Where one
 * of them is a list of what is allowed, the addresses of an answer are pinned, so that the sandbox can reach them.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "helpers/resolver/resolver_private.h"

static bool rules_let_ask(const struct net_rules *r, const char *name)
{
    return r->mode == NET_EGRESS || (r->mode == NET_ALLOW && net_list_has_name(r->allow, name));
}

bool allow_name(const struct resolver *r, const struct known_box *b, const char *name)
{
    for (int i = 0; i < NET_STAGES; i++)
        if (b->own[i] && !rules_let_ask(b->own[i], name))
            return false;
    return rules_let_ask(&r->rules, name);
}

bool allow_needs_pins(const struct resolver *r, const struct known_box *b)
{
    for (int i = 0; i < NET_STAGES; i++)
        if (b->own[i] && b->own[i]->mode == NET_ALLOW)
            return true;
    return r->rules.mode == NET_ALLOW;
}

/* An address that no sandbox may reach, and that the operator has not allowed, is taken out of every answer:
 * the owner of a name can point it anywhere at any time. */
static bool may_pass(const struct resolver *r, const struct dns_address *a)
{
    if (net_list_has_addr(r->rules.deny, a->family, a->bytes))
        return false;
    return !net_is_never(a->family, a->bytes) ||
           net_list_has_addr(r->rules.allow, a->family, a->bytes);
}

void allow_strip(const struct resolver *r, struct dns_answer *a)
{
    size_t kept = 0;

    for (size_t i = 0; i < a->address_count; i++)
        if (may_pass(r, &a->addresses[i]))
            a->addresses[kept++] = a->addresses[i];
    a->address_count = kept;
}

/* ------------------------------------------------------------------ pins */

static bool make_room(struct known_box *b)
{
    size_t room = b->pin_room ? 2 * b->pin_room : BOX_PINS_FIRST;
    struct pinned *pins;

    if (b->pin_count < b->pin_room)
        return true;
    if (room > BOX_PINS_MAX || !(pins = realloc(b->pins, room * sizeof(*pins))))
        return false;
    memset(pins + b->pin_room, 0, (room - b->pin_room) * sizeof(*pins));
    b->pins = pins;
    b->pin_room = room;
    return true;
}

/* The address's place among the sandbox's pins: the place it has already, that of a pin that ran out, or
 * a free one. NULL: there is no room. */
static struct pinned *pin_place(struct known_box *b, const struct dns_address *a, uint64_t now)
{
    struct pinned *old = NULL;

    for (size_t i = 0; i < b->pin_count; i++) {
        struct pinned *p = &b->pins[i];

        if (p->family == a->family && memcmp(p->addr, a->bytes, sizeof(p->addr)) == 0)
            return p;
        if (p->until_ms <= now)
            old = p;
    }
    if (!old && !make_room(b))
        return NULL;
    if (!old)
        old = &b->pins[b->pin_count++];
    old->until_ms = 0; /* the pin that was here before no longer counts */
    return old;
}

static uint32_t pin_seconds(uint32_t ttl)
{
    return ttl < PIN_FLOOR_S ? PIN_FLOOR_S : ttl > PIN_CEILING_S ? PIN_CEILING_S : ttl;
}

int allow_pin(struct resolver *r, struct lookup *j, const struct dns_address *a)
{
    uint64_t now = clock_boot_ms(), ends = now + (uint64_t)pin_seconds(a->ttl) * 1000;
    struct pinned *p = pin_place(j->box, a, now);
    struct resolver_pin m = { .slot = j->box->slot,
                              .generation = j->box->generation,
                              .family = (uint32_t)a->family,
                              .seconds = pin_seconds(a->ttl) + PIN_FLOOR_S };

    if (!p)
        return -1;
    if (p->family == a->family && memcmp(p->addr, a->bytes, sizeof(p->addr)) == 0 &&
        p->until_ms >= ends)
        return 0; /* the address is pinned for long enough already */
    memcpy(m.addr, a->bytes, sizeof(m.addr));
    if (msg_send(r->keeper.fd, &(struct msg_out){ RESOLVER_PIN, .tag = j->tag, MSG_BODY(m) },
                 MSG_DONTWAIT, NULL) < 0)
        return -1;
    p->family = a->family;
    memcpy(p->addr, a->bytes, sizeof(p->addr));
    p->until_ms = now + (uint64_t)m.seconds * 1000;
    j->pins_waited++;
    return 0;
}
