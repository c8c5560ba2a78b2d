/*
 * Putting rules in place: one nftables table for all sandboxes of this keeper, told apart from other
 * traffic by the names of their interfaces. It is replaced as a whole, in one transaction, when the
 * configuration changes it, so a change applies to running sandboxes too; and left alone when it
 * is up to date, so that a new keeper cuts no connection. Addresses of names on an allow-list
 * are pinned into sets of this table, when the resolver asks for it.
 *
 * What the rules say is in rules.c.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <nftables/libnftables.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "sandbox/net/net_private.h"

enum { OUTPUT_MAX = 4 << 20 };

/* ------------------------------------------------------------------ talking to libnftables */

static struct nft_ctx *open_nft(struct cove_err *e)
{
    static struct nft_ctx *nft; /* made once, because making it reads files */

    if (!nft)
        nft = nft_ctx_new(NFT_CTX_DEFAULT);
    if (!nft)
        cove_fail(e, COVE_INTERNAL, "nftables: out of memory");
    return nft;
}

int netfilter_run(const char *text, struct buf *ret_output, struct cove_err *e)
{
    struct nft_ctx *nft = open_nft(e);
    const char *out;

    if (!nft || nft_ctx_buffer_output(nft) != 0 || nft_ctx_buffer_error(nft) != 0)
        return cove_fail(e, COVE_INTERNAL, "nftables: out of memory");
    if (nft_run_cmd_from_buffer(nft, text) != 0)
        return cove_fail(e, COVE_UNSUPPORTED, "nftables: %.160s", nft_ctx_get_error_buffer(nft));
    out = nft_ctx_get_output_buffer(nft);
    if (ret_output && out)
        buf_add_str(ret_output, out);
    return 0;
}

/* Takes a and b, without quotes, out of "elements = { a, b timeout 1m }". */
static void read_elements(const char *text, char *out, size_t size)
{
    const char *at = strstr(text, "elements = {");
    size_t len = 0;

    out[0] = '\0';
    for (at = at ? at + 12 : ""; *at && *at != '}';) {
        size_t word;

        at += strspn(at, " \t\n,\"");
        word = strcspn(at, " \t\n,\"}");
        if (word && len + word + 2 < size)
            len += (size_t)snprintf(out + len, size - len, "%s%.*s", len ? " " : "", (int)word, at);
        at += word;
    }
}

void netfilter_read_set(const char *table, const char *set, char *out, size_t size)
{
    char text[96];
    struct buf answer;

    out[0] = '\0';
    buf_init(&answer, OUTPUT_MAX);
    snprintf(text, sizeof(text), "list set inet %s %s", table, set);
    if (netfilter_run(text, &answer, NULL) == 0 && answer.data)
        read_elements(answer.data, out, size);
    buf_done(&answer);
}

void netfilter_each_table(netfilter_table_fn each, void *arg)
{
    static const char begin[] = "table inet cove_";
    struct buf answer;
    char name[32];

    buf_init(&answer, OUTPUT_MAX);
    if (netfilter_run("list tables inet", &answer, NULL) == 0 && answer.data) {
        for (const char *at = answer.data; (at = strstr(at, begin)); at++) {
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(at + 11, "\n"), at + 11);
            each(arg, name);
        }
    }
    buf_done(&answer);
}

/* ------------------------------------------------------------------ one sandbox's own */

/* Writes a command for every set of a slot. */
static void each_set(struct buf *out, const struct net *n, uint32_t slot, const char *command,
                     const char *body4, const char *body6)
{
    for (unsigned i = 0; i < NET_STAGES; i++)
        for (const char *kind = "ad"; *kind; kind++)
            buf_addf(out, "%s set inet %s %c%u_%u_4 %s\n%s set inet %s %c%u_%u_6 %s\n", command,
                     n->table, *kind, slot, i, body4, command, n->table, *kind, slot, i, body6);
}

static void each_chain(struct buf *out, const struct net *n, uint32_t slot, const char *command)
{
    for (unsigned i = 0; i < NET_STAGES; i++)
        buf_addf(out, "%s chain inet %s box_%u_%u\n", command, n->table, slot, i);
    buf_addf(out, "%s chain inet %s then_%u\n", command, n->table, slot);
}

/* The chains of the slot's sandbox are made anew in place; from then on the map leads to them. */
int net_set_own(struct net *n, uint32_t slot, const struct net_own *own, struct cove_err *e)
{
    struct net_own *copy = malloc(sizeof(*copy));
    char name[IFNAMSIZ];
    struct buf text;
    int rc;

    assert(slot < n->slots);
    if (!copy)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    *copy = *own;
    free(n->own[slot]);
    n->own[slot] = copy;
    if (!n->loaded)
        return 0;
    buf_init(&text, RULES_MAX);
    net_interface(n, slot, name);
    each_chain(&text, n, slot, "add");
    each_set(&text, n, slot, "add", "{ type ipv4_addr; flags interval; auto-merge; }",
             "{ type ipv6_addr; flags interval; auto-merge; }");
    each_chain(&text, n, slot, "flush");
    each_set(&text, n, slot, "flush", "", "");
    buf_addf(&text, "table inet %s {\n", n->table);
    rules_write_box(n, slot, &text);
    buf_addf(&text, "}\nadd element inet %s boxes { \"%s\" : goto box_%u_0 }\n", n->table, name,
             slot);
    rc = netfilter_run(text.data, NULL, e);
    buf_done(&text);
    return rc;
}

static void remove_own(const struct net *n, uint32_t slot)
{
    char name[IFNAMSIZ];
    struct buf text;

    net_interface(n, slot, name);
    buf_init(&text, RULES_MAX);
    buf_addf(&text, "delete element inet %s boxes { \"%s\" }\n", n->table, name);
    each_chain(&text, n, slot, "flush");
    each_chain(&text, n, slot, "delete");
    each_set(&text, n, slot, "delete", "", "");
    netfilter_run(text.data, NULL, NULL);
    buf_done(&text);
}

/* The slot's sandbox is gone. */
void net_forget_own(struct net *n, uint32_t slot)
{
    assert(!n->own || slot < n->slots);
    if (!n->own || !n->own[slot])
        return;
    free(n->own[slot]);
    n->own[slot] = NULL;
    if (n->loaded)
        remove_own(n, slot);
}

/* Removes rules of sandboxes that ended while there was no keeper: the next sandbox in the slot
 * must not get them. */
static void remove_stale(const struct net *n)
{
    char name[IFNAMSIZ + 2], bare[IFNAMSIZ], command[64];
    struct buf map;

    buf_init(&map, OUTPUT_MAX);
    snprintf(command, sizeof(command), "list map inet %s boxes", n->table);
    if (netfilter_run(command, &map, NULL) == 0 && map.data && strchr(map.data, '"'))
        for (uint32_t i = 0; i < n->slots; i++) {
            net_interface(n, i, bare);
            snprintf(name, sizeof(name), "\"%s\"", bare);
            if (!n->own[i] && strstr(map.data, name))
                remove_own(n, i);
        }
    buf_done(&map);
}

/* ------------------------------------------------------------------ putting it in place */

static bool is_loaded(const struct net *n)
{
    char stamp[32], want[16];

    netfilter_read_set(n->table, "stamp", stamp, sizeof(stamp));
    snprintf(want, sizeof(want), "0x%08x", n->stamp);
    return strcmp(stamp, want) == 0;
}

static int load_once(struct net *n, struct cove_err *e)
{
    AUTO_BUF struct buf rules = BUF(RULES_MAX);
    int rc = rules_write(n, &rules, e);

    if (rc == 0 && is_loaded(n))
        remove_stale(n);
    else if (rc == 0)
        rc = netfilter_run(rules.data, NULL, e);
    return rc;
}

/* A kernel without nft_connlimit cannot count connections per sandbox. Then the other rules are
 * loaded without that one, and n->uncounted is set. */
int netfilter_load(struct net *n, struct cove_err *e)
{
    struct cove_err first = { 0 };

    if (load_once(n, &first) == 0)
        return 0;
    if (!n->connections || n->uncounted) {
        if (e)
            *e = first;
        return -1;
    }
    n->uncounted = true;
    return load_once(n, e);
}

/* ------------------------------------------------------------------ pins */

/* An address that is pinned already is removed and added: on older kernels adding alone does not
 * prolong its time. */
int net_pin(const struct net *n, uint32_t slot, int family, const uint8_t *addr, uint32_t seconds,
            struct cove_err *e)
{
    char name[IFNAMSIZ], text[INET6_ADDRSTRLEN] = "", element[96], command[512];
    unsigned index;

    net_interface(n, slot, name);
    index = if_nametoindex(name);
    if (!n->loaded || !index || !inet_ntop(family, addr, text, sizeof(text)))
        return cove_fail(e, COVE_CONFLICT, "no network to pin an address in");
    snprintf(element, sizeof(element), "inet %s pins%c { %u . %s", n->table,
             family == AF_INET ? '4' : '6', index, text);
    snprintf(command, sizeof(command),
             "add element %s timeout %us }\ndelete element %s }\nadd element %s timeout %us }",
             element, seconds, element, element, seconds);
    return netfilter_run(command, NULL, e);
}
