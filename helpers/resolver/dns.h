/*
 * DNS messages: taken apart and put together, nothing else. Every byte comes from a sandbox or from
 * the internet; nothing here allocates, and nothing is read or written outside of what was given.
 */
#ifndef COVE_RESOLVER_DNS_H
#define COVE_RESOLVER_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DNS_NAME_MAX = 254,  /* as text, without the last dot, with the NUL */
    DNS_QUERY_MAX = 512, /* of a question as we take and send it */
    DNS_UDP_MAX = 1232,  /* what passes every network in one piece */
    DNS_MESSAGE_MAX = 65535,
    DNS_ADDRESSES_MAX = 64,
    DNS_CHAIN_MAX = 16, /* CNAMEs one after the other */
};

enum dns_type {
    DNS_A = 1,
    DNS_CNAME = 5,
    DNS_AAAA = 28,
    DNS_OPT = 41,
    DNS_SVCB = 64,
    DNS_HTTPS = 65
};
enum dns_code { DNS_NOERROR, DNS_FORMERR, DNS_SERVFAIL, DNS_NXDOMAIN, DNS_NOTIMP, DNS_REFUSED };

struct dns_query {
    uint16_t id;
    uint16_t type;
    bool recursion; /* desired */
    bool edns;
    size_t room; /* how long an answer by UDP may be */
    char name[DNS_NAME_MAX];
};

/* 0: a question; -1: no question, and nothing is to be answered; else an enum dns_code to answer with (id, name and
 * type are then set as far as they could be read). */
int dns_read_query(const uint8_t *p, size_t len, struct dns_query *ret);

/* The question as we ask it of others, with an id of ours. Returns its length. */
size_t dns_write_query(const struct dns_query *q, uint16_t id, uint8_t out[DNS_QUERY_MAX]);

struct dns_address {
    int family; /* AF_INET, AF_INET6 */
    uint32_t ttl;
    uint8_t bytes[16];
};

struct dns_alias {
    uint32_t ttl;
    char name[DNS_NAME_MAX]; /* the name that the one before is an alias for */
};

struct dns_answer {
    unsigned code;      /* enum dns_code, or another that came */
    bool truncated;     /* ask again by TCP */
    size_t keep;        /* the length of head, question, answers and authorities in the message */
    uint16_t counts[2]; /* of those two */
    struct dns_alias aliases[DNS_CHAIN_MAX];
    size_t alias_count;
    struct dns_address addresses[DNS_ADDRESSES_MAX];
    size_t address_count;
    bool strange; /* has addresses though they were not asked for */
};

/* Reads an answer. -1: it is not an answer to that very question (by id, name and type), or not well-formed to the
 * last record. For A and AAAA the addresses at the end of the chain of aliases are extracted. */
int dns_read_answer(const uint8_t *p, size_t len, const struct dns_query *q, uint16_t id,
                    struct dns_answer *ret);

/* Writes the sandbox's answer for A and AAAA: aliases and addresses. */
size_t dns_write_addresses(const struct dns_query *q, const struct dns_answer *a, uint8_t *out,
                           size_t size);
/* Writes the sandbox's answer for all other types: the message as it came, without its additional section. */
size_t dns_write_copy(const struct dns_query *q, const struct dns_answer *a, const uint8_t *p,
                      uint8_t *out, size_t size);
/* Writes an answer that has only a code. */
size_t dns_write_code(const struct dns_query *q, unsigned code, bool truncated, uint8_t *out,
                      size_t size);

#endif
