/* DNS messages (RFC 1035, 6891): see dns.h. */
#include "helpers/resolver/dns.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

enum {
    HEAD = 12,
    FLAG_QR = 0x8000,
    FLAG_TC = 0x0200,
    FLAG_RD = 0x0100,
    FLAG_RA = 0x0080,
    OPCODE = 0x7800,
    POINTER = 0xC0,
    CLASS_IN = 1,
    RECORDS_MAX = 512,
    JUMPS_MAX = 32,
    ROOM_MIN = 512,
    OPT_LEN = 11,
    TTL_MAX = 3600,
};

struct reader {
    const uint8_t *p;
    size_t len, at;
    bool bad; /* the message is too short or malformed; stays set */
};

static uint16_t take16(struct reader *r)
{
    uint16_t v;

    if (r->len - r->at < 2) {
        r->bad = true;
        r->at = r->len;
        return 0;
    }
    v = (uint16_t)(r->p[r->at] << 8 | r->p[r->at + 1]);
    r->at += 2;
    return v;
}

static uint32_t take32(struct reader *r)
{
    uint32_t high = take16(r);

    return high << 16 | take16(r);
}

/* ------------------------------------------------------------------ names */

static bool is_plain(uint8_t c)
{
    return isalnum(c) || c == '-' || c == '_';
}

/* Adds a label to a text. A character other than a letter, a digit, - or _ makes it a name that is not
 * resolved here. */
static bool add_label(char *out, size_t *len, const uint8_t *label, size_t n)
{
    if (*len + n + 2 > DNS_NAME_MAX)
        return false;
    if (*len)
        out[(*len)++] = '.';
    for (size_t i = 0; i < n; i++) {
        if (!is_plain(label[i]))
            return false;
        out[(*len)++] = (char)tolower(label[i]);
    }
    return true;
}

/*
 * Reads the name at r->at and moves r->at behind it. Pointers lead backwards only, each further back than the
 * one before, and the labels they lead to end before the part that the pointer stands in: so the loop ends, and no
 * name runs on into what follows it. out may be NULL: the name is only skipped. Returns false if there is no
 * name (r->bad), or one that is not resolved here.
 */
static bool take_name(struct reader *r, char *out)
{
    size_t at = r->at, behind = 0, low = r->at, limit = r->len, len = 0, total = 0;
    bool plain = true;

    for (int jumps = 0;;) {
        uint8_t n;

        if (at >= limit)
            break;
        n = r->p[at];
        if (n == 0) {
            r->at = behind ? behind : at + 1;
            if (out)
                out[len] = '\0';
            return plain;
        }
        if ((n & POINTER) == POINTER) {
            size_t to;

            if (at + 1 >= limit || ++jumps > JUMPS_MAX)
                break;
            to = (size_t)(n & 0x3F) << 8 | r->p[at + 1];
            if (to >= low || to < HEAD)
                break;
            behind = behind ? behind : at + 2;
            limit = low;
            low = at = to;
            continue;
        }
        total += n + 1u;
        if (n & POINTER || total > 254 || limit - at <= n)
            break;
        if (out && plain)
            plain = add_label(out, &len, r->p + at + 1, n);
        at += n + 1u;
    }
    r->bad = true;
    return false;
}

/* ------------------------------------------------------------------ questions */

struct record {
    uint16_t type, class, len;
    uint32_t ttl;
    size_t data; /* where it begins */
};

/* Leaves r behind the record. */
static bool take_record(struct reader *r, char *owner, struct record *ret)
{
    bool plain = take_name(r, owner);

    ret->type = take16(r);
    ret->class = take16(r);
    ret->ttl = take32(r);
    ret->len = take16(r);
    ret->data = r->at;
    if (r->bad || r->len - r->at < ret->len) {
        r->bad = true;
        return false;
    }
    r->at += ret->len;
    return plain;
}

/* The only additional record that is read is OPT, which says how long an answer may be. */
static void read_additions(struct reader *r, unsigned count, struct dns_query *q)
{
    for (unsigned i = 0; i < count && !r->bad; i++) {
        struct record rec;

        take_record(r, NULL, &rec);
        if (r->bad || rec.type != DNS_OPT)
            continue;
        q->edns = true;
        if (rec.class > ROOM_MIN)
            q->room = rec.class < DNS_UDP_MAX ? rec.class : DNS_UDP_MAX;
    }
}

/* Programs do not ask for zone transfers, ANY and other types that are no data. */
static bool is_asked_by_programs(uint16_t type)
{
    return type != 0 && type != DNS_OPT && !(type >= 249 && type <= 255);
}

int dns_read_query(const uint8_t *p, size_t len, struct dns_query *ret)
{
    struct reader r = { .p = p, .len = len };
    uint16_t flags, questions, answers, authorities, additions, class;
    bool plain;

    *ret = (struct dns_query){ .room = ROOM_MIN };
    if (len < HEAD)
        return -1;
    ret->id = take16(&r);
    flags = take16(&r);
    questions = take16(&r);
    answers = take16(&r);
    authorities = take16(&r);
    additions = take16(&r);
    ret->recursion = flags & FLAG_RD;
    if (flags & FLAG_QR)
        return -1;
    if (flags & OPCODE)
        return DNS_NOTIMP;
    if (len > DNS_QUERY_MAX || questions != 1 || answers || authorities || additions > 2)
        return DNS_FORMERR;
    plain = take_name(&r, ret->name);
    if (!plain)
        ret->name[0] = '\0';
    ret->type = take16(&r);
    class = take16(&r);
    read_additions(&r, additions, ret);
    if (r.bad) {
        ret->name[0] = '\0';
        return DNS_FORMERR;
    }
    if (!plain || class != CLASS_IN || !is_asked_by_programs(ret->type))
        return DNS_REFUSED;
    return 0;
}

/* ------------------------------------------------------------------ writing */

struct writer {
    uint8_t *p;
    size_t len, size;
    bool full;
};

static void put(struct writer *w, const void *bytes, size_t n)
{
    if (w->full || w->size - w->len < n) {
        w->full = true;
        return;
    }
    memcpy(w->p + w->len, bytes, n);
    w->len += n;
}

static void put16(struct writer *w, unsigned v)
{
    const uint8_t bytes[] = { (uint8_t)(v >> 8), (uint8_t)v };

    put(w, bytes, 2);
}

static void put32(struct writer *w, uint32_t v)
{
    put16(w, v >> 16);
    put16(w, v & 0xFFFF);
}

static void put_name(struct writer *w, const char *name)
{
    while (*name) {
        size_t n = strcspn(name, ".");
        uint8_t len = (uint8_t)n;

        put(w, &len, 1);
        put(w, name, n);
        name += n + (name[n] == '.');
    }
    put(w, "", 1);
}

static void put_head(struct writer *w, uint16_t id, unsigned flags, const unsigned counts[4])
{
    put16(w, id);
    put16(w, flags);
    for (int i = 0; i < 4; i++)
        put16(w, counts[i]);
}

static void put_question(struct writer *w, const struct dns_query *q)
{
    put_name(w, q->name);
    put16(w, q->type);
    put16(w, CLASS_IN);
}

static void put_opt(struct writer *w)
{
    put(w, "", 1);
    put16(w, DNS_OPT);
    put16(w, DNS_UDP_MAX);
    put32(w, 0);
    put16(w, 0);
}

size_t dns_write_query(const struct dns_query *q, uint16_t id, uint8_t out[DNS_QUERY_MAX])
{
    const unsigned counts[] = { 1, 0, 0, 1 };
    struct writer w = { .p = out, .size = DNS_QUERY_MAX };

    put_head(&w, id, FLAG_RD, counts);
    put_question(&w, q);
    put_opt(&w);
    return w.full ? 0 : w.len;
}

static unsigned answer_flags(const struct dns_query *q, unsigned code)
{
    return FLAG_QR | FLAG_RA | (q->recursion ? FLAG_RD : 0) | (code & 0xF);
}

size_t dns_write_code(const struct dns_query *q, unsigned code, bool truncated, uint8_t *out,
                      size_t size)
{
    bool asked = q->name[0] != '\0' || q->type != 0;
    const unsigned counts[] = { asked, 0, 0, q->edns };
    struct writer w = { .p = out, .size = size };

    put_head(&w, q->id, answer_flags(q, code) | (truncated ? FLAG_TC : 0), counts);
    if (asked)
        put_question(&w, q);
    if (q->edns)
        put_opt(&w);
    return w.full ? 0 : w.len;
}

static uint32_t shown_ttl(uint32_t ttl)
{
    return ttl < TTL_MAX ? ttl : TTL_MAX;
}

/* Each name is written once, where it first occurs as the target of an alias; owners are pointers to it. */
static size_t put_alias(struct writer *w, size_t owner, const struct dns_alias *alias)
{
    size_t length_at, name_at;

    put16(w, (unsigned)(POINTER << 8 | owner));
    put16(w, DNS_CNAME);
    put16(w, CLASS_IN);
    put32(w, shown_ttl(alias->ttl));
    length_at = w->len;
    put16(w, 0);
    name_at = w->len;
    put_name(w, alias->name);
    if (!w->full) {
        w->p[length_at] = (uint8_t)((w->len - name_at) >> 8);
        w->p[length_at + 1] = (uint8_t)(w->len - name_at);
    }
    return name_at;
}

static void put_address(struct writer *w, size_t owner, const struct dns_address *a)
{
    unsigned n = a->family == AF_INET ? 4 : 16;

    put16(w, (unsigned)(POINTER << 8 | owner));
    put16(w, a->family == AF_INET ? DNS_A : DNS_AAAA);
    put16(w, CLASS_IN);
    put32(w, shown_ttl(a->ttl));
    put16(w, n);
    put(w, a->bytes, n);
}

size_t dns_write_addresses(const struct dns_query *q, const struct dns_answer *a, uint8_t *out,
                           size_t size)
{
    const unsigned counts[] = { 1, (unsigned)(a->alias_count + a->address_count), 0, q->edns };
    struct writer w = { .p = out, .size = size };
    size_t owner = HEAD;

    put_head(&w, q->id, answer_flags(q, a->code), counts);
    put_question(&w, q);
    for (size_t i = 0; i < a->alias_count; i++)
        owner = put_alias(&w, owner, &a->aliases[i]);
    for (size_t i = 0; i < a->address_count; i++)
        put_address(&w, owner, &a->addresses[i]);
    if (q->edns)
        put_opt(&w);
    return w.full ? dns_write_code(q, a->code, true, out, size) : w.len;
}

size_t dns_write_copy(const struct dns_query *q, const struct dns_answer *a, const uint8_t *p,
                      uint8_t *out, size_t size)
{
    const unsigned counts[] = { 1, a->counts[0], a->counts[1], q->edns };
    struct writer w = { .p = out, .size = size };

    put_head(&w, q->id, answer_flags(q, a->code), counts);
    put(&w, p + HEAD, a->keep - HEAD);
    if (q->edns)
        put_opt(&w);
    return w.full ? dns_write_code(q, a->code, true, out, size) : w.len;
}

/* ------------------------------------------------------------------ answers */

static bool is_question(struct reader *r, const struct dns_query *q)
{
    char name[DNS_NAME_MAX];
    bool same = take_name(r, name) && strcasecmp(name, q->name) == 0;

    return take16(r) == q->type && take16(r) == CLASS_IN && !r->bad && same;
}

static bool is_address(const struct record *rec)
{
    return rec->class == CLASS_IN &&
           ((rec->type == DNS_A && rec->len == 4) || (rec->type == DNS_AAAA && rec->len == 16));
}

static void add_address(struct dns_answer *a, const struct record *rec, const uint8_t *data)
{
    struct dns_address *to = &a->addresses[a->address_count];

    if (a->address_count == DNS_ADDRESSES_MAX)
        return;
    to->family = rec->type == DNS_A ? AF_INET : AF_INET6;
    to->ttl = rec->ttl & 0x80000000 ? 0 : rec->ttl;
    memcpy(to->bytes, data, rec->len);
    a->address_count++;
}

static bool add_alias(struct dns_answer *a, const struct reader *r, const struct record *rec)
{
    struct reader target = { .p = r->p, .len = rec->data + rec->len, .at = rec->data };
    struct dns_alias *to = &a->aliases[a->alias_count];

    if (a->alias_count == DNS_CHAIN_MAX || !take_name(&target, to->name) || !to->name[0])
        return false;
    to->ttl = rec->ttl & 0x80000000 ? 0 : rec->ttl;
    a->alias_count++;
    return true;
}

/*
 * The chain may come in any order: each pass over the answers looks for what belongs to the name at
 * its present end. Records of other owners are ignored.
 */
static void follow(struct reader r, unsigned count, const struct dns_query *q, struct dns_answer *a)
{
    const struct reader begin = r;
    const char *end = q->name;

    for (bool moved = true; moved;) {
        moved = false;
        r = begin;
        for (unsigned i = 0; i < count && !moved; i++) {
            char owner[DNS_NAME_MAX];
            struct record rec;

            if (!take_record(&r, owner, &rec) || strcasecmp(owner, end) != 0 ||
                rec.class != CLASS_IN)
                continue;
            if (rec.type == DNS_CNAME && a->address_count == 0 && add_alias(a, &r, &rec)) {
                end = a->aliases[a->alias_count - 1].name;
                moved = true;
            } else if (rec.type == q->type && is_address(&rec)) {
                add_address(a, &rec, r.p + rec.data);
            }
        }
    }
}

int dns_read_answer(const uint8_t *p, size_t len, const struct dns_query *q, uint16_t id,
                    struct dns_answer *ret)
{
    bool addresses_asked = q->type == DNS_A || q->type == DNS_AAAA;
    struct reader r = { .p = p, .len = len }, answers;
    unsigned flags, counts[3];

    *ret = (struct dns_answer){ 0 };
    if (len < HEAD || take16(&r) != id)
        return -1;
    flags = take16(&r);
    if (!(flags & FLAG_QR) || flags & OPCODE || take16(&r) != 1)
        return -1;
    for (int i = 0; i < 3; i++)
        counts[i] = take16(&r);
    if (counts[0] + counts[1] + counts[2] > RECORDS_MAX || !is_question(&r, q))
        return -1;
    ret->code = flags & 0xF;
    ret->truncated = flags & FLAG_TC;
    answers = r;
    for (unsigned i = 0; i < counts[0] + counts[1] + counts[2] && !ret->truncated; i++) {
        struct record rec;

        if (i == counts[0] + counts[1])
            ret->keep = r.at;
        take_record(&r, NULL, &rec);
        if (r.bad)
            return -1;
        if (!addresses_asked && i < counts[0] + counts[1] && is_address(&rec))
            ret->strange = true;
    }
    if (!ret->keep)
        ret->keep = r.at;
    ret->counts[0] = (uint16_t)counts[0];
    ret->counts[1] = (uint16_t)counts[1];
    if (addresses_asked && !ret->truncated)
        follow(answers, counts[0], q, ret);
    return 0;
}
