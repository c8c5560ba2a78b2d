/*
 * What may pass between sandboxes and the rest, as the text that netfilter.c puts in place.
 *
 *   in any mode   nothing reaches a sandbox that it did not ask for; no sandbox reaches another (of
 *                 any keeper), the host's own services, loopback, link-local (metadata), private or
 *                 reserved ranges; a source that is not its own is dropped; a sandbox has no more
 *                 than network_connections connections at a time
 *   egress        all else
 *   allow-list    network_allow, and what names on it were answered with; nothing else
 *
 * network_allow also opens what is refused otherwise (a private range with a package mirror);
 * network_deny closes more. A sandbox with rules of its own has a chain of its own, which can only
 * take away. IPv4 and IPv6 stand in the same chains.
 *
 * A connection that was allowed carries the number of the rules that allowed it (ct mark), and
 * passes as long as those hold: pinned addresses may run out under it, but after a change of rules
 * it is judged again.
 */
#include <arpa/inet.h>
#include <stdio.h>

#include "cove/text.h"
#include "sandbox/net/net_private.h"

enum { PINS_MAX = 65536 };

/* ------------------------------------------------------------------ sets */

/* Ranges are printed anew: no text of the configuration gets into a rule as it is. */
static void add_words(struct buf *out, int family, const char *list, bool *any)
{
    char word[NET_NAME_MAX + 1], text[64];
    struct net_range r;

    while (net_next_word(&list, word)) {
        if (!net_range_parse(word, &r) || r.family != family)
            continue;
        net_range_print(&r, text, sizeof(text));
        buf_addf(out, "%s%s", *any ? ", " : "elements = { ", text);
        *any = true;
    }
}

static void add_family_set(struct buf *out, const char *name, int family, const char *list)
{
    bool any = false;

    buf_addf(out, "set %s%c { type %s; flags interval; auto-merge; ", name,
             family == AF_INET ? '4' : '6', family == AF_INET ? "ipv4_addr" : "ipv6_addr");
    add_words(out, family, list, &any);
    buf_addf(out, "%s\n}\n", any ? " }" : "");
}

static void add_set(struct buf *out, const char *name, const char *list)
{
    add_family_set(out, name, AF_INET, list);
    add_family_set(out, name, AF_INET6, list);
}

static void add_names(struct buf *out, const char *set, const char *list)
{
    char word[NET_NAME_MAX + 1];
    bool any = false;

    buf_addf(out, "set %s { type ifname; ", set);
    while (net_next_word(&list, word)) {
        buf_addf(out, "%s\"%s\"", any ? ", " : "elements = { ", word);
        any = true;
    }
    buf_addf(out, "%s\n}\n", any ? " }" : "");
}

/* ------------------------------------------------------------------ chains */

/* One verdict for the IPv4 and the IPv6 set of this name. */
static void add_match(struct buf *out, const char *set, const char *verdict)
{
    buf_addf(out, "ip daddr @%s4 %s\nip6 daddr @%s6 %s\n", set, verdict, set, verdict);
}

static void add_pinned(struct buf *out, const char *verdict)
{
    buf_addf(out, "iif . ip daddr @pins4 %s\niif . ip6 daddr @pins6 %s\n", verdict, verdict);
}

/* The operator's rules, which decide last about a packet. */
static void add_verdicts(struct buf *out, const struct net_rules *r, uint32_t mark)
{
    char take[48];

    snprintf(take, sizeof(take), "ct mark set 0x%08x accept", mark);
    add_match(out, "deny", "goto refuse");
    add_match(out, "allow", take);
    add_match(out, "never", "goto refuse");
    if (r->mode == NET_EGRESS) {
        buf_addf(out, "%s\n", take);
        return;
    }
    add_pinned(out, take);
    buf_addf(out, "goto refuse\n");
}

static void add_known(struct buf *out, uint32_t mark)
{
    buf_addf(out, "ct state established,related ct mark 0x%08x accept\n", mark);
}

/*
 * A sandbox is narrowed in stages: by the rules of its template, of its tenant, and its own. A
 * packet that passes one stage goes on to the next, and from the last stage to the operator's rules
 * for all sandboxes. Within a stage allow beats deny.
 */
static void add_stage(struct buf *out, uint32_t slot, unsigned stage, const struct net_rules *r)
{
    char set[32], next[32];

    if (stage + 1 < NET_STAGES)
        snprintf(next, sizeof(next), "goto box_%u_%u", slot, stage + 1);
    else
        snprintf(next, sizeof(next), "goto then_%u", slot);
    if (r->mode == NET_NONE) {
        buf_addf(out, "goto refuse\n");
        return;
    }
    snprintf(set, sizeof(set), "a%u_%u_", slot, stage);
    add_match(out, set, next);
    snprintf(set, sizeof(set), "d%u_%u_", slot, stage);
    add_match(out, set, "goto refuse");
    if (r->mode == NET_ALLOW) {
        add_pinned(out, next);
        buf_addf(out, "goto refuse\n");
    } else {
        buf_addf(out, "%s\n", next);
    }
}

static uint32_t fold(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

static uint32_t mark_of(uint32_t stamp, const struct net_own *own)
{
    uint64_t mark = stamp;

    for (unsigned i = 0; own && i < NET_STAGES; i++)
        mark = text_hash(
            text_hash(text_hash(mark, net_mode_name(own->stages[i].mode)), own->stages[i].allow),
            own->stages[i].deny);
    return fold(mark) | 1; /* never 0, which means "no mark" */
}

static void add_box_sets(struct buf *out, const struct net *n, uint32_t slot)
{
    char set[32];

    for (unsigned i = 0; i < NET_STAGES; i++) {
        snprintf(set, sizeof(set), "a%u_%u_", slot, i);
        add_set(out, set, n->own[slot]->stages[i].allow);
        snprintf(set, sizeof(set), "d%u_%u_", slot, i);
        add_set(out, set, n->own[slot]->stages[i].deny);
    }
}

/* Stages are written from the last to the first, because a chain must exist before a rule leads
 * to it. */
void rules_write_box(const struct net *n, uint32_t slot, struct buf *out)
{
    uint32_t mark = mark_of(n->stamp, n->own[slot]);

    add_box_sets(out, n, slot);
    buf_addf(out, "chain then_%u {\n", slot);
    add_verdicts(out, &n->rules, mark);
    buf_addf(out, "}\n");
    for (unsigned i = NET_STAGES; i-- > 0;) {
        buf_addf(out, "chain box_%u_%u {\n", slot, i);
        if (i == 0)
            add_known(out, mark);
        add_stage(out, slot, i, &n->own[slot]->stages[i]);
        buf_addf(out, "}\n");
    }
}

static void add_boxes(struct buf *out, const struct net *n)
{
    char name[IFNAMSIZ];
    bool any = false;

    for (uint32_t i = 0; i < n->slots; i++)
        if (n->own[i])
            rules_write_box(n, i, out);
    buf_addf(out, "map boxes { type ifname : verdict; ");
    for (uint32_t i = 0; i < n->slots; i++) {
        if (!n->own[i])
            continue;
        net_interface(n, i, name);
        buf_addf(out, "%s\"%s\" : goto box_%u_0", any ? ", " : "elements = { ", name, i);
        any = true;
    }
    buf_addf(out, "%s\n}\n", any ? " }" : "");
}

/* The kernel has one table of connections for the whole machine, and a sandbox gets a share of
 * it. The set has one element for each sandbox that has connections; the kernel drops the
 * element with the last connection. */
static void add_share(struct buf *out, const struct net *n)
{
    if (n->connections && !n->uncounted)
        buf_addf(out, "ct state new add @flows { iif ct count over %u } counter goto refuse\n",
                 n->connections);
}

/* What leaves a sandbox. */
static void add_way_out(struct buf *out, const struct net *n)
{
    if (n->connections && !n->uncounted)
        buf_addf(out, "set flows { type iface_index; size %u; flags dynamic; }\n", n->slots + 64);
    buf_addf(out, "chain out {\n"
                  "oifname \"" NET_ANY_COVE "\" counter goto refuse\n"
                  "fib saddr . iif oif missing counter drop\n");
    add_share(out, n);
    buf_addf(out, "iifname vmap @boxes\n"
                  "goto base\n}\n");
}

/* Neighbour Discovery (IPv6) passes this chain, unlike ARP, and the host's end of the pair needs
 * it. */
static void add_hooks(struct buf *out, const struct net *n)
{
    const char *p = n->prefix;

    add_way_out(out, n);
    buf_addf(out,
             "chain forward { type filter hook forward priority -10; policy accept;\n"
             "iifname \"%s*\" goto out\n"
             "oifname \"%s*\" iifname != \"" NET_ANY_COVE "\" ct state established,related accept\n"
             "oifname \"%s*\" counter drop\n"
             "meta nfproto ipv4 iifname @opened4 oifname != \"" NET_ANY_COVE "\" counter drop\n"
             "meta nfproto ipv6 iifname @opened6 oifname != \"" NET_ANY_COVE "\" counter drop\n}\n",
             p, p, p);
    buf_addf(out,
             "chain input { type filter hook input priority -10; policy accept;\n"
             "iifname \"%s*\" icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } "
             "ip6 hoplimit 255 accept\n"
             "iifname \"%s*\" counter goto refuse\n}\n"
             "chain nat { type nat hook postrouting priority 100; policy accept;\n"
             "iifname \"%s*\" oifname != \"" NET_ANY_COVE "\" masquerade\n}\n",
             p, p, p);
}

static void add_pin_sets(struct buf *out)
{
    buf_addf(out,
             "set pins4 { type iface_index . ipv4_addr; flags timeout; size %d; }\n"
             "set pins6 { type iface_index . ipv6_addr; flags timeout; size %d; }\n",
             PINS_MAX, PINS_MAX);
}

/* A refusal is answered, because a connection that is neither opened nor refused hangs for
 * minutes. TCP gets a reset, since the kernel sends only a few ICMP messages a second. */
static void add_refusal(struct buf *out)
{
    buf_addf(out, "chain refuse {\ncounter\nmeta l4proto tcp reject with tcp reset\n"
                  "reject with icmpx admin-prohibited\n}\n");
}

/* All that depends on the configuration. The hash of this text is the stamp by which the next
 * keeper knows whether the table in the kernel is up to date. */
static void add_rules(struct buf *out, const struct net *n)
{
    struct in_addr base = { htonl(n->base) };

    buf_addf(out, "set base4 { type ipv4_addr; flags interval; elements = { %s/%u }\n}\n",
             inet_ntoa(base), n->base_bits);
    add_pin_sets(out);
    add_family_set(out, "never", AF_INET, net_never4);
    add_family_set(out, "never", AF_INET6, net_never6);
    add_set(out, "deny", n->rules.deny);
    add_set(out, "allow", n->rules.allow);
    add_refusal(out);
    buf_addf(out, "# %s %s\n", net_mode_name(n->rules.mode),
             n->rules.allow); /* so that a change of names changes the stamp */
}

int rules_write(struct net *n, struct buf *out, struct cove_err *e)
{
    struct buf fixed;

    buf_init(&fixed, RULES_MAX);
    add_rules(&fixed, n);
    add_hooks(&fixed, n);
    n->stamp = fixed.data ? fold(text_hash(TEXT_HASH_START, fixed.data)) : 0;
    buf_addf(out, "add table inet %s\ndelete table inet %s\ntable inet %s {\n", n->table, n->table,
             n->table);
    buf_addf(out, "set stamp { type mark; elements = { 0x%08x }\n}\n", n->stamp);
    add_names(out, "opened4", n->opened4);
    add_names(out, "opened6", n->opened6);
    add_rules(out, n);
    buf_addf(out, "chain base {\n");
    add_known(out, mark_of(n->stamp, NULL));
    add_verdicts(out, &n->rules, mark_of(n->stamp, NULL));
    buf_addf(out, "}\n");
    add_boxes(out, n);
    add_hooks(out, n);
    buf_addf(out, "}\n");
    buf_done(&fixed);
    return out->overflow ? cove_fail(e, COVE_TOO_LARGE, "network: too many rules") : 0;
}
