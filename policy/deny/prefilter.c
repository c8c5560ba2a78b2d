/*
 * Which of thousands of rules can match a text at all?
 *
 * Most patterns cannot match without some plain text in it: /^mkfs(\.\w+)? / needs "mkfs". For each
 * rule three neighbouring bytes of such a text are put into a hash table; one walk over the command
 * then marks the rules whose three bytes occur. The rules of which we know no such text are always
 * marked. So the cost of a check is that of the rules that nearly match, not of all there are.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/deny/policy_private.h"

#define BUCKET_BITS 16
#define BUCKETS     (1u << BUCKET_BITS)
#define LITERAL_MAX 256

struct prefilter {
    uint64_t *always; /* rules without a literal */
    size_t rule_count, rule_cap;
    uint32_t *bucket_of;         /* per rule; BUCKETS: none */
    uint32_t first[BUCKETS + 1]; /* per bucket, where its rules begin in `rules` */
    uint32_t *rules;             /* rule numbers, by bucket */
    uint64_t used[BUCKETS / 64]; /* buckets with any rule: small enough to stay in the cache */
};

/* --- the literal of a pattern ---------------------------------------------------------------- */

struct literal_scan {
    const char *at;
    char run[LITERAL_MAX], best[LITERAL_MAX];
    size_t run_len, best_len;
    bool given_up;
};

static void end_run(struct literal_scan *s)
{
    if (s->run_len > s->best_len) {
        memcpy(s->best, s->run, s->run_len);
        s->best_len = s->run_len;
    }
    s->run_len = 0;
}

static void add_literal(struct literal_scan *s, char c)
{
    if (s->run_len + 1 < LITERAL_MAX)
        s->run[s->run_len++] = c;
    else
        end_run(s);
}

static void skip_class(struct literal_scan *s)
{
    const char *p = s->at + 1;

    if (*p == '^')
        p++;
    if (*p == ']')
        p++;
    for (; *p && *p != ']'; p++) {
        if (*p == '\\' && p[1])
            p++;
        else if (*p == '[' && p[1] == ':' && strstr(p, ":]"))
            p = strstr(p, ":]") + 1;
    }
    s->at = *p ? p + 1 : p;
}

/* A group may be optional, an alternation or a lookaround: nothing in it is surely there. */
static void skip_group(struct literal_scan *s)
{
    unsigned depth = 0;

    do {
        if (*s->at == '[') {
            skip_class(s);
            continue;
        }
        if (*s->at == '\\' && s->at[1])
            s->at++;
        else if (*s->at == '(')
            depth++;
        else if (*s->at == ')')
            depth--;
        if (s->at[0] == '(' &&
            (s->at[1] == '*' || (s->at[1] == '?' && !strchr(":=!<>|P", s->at[2]))))
            s->given_up = true; /* a verb, a comment, or options that change what the rest means */
        s->at++;
    } while (*s->at && depth > 0);
}

/* An escaped sign stands for itself; a class or an anchor ends the literal; on other escapes the search
 * for a literal gives up. */
static void scan_escape(struct literal_scan *s)
{
    char c = s->at[1];

    if (c == '\0' || (isalnum((unsigned char)c) && !strchr("bBdDsSwWAZzhHvVRnrtfK", c))) {
        s->given_up = true;
        return;
    }
    if (isalnum((unsigned char)c))
        end_run(s);
    else
        add_literal(s, c);
    s->at += 2;
}

/* The character before a ?, * or {0,n} need not be there: the literal ends before it. */
static void scan_optional(struct literal_scan *s)
{
    if (s->run_len)
        s->run_len--;
    end_run(s);
    if (*s->at == '{') { /* {2,5}; a brace that is none of these is skipped alone */
        size_t digits = strspn(s->at + 1, "0123456789, ");

        s->at += s->at[1 + digits] == '}' ? digits + 1 : 0;
    }
    s->at++;
}

static void scan_step(struct literal_scan *s)
{
    switch (*s->at) {
    case '|':
        s->given_up = true;
        break;
    case '(':
        end_run(s);
        skip_group(s);
        break;
    case '[':
        end_run(s);
        skip_class(s);
        break;
    case '\\':
        scan_escape(s);
        break;
    case '*':
    case '?':
    case '{':
        scan_optional(s);
        break;
    case '+':
    case '.':
    case '^':
    case '$':
        end_run(s);
        s->at++;
        break;
    default:
        add_literal(s, *s->at++);
    }
}

void prefilter_literal(const char *pattern, char *out, size_t out_size)
{
    struct literal_scan s = { .at = pattern };

    while (*s.at && !s.given_up)
        scan_step(&s);
    end_run(&s);
    if (s.given_up || s.best_len >= out_size)
        s.best_len = 0;
    memcpy(out, s.best, s.best_len);
    out[s.best_len] = '\0';
}

/* --- the table ------------------------------------------------------------------------------- */

static uint32_t bucket_of(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    uint32_t key = (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16;

    return key * 2654435761u >> (32 - BUCKET_BITS);
}

struct prefilter *prefilter_new(void)
{
    return calloc(1, sizeof(struct prefilter));
}

void prefilter_free(struct prefilter *f)
{
    if (!f)
        return;
    free(f->always);
    free(f->bucket_of);
    free(f->rules);
    free(f);
}

/* Chooses, of all triples of bytes in the literal, the one that the fewest other rules have. */
static uint32_t choose_bucket(const struct prefilter *f, const char *literal)
{
    size_t len = strlen(literal);
    uint32_t best = BUCKETS;

    for (size_t i = 0; i + 3 <= len; i++) {
        uint32_t b = bucket_of(literal + i);

        if (best == BUCKETS || f->first[b] < f->first[best])
            best = b;
    }
    return best;
}

int prefilter_add(struct prefilter *f, const char *pattern, bool caseless)
{
    char literal[LITERAL_MAX] = "";
    uint32_t bucket;

    if (f->rule_count == f->rule_cap) {
        size_t cap = f->rule_cap ? f->rule_cap * 2 : 64;
        uint32_t *more = reallocarray(f->bucket_of, cap, sizeof(*more));

        if (!more)
            return -1;
        f->bucket_of = more;
        f->rule_cap = cap;
    }
    if (!caseless)
        prefilter_literal(pattern, literal, sizeof(literal));
    bucket = choose_bucket(f, literal);
    f->first[bucket]++; /* a count until prefilter_finish(); [BUCKETS] counts those without */
    f->bucket_of[f->rule_count++] = bucket;
    return 0;
}

/* Counts become beginnings, and each rule goes to its place: a counting sort. */
int prefilter_finish(struct prefilter *f)
{
    uint32_t next = 0;

    f->always = calloc(prefilter_words(f) + 1, sizeof(*f->always));
    f->rules = calloc(f->rule_count + 1, sizeof(*f->rules));
    if (!f->always || !f->rules)
        return -1;
    for (uint32_t b = 0; b <= BUCKETS; b++) {
        uint32_t count = f->first[b];

        f->first[b] = next;
        if (b < BUCKETS)
            next += count;
    }
    for (size_t i = f->rule_count; i-- > 0;) {
        uint32_t b = f->bucket_of[i];

        if (b == BUCKETS) {
            f->always[i / 64] |= UINT64_C(1) << i % 64;
        } else {
            f->used[b / 64] |= UINT64_C(1) << b % 64;
            f->rules[f->first[b]++] = (uint32_t)i;
        }
    }
    /* filling has moved each beginning to the end of its bucket: moves them back */
    for (uint32_t b = BUCKETS; b > 0; b--)
        f->first[b] = f->first[b - 1];
    f->first[0] = 0;
    return 0;
}

size_t prefilter_words(const struct prefilter *f)
{
    return (f->rule_count + 63) / 64;
}

/* A bucket is marked as a whole, so its first rule tells whether that was done already. */
static void mark_bucket(const struct prefilter *f, uint32_t b, uint64_t *bits)
{
    for (uint32_t i = f->first[b]; i < f->first[b + 1]; i++) {
        uint64_t bit = UINT64_C(1) << f->rules[i] % 64;
        uint64_t *word = &bits[f->rules[i] / 64];

        if (i == f->first[b] && *word & bit)
            return;
        *word |= bit;
    }
}

void prefilter_run(const struct prefilter *f, const char *text, size_t len, uint64_t *bits)
{
    memcpy(bits, f->always, prefilter_words(f) * sizeof(*bits));
    for (size_t i = 0; i + 3 <= len; i++) {
        uint32_t b = bucket_of(text + i);

        if (f->used[b / 64] >> b % 64 & 1)
            mark_bucket(f, b, bits);
    }
}
