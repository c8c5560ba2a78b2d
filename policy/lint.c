/*
 * Warnings about rules that are legal but hardly meant. Each kind is a function that looks at one
 * rule and says what is wrong with it, or nothing; they guess on the quiet side.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cove/mem.h"
#include "policy_private.h"

#define PROBE_LEN  64 /* exponential and cubic patterns give up on this, quadratic ones do not */
#define PREFIX_MAX 256
#define PAIRS_MAX  5000 /* rules among which pairs are compared */

struct lint {
    const struct policy *p;
    char what[200];
};

/* --- patterns -------------------------------------------------------------------------------- */

static bool is_repetition(char c)
{
    return c && strchr("*+?{", c);
}

/* The plain text at the beginning of a pattern, behind its ^. */
static size_t leading_text(const char *pattern, char *out, size_t size)
{
    size_t n = 0;

    if (*pattern == '^')
        pattern++;
    while (*pattern && n + 1 < size) {
        if (*pattern == '\\' && ispunct((unsigned char)pattern[1]))
            pattern++;
        else if (strchr("\\^$.[|()*+?{", *pattern))
            break;
        if (is_repetition(pattern[1]))
            break;
        out[n++] = *pattern++;
    }
    out[n] = '\0';
    return n;
}

/*
 * Does prefix + pump, pump, pump ... + something that cannot match take forever? The pattern itself
 * stands at the end, or PCRE2 would see at once that a character it needs is missing.
 */
static bool is_slow_with(const struct rule *r, const char *prefix, const char *pump)
{
    char text[2 * PREFIX_MAX + PROBE_LEN + 1];
    size_t len = strlen(prefix), pump_len = strlen(pump), tail = strlen(r->pattern);

    memcpy(text, prefix, len);
    for (size_t i = 0; i < PROBE_LEN; i++)
        text[len++] = pump[i % pump_len];
    text[len++] = '\002';
    tail = tail < PREFIX_MAX ? tail : PREFIX_MAX;
    memcpy(text + len, r->pattern + strlen(r->pattern) - tail, tail);
    return regex_is_slow_on(r->regex, text, len + tail);
}

/* Attacks are made of the pattern's own characters, alone and by neighbours, and of common ones. */
static bool is_slow(const struct rule *r)
{
    static const char *const common[] = { "a", "0", " ", "/", "-", "a ", " a", "/a", "=" };
    char prefix[PREFIX_MAX];

    leading_text(r->pattern, prefix, sizeof(prefix));
    for (size_t i = 0; i < ARRAY_SIZE(common); i++) {
        if (is_slow_with(r, prefix, common[i]) || is_slow_with(r, "", common[i]))
            return true;
    }
    for (const char *c = r->pattern; *c; c++) {
        char one[] = { *c, '\0' }, two[] = { *c, c[1], '\0' };

        if (!isalnum((unsigned char)*c))
            continue;
        if (is_slow_with(r, prefix, one) || is_slow_with(r, "", one) ||
            (isalnum((unsigned char)c[1]) && is_slow_with(r, prefix, two)))
            return true;
    }
    return false;
}

/* An anchor in the middle, with something before ^ or behind $ that must be there too. */
static bool is_contradiction(const char *pattern)
{
    for (const char *c = pattern; *c; c++) {
        if (*c == '\\' && c[1]) {
            c++;
        } else if (*c == '[') {
            c += strcspn(c, "]");
            if (*c == '\0')
                return false;
        } else if (*c == '$' && isalnum((unsigned char)c[1]) && !is_repetition(c[2])) {
            return true;
        } else if (*c == '^' && c > pattern && isalnum((unsigned char)c[-1])) {
            return !strpbrk(pattern, "|"); /* an option before the ^ would be legal */
        }
    }
    return false;
}

/* --- one rule -------------------------------------------------------------------------------- */

static bool matches_everything(struct lint *l, const struct rule *r)
{
    if (!regex_matches_empty(r->regex))
        return false;
    snprintf(l->what, sizeof(l->what), "matches everything, also the empty text");
    return true;
}

static bool never_matches(struct lint *l, const struct rule *r)
{
    const char *why = NULL, *p = r->pattern;

    if (is_contradiction(p))
        why = "something must come before a ^ or behind a $";
    else if (r->form == POLICY_FORM_WORDS &&
             (strncmp(p, "^/", 2) == 0 || strncmp(p, "^\\/", 3) == 0))
        why = "words begin with the program's name, without its folder";
    else if (r->form == POLICY_FORM_WORDS && (strstr(p, "  ") || strncmp(p, "^ ", 2) == 0))
        why = "words are joined by one blank";
    else if (r->form == POLICY_FORM_WORDS && (strstr(p, "\\n") || strstr(p, "\\t")))
        why = "words hold no newlines and tabs, they became blanks";
    if (!why)
        return false;
    snprintf(l->what, sizeof(l->what), "can never match: %s", why);
    return true;
}

static bool runs_for_long(struct lint *l, const struct rule *r)
{
    if (!is_slow(r))
        return false;
    snprintf(l->what, sizeof(l->what),
             "catastrophic: on some texts it takes too many steps, and those are then refused");
    return true;
}

static bool excepts_nothing(struct lint *l, const struct rule *r)
{
    if (!r->allow || strcmp(r->name, "*") == 0)
        return false;
    for (size_t i = 0; i < l->p->rule_count; i++) {
        const struct rule *other = &l->p->rules[i];

        if (!other->allow && other->form == r->form && strcmp(other->name, r->name) == 0)
            return false;
    }
    snprintf(l->what, sizeof(l->what), "an exception to a rule that is not there (or not %s)",
             policy_form_name(r->form));
    return true;
}

/* --- two rules ------------------------------------------------------------------------------- */

static bool is_closed(const char *pattern, size_t len)
{
    int open = 0;

    for (size_t i = 0; i < len; i++) {
        if (pattern[i] == '\\')
            i++;
        else if (pattern[i] == '[')
            return false; /* not worth the trouble */
        else if (pattern[i] == '(' || pattern[i] == ')')
            open += pattern[i] == '(' ? 1 : -1;
    }
    return open == 0 && pattern[len - 1] != '$' && pattern[len - 1] != '\\';
}

/* Is everything that b matches surely matched by a? Only if b is a and more. */
static bool pattern_covers(const struct rule *a, const struct rule *b)
{
    size_t len = strlen(a->pattern);

    if (a->form != b->form || a->caseless != b->caseless ||
        strncmp(a->pattern, b->pattern, len) != 0)
        return false;
    if (b->pattern[len] == '\0')
        return true;
    return !strchr(a->pattern, '|') && !strchr(b->pattern, '|') && is_closed(a->pattern, len) &&
           !is_repetition(b->pattern[len]);
}

static bool is_shadowed(struct lint *l, const struct rule *r)
{
    const struct policy *p = l->p;

    for (size_t i = 0; !r->allow && i < p->rule_count && p->rule_count <= PAIRS_MAX; i++) {
        const struct rule *other = &p->rules[i];

        if (other == r || other->allow || !pattern_covers(other, r))
            continue;
        if (strcmp(other->pattern, r->pattern) == 0 && other > r)
            continue; /* of two equal ones, the later is too much */
        if (!scope_covers(&p->sections[other->section].scope, &p->sections[r->section].scope))
            continue;
        snprintf(l->what, sizeof(l->what),
                 "shadowed: rule '%s' (line %u) refuses all of it already", other->name,
                 other->line);
        return true;
    }
    return false;
}

static bool has_a_twin(struct lint *l, const struct rule *r)
{
    for (const struct rule *other = l->p->rules; other < r && l->p->rule_count <= PAIRS_MAX;
         other++) {
        if (other->allow || r->allow || other->section != r->section ||
            strcmp(other->name, r->name) != 0)
            continue;
        snprintf(l->what, sizeof(l->what), "line %u has a rule of the same name", other->line);
        return true;
    }
    return false;
}

/* --- sections -------------------------------------------------------------------------------- */

static bool is_known(const char *item, const char *const dialects[])
{
    item += *item == '!';
    if (strpbrk(item, "*?["))
        return true;
    for (; *dialects; dialects++) {
        if (strcmp(*dialects, item) == 0)
            return true;
    }
    return false;
}

static size_t lint_section(struct lint *l, const struct section *s, const char *const dialects[],
                           policy_warn_fn fn, void *ctx)
{
    const char *item = s->scope.lists[SCOPE_DIALECT];
    size_t count = 0;

    for (; item && *item; item += strlen(item) + 1) {
        if (is_known(item, dialects))
            continue;
        snprintf(l->what, sizeof(l->what), "section [%.80s]: there is no dialect '%.40s'",
                 s->scope.head, item);
        fn(ctx, &(struct policy_warning){ s->file, s->line, NULL, l->what });
        count++;
    }
    return count;
}

size_t policy_lint(const struct policy *p, const char *const dialects[], policy_warn_fn fn,
                   void *ctx)
{
    static bool (*const looks[])(struct lint *, const struct rule *) = {
        matches_everything, never_matches, runs_for_long, excepts_nothing, is_shadowed, has_a_twin
    };
    struct lint l = { .p = p };
    size_t count = 0;

    for (size_t i = 0; i < p->section_count && dialects; i++)
        count += lint_section(&l, &p->sections[i], dialects, fn, ctx);
    for (size_t i = 0; i < p->rule_count; i++) {
        const struct rule *r = &p->rules[i];

        for (size_t k = 0; k < ARRAY_SIZE(looks); k++) {
            if (!looks[k](&l, r))
                continue;
            fn(ctx, &(struct policy_warning){ r->file, r->line, r->name, l.what });
            count++;
        }
    }
    return count;
}
