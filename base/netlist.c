/* Lists of what a sandbox may reach: see cove/netlist.h. */
#include "cove/netlist.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cove/mem.h"
#include "cove/text.h"

/* 168.63.129.16 is a cloud's own address for its guests, though it looks public. */
const char net_never4[] =
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16 169.254.0.0/16 172.16.0.0/12 "
    "192.0.0.0/24 192.168.0.0/16 198.18.0.0/15 224.0.0.0/4 240.0.0.0/4";

/* Loopback and what embeds IPv4 (mapped, compatible, NAT64, Teredo, 6to4: each would be a way round
 * the list above), discard, unique-local (with the clouds' fd00:ec2::254), link- and site-local,
 * multicast. */
const char net_never6[] = "::/96 ::ffff:0:0/96 ::ffff:0:0:0/96 64:ff9b::/96 64:ff9b:1::/48 "
                          "100::/64 2001::/32 2002::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8";

/* ------------------------------------------------------------------ modes */

static const struct {
    const char *word;
    enum net_mode mode;
} modes[] = { { "none", NET_NONE },
              { "egress", NET_EGRESS },
              { "allow-list", NET_ALLOW },
              { "allow", NET_ALLOW } };

int net_mode_parse(const char *word, enum net_mode *ret, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        if (strcmp(word, modes[i].word) == 0) {
            *ret = modes[i].mode;
            return 0;
        }
    return cove_fail(e, COVE_INVALID, "'%.40s' is not none, egress or allow-list", word);
}

const char *net_mode_name(enum net_mode mode)
{
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        if (modes[i].mode == mode)
            return modes[i].word;
    return "?";
}

/* ------------------------------------------------------------------ ranges */

static void clear_host_bits(struct net_range *r)
{
    for (unsigned bit = r->bits; bit < 128; bit++)
        r->bytes[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
}

bool net_range_parse(const char *text, struct net_range *ret)
{
    char addr[64];
    char *slash, *end;
    struct net_range r = { .family = strchr(text, ':') ? AF_INET6 : AF_INET };
    unsigned most = r.family == AF_INET ? 32 : 128;

    if (!text_copy(addr, sizeof(addr), text))
        return false;
    slash = strchr(addr, '/');
    r.bits = most;
    if (slash) {
        unsigned long bits = strtoul(slash + 1, &end, 10);

        if (!isdigit((unsigned char)slash[1]) || *end || bits > most)
            return false;
        r.bits = (unsigned)bits;
        *slash = '\0';
    }
    if (inet_pton(r.family, addr, r.bytes) != 1)
        return false;
    clear_host_bits(&r);
    *ret = r;
    return true;
}

bool net_range_has(const struct net_range *range, int family, const uint8_t *addr)
{
    unsigned whole = range->bits / 8, rest = range->bits % 8;
    uint8_t mask = (uint8_t)(0xFF00 >> rest);

    return range->family == family && memcmp(range->bytes, addr, whole) == 0 &&
           (rest == 0 || (addr[whole] & mask) == range->bytes[whole]);
}

void net_range_print(const struct net_range *range, char *out, size_t size)
{
    char addr[INET6_ADDRSTRLEN] = "";

    inet_ntop(range->family, range->bytes, addr, sizeof(addr));
    snprintf(out, size, "%s/%u", addr, range->bits);
}

/* ------------------------------------------------------------------ names */

static bool is_label(const char *at, size_t len)
{
    if (len == 0 || len > 63 || at[0] == '-' || at[len - 1] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)at[i]) && at[i] != '-' && at[i] != '_')
            return false;
    return true;
}

bool net_is_name(const char *text)
{
    if (strcmp(text, "*") == 0)
        return true;
    if (strncmp(text, "*.", 2) == 0)
        text += 2;
    if (strlen(text) >= NET_NAME_MAX)
        return false;
    for (;;) {
        size_t len = strcspn(text, ".");

        if (!is_label(text, len))
            return false;
        if (!text[len])
            return true;
        text += len + 1;
    }
}

/* *.b.c is every name below b.c, and not b.c itself. */
static bool name_fits(const char *pattern, const char *name)
{
    size_t below = strlen(pattern + (*pattern == '*')), len = strlen(name);

    if (*pattern != '*')
        return strcasecmp(pattern, name) == 0;
    return len > below && strcasecmp(name + len - below, pattern + 1) == 0;
}

/* ------------------------------------------------------------------ lists */

const char *net_next_word(const char **at, char word[NET_NAME_MAX + 1])
{
    const char *begin = *at + strspn(*at, " \t,");
    size_t len = strcspn(begin, " \t,");

    if (len == 0)
        return NULL;
    *at = begin + len;
    if (len > NET_NAME_MAX)
        len = NET_NAME_MAX; /* longer than any valid word */
    memcpy(word, begin, len);
    word[len] = '\0';
    return word;
}

/* Is the word meant as an address? It is if it has a colon, or nothing but digits, dots and a slash. */
static bool looks_like_address(const char *word)
{
    return strchr(word, ':') || strchr(word, '/') || word[strspn(word, "0123456789.")] == '\0';
}

int net_list_check(const char *key, const char *list, bool names_allowed, struct cove_err *e)
{
    char word[NET_NAME_MAX + 1];
    struct net_range r;

    while (net_next_word(&list, word)) {
        if (net_range_parse(word, &r))
            continue;
        if (!names_allowed || looks_like_address(word) || !net_is_name(word))
            return cove_fail(e, COVE_INVALID, "%s: '%.60s' is not an address%s", key, word,
                             names_allowed ? ", a range or a name" : " or a range");
    }
    return 0;
}

bool net_list_has_addr(const char *list, int family, const uint8_t *addr)
{
    char word[NET_NAME_MAX + 1];
    struct net_range r;

    while (net_next_word(&list, word))
        if (net_range_parse(word, &r) && net_range_has(&r, family, addr))
            return true;
    return false;
}

bool net_list_has_name(const char *list, const char *name)
{
    char word[NET_NAME_MAX + 1];

    while (net_next_word(&list, word))
        if (!looks_like_address(word) && name_fits(word, name))
            return true;
    return false;
}

int net_rules_check(const struct net_rules *r, struct cove_err *e)
{
    if (r->mode > NET_ALLOW || !memchr(r->allow, '\0', sizeof(r->allow)) ||
        !memchr(r->deny, '\0', sizeof(r->deny)))
        return cove_fail(e, COVE_INVALID, "network: the settings are not of this version");
    if (net_list_check("allow", r->allow, true, e) < 0)
        return -1;
    return net_list_check("deny", r->deny, false, e);
}

bool net_is_never(int family, const uint8_t *addr)
{
    return net_list_has_addr(family == AF_INET ? net_never4 : net_never6, family, addr);
}
