/*
 * What a sandbox may reach, as lists of words: addresses and ranges of both families, and names.
 * The keeper makes rules of them, the resolver asks them about names and answers. Everything here
 * is data of an operator or a client: parsed, never executed.
 */
#ifndef COVE_NETLIST_H
#define COVE_NETLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/err.h"

enum { NET_LIST_MAX = 1536, NET_NAME_MAX = 254 };

enum net_mode {
    NET_NONE,   /* nothing but loopback */
    NET_EGRESS, /* everything but the ranges that are always refused */
    NET_ALLOW   /* only the destinations on the list */
};

/*
 * The network of one sandbox, or of all. An operator's list may open ranges that are refused
 * otherwise; a client's own can only take away from what the operator allows. Travels between
 * processes and lies in files: flat, NUL-terminated texts.
 */
struct net_rules {
    uint32_t mode;            /* enum net_mode */
    char allow[NET_LIST_MAX]; /* addresses, ranges, names, *.names; separated by spaces */
    char deny[NET_LIST_MAX];  /* addresses and ranges */
};

/* Who may narrow a sandbox's network; each stage takes away from what the one before it leaves. */
enum net_stage { NET_OF_TEMPLATE, NET_OF_TENANT, NET_OF_CLIENT, NET_STAGES };

struct net_range { /* family AF_INET or AF_INET6; host bits are zero */
    int family;
    unsigned bits;
    uint8_t bytes[16];
};

/* "none", "egress", "allow-list" (or "allow"). */
int net_mode_parse(const char *word, enum net_mode *ret, struct cove_err *e);
const char *net_mode_name(enum net_mode mode);

/* "10.0.0.0/8", "192.0.2.1", "fd00::/8", "::1" */
bool net_range_parse(const char *text, struct net_range *ret);
bool net_range_has(const struct net_range *range, int family, const uint8_t *addr);
void net_range_print(const struct net_range *range, char *out, size_t size);

/* A name, or *.name, or *: labels of letters, digits, - and _. */
bool net_is_name(const char *text);

/* Walks the words of a list. Returns the next word, copied into word, or NULL. */
const char *net_next_word(const char **at, char word[NET_NAME_MAX + 1]);

/* Is every word of the list right? `key` comes first in the message. */
int net_list_check(const char *key, const char *list, bool names_allowed, struct cove_err *e);
bool net_list_has_addr(const char *list, int family, const uint8_t *addr);
bool net_list_has_name(const char *list, const char *name);

int net_rules_check(const struct net_rules *r, struct cove_err *e);

/* Loopback, link-local, metadata, private and reserved ranges; both families, one list each. */
extern const char net_never4[], net_never6[];
bool net_is_never(int family, const uint8_t *addr);

#endif
