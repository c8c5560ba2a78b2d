/*
 * What may pass between sandboxes and the rest: one nftables table for all sandboxes of this
 * keeper, told apart from other traffic by the names of their interfaces. It is replaced as a
 * whole, in one transaction, when coved starts and when its configuration is read again, so a
 * change holds for sandboxes that run already.
 *
 *   in any mode   nothing reaches a sandbox that it did not ask for; no sandbox reaches another,
 * the host's own services, loopback, link-local (metadata), private or reserved ranges; a source
 * that is not its own is dropped; IPv6 is dropped, which gives IPv4's promises by giving nothing
 *   egress        all else
 *   allow         network_allow and the resolvers, nothing else
 *
 * network_allow also opens what is refused otherwise (a private range with a package mirror);
 * network_deny closes more.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <nftables/libnftables.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox_private.h"

enum { RULES_MAX = 64 * 1024 };

#define NEVER                                                                                      \
    "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, "           \
    "192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/4, 240.0.0.0/4"

/* ------------------------------------------------------------------ what the configuration says */

static const struct {
    const char *word;
    enum net_mode mode;
} modes[] = { { "none", NET_NONE }, { "egress", NET_EGRESS }, { "allow", NET_ALLOW } };

static int parse_mode(const char *word, enum net_mode *ret, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        if (strcmp(word, modes[i].word) == 0) {
            *ret = modes[i].mode;
            return 0;
        }
    return cove_fail(e, COVE_INVALID, "network: '%s' is not none, egress or allow", word);
}

/* "A.B.C.D" or "A.B.C.D/N": nothing else may get into the text of a rule. */
static bool is_cidr(const char *text)
{
    char addr[32], *slash, *end;
    struct in_addr ip;

    if (strlen(text) >= sizeof(addr))
        return false;
    text_copy(addr, sizeof(addr), text);
    slash = strchr(addr, '/');
    if (slash) {
        unsigned long bits = strtoul(slash + 1, &end, 10);

        if (end == slash + 1 || *end || bits > 32)
            return false;
        *slash = '\0';
    }
    return inet_pton(AF_INET, addr, &ip) == 1;
}

/* Words of a list become "a, b, c". */
static int add_list(struct buf *out, const char *key, const char *words, const char *before,
                    struct cove_err *e)
{
    char list[512], *save, *at;
    const char *between = before;

    text_copy(list, sizeof(list), words);
    for (at = strtok_r(list, " ", &save); at; at = strtok_r(NULL, " ", &save)) {
        if (!is_cidr(at))
            return cove_fail(e, COVE_INVALID, "%s: '%.60s' is not an IPv4 address or range", key,
                             at);
        buf_addf(out, "%s%s", between, at);
        between = ", ";
    }
    return 0;
}

static int add_set(struct buf *out, const char *name, const char *key, const char *words,
                   const char *always, struct cove_err *e)
{
    buf_addf(out, "set %s { type ipv4_addr; flags interval; auto-merge; ", name);
    if (*always || *words)
        buf_addf(out, "elements = { %s", always);
    if (add_list(out, key, words, *always ? ", " : "", e) < 0)
        return -1;
    buf_addf(out, *always || *words ? " }\n}\n" : "\n}\n");
    return 0;
}

/* ------------------------------------------------------------------ the rules */

static void add_chains(struct buf *out, const struct net *n)
{
    const char *p = n->prefix;
    struct in_addr range = { htonl(n->range) };

    buf_addf(out,
             "chain forward { type filter hook forward priority -10; policy accept;\n"
             "oifname \"%s*\" iifname != \"%s*\" ct state established,related accept\n"
             "oifname \"%s*\" counter drop\n"
             "iifname \"%s*\" jump out\n}\n",
             p, p, p, p);
    buf_addf(out,
             "chain input { type filter hook input priority -10; policy accept;\n"
             "iifname \"%s*\" counter drop\n}\n",
             p);
    buf_addf(out,
             "chain nat { type nat hook postrouting priority 100; policy accept;\n"
             "ip saddr %s/16 oifname != \"%s*\" masquerade\n}\n",
             inet_ntoa(range), p);
    buf_addf(out,
             "chain out {\nmeta nfproto ipv6 counter drop\n"
             "fib saddr . iif oif missing counter drop\n"
             "ct state established,related accept\n"
             "ip daddr @dns udp dport 53 accept\nip daddr @dns tcp dport 53 accept\n"
             "ip daddr @deny counter reject with icmpx admin-prohibited\n"
             "ip daddr @allow accept\n"
             "ip daddr @never counter reject with icmpx admin-prohibited\n%s\n}\n",
             n->mode == NET_EGRESS ? "accept" : "counter reject with icmpx admin-prohibited");
}

static int write_rules(const struct cove_config *c, const struct net *n, struct buf *out,
                       struct cove_err *e)
{
    buf_addf(out, "add table inet %s\ndelete table inet %s\n", n->table, n->table);
    if (n->mode == NET_NONE)
        return 0;
    buf_addf(out, "table inet %s {\n", n->table);
    if (add_set(out, "never", "", "", NEVER, e) < 0 ||
        add_set(out, "deny", "network_deny", c->network_deny, "", e) < 0 ||
        add_set(out, "allow", "network_allow", c->network_allow, "", e) < 0 ||
        add_set(out, "dns", "network_dns", c->network_dns, "", e) < 0)
        return -1;
    add_chains(out, n);
    buf_addf(out, "}\n");
    return 0;
}

static int load_rules(const char *text, struct cove_err *e)
{
    struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);
    int rc = -1;

    if (!nft)
        return cove_fail(e, COVE_INTERNAL, "nftables: out of memory");
    nft_ctx_buffer_output(nft);
    nft_ctx_buffer_error(nft);
    if (nft_run_cmd_from_buffer(nft, text) == 0)
        rc = 0;
    else
        cove_fail(e, COVE_UNSUPPORTED, "nftables: %.160s", nft_ctx_get_error_buffer(nft));
    nft_ctx_free(nft);
    return rc;
}

/* ------------------------------------------------------------------ for the keeper */

/* Names that no other keeper on this machine has: they follow from its run_dir. */
static void name_all(struct net *n, const char *run_dir)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (const char *at = run_dir; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    snprintf(n->prefix, sizeof(n->prefix), "cv%06x-", hash & 0xFFFFFF);
    snprintf(n->table, sizeof(n->table), "cove_%08x", hash);
}

static int parse(const struct cove_config *c, struct net *n, struct cove_err *e)
{
    struct in_addr range;

    if (parse_mode(c->network, &n->mode, e) < 0)
        return -1;
    if (inet_pton(AF_INET, c->network_range, &range) != 1 || (ntohl(range.s_addr) & 0xFFFF) != 0)
        return cove_fail(e, COVE_INVALID,
                         "network_range: '%s' is not the begin of a /16, like 10.201.0.0",
                         c->network_range);
    n->range = ntohl(range.s_addr);
    text_copy(n->dns, sizeof(n->dns), c->network_dns);
    name_all(n, c->run_dir);
    return 0;
}

int net_init(struct net *n, const struct cove_config *c, struct cove_err *e)
{
    struct net fresh = { 0 };
    struct buf rules;
    int rc;

    if (parse(c, &fresh, e) < 0)
        return -1;
    if (fresh.mode == NET_NONE && n->mode == NET_NONE && !n->loaded) {
        *n = fresh;
        return 0; /* a host that never had the rules is left alone */
    }
    buf_init(&rules, RULES_MAX);
    rc = write_rules(c, &fresh, &rules, e);
    if (rc == 0)
        rc = load_rules(rules.data, e);
    buf_done(&rules);
    if (rc == 0 && fresh.mode != NET_NONE)
        rc = write_file_at(-1, "/proc/sys/net/ipv4/ip_forward", "1", e);
    if (rc < 0)
        return -1;
    fresh.loaded = fresh.mode != NET_NONE;
    *n = fresh;
    return 0;
}

void net_done(struct net *n)
{
    char text[160];

    if (!n->loaded)
        return;
    snprintf(text, sizeof(text), "add table inet %s\ndelete table inet %s\n", n->table, n->table);
    load_rules(text, NULL);
    n->loaded = false;
}
