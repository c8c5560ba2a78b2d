/*
 * Warnings about rules that are legal but hardly meant. Each kind is a function that looks at one
 * rule and says what is wrong with it, or nothing. When in doubt they say nothing.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/deny/policy_private.h"

/* bytes: patterns with exponential or cubic effort run into the limit on a text of this length, quadratic ones do not */
#define PROBE_LEN    64
#define PREFIX_MAX   256
#define LINT_TIME_MS 250  /* for one rule on a few short commands */
#define PAIRS_MAX    5000 /* rules among which pairs are compared */

struct lint {
    const struct policy *p;
    const char *const *dialects; /* NULL: not known */
    char what[200];
};

/* --- patterns -------------------------------------------------------------------------------- */

static bool is_repetition(char c)
{
    return c && strchr("*+?{", c);
}

/* Copies the plain text at the beginning of a pattern, behind its ^. */
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
 * Does matching take too many steps on a text of `prefix`, many times `pump`, and an end that cannot match? The
 * pattern's own text is added at the end, because otherwise PCRE2 would see at once that a character it needs is
 * missing.
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
    static const char *const common[] = { "a", "0", " ",  "/", "-", "a ", " a", "/a", "=",
                                          ",", ".", "a,", ";", "|", "\"", ":",  "_" };
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

/* Can the pattern never match, because text is required before a ^ or behind a $? */
static bool is_contradiction(const char *pattern)
{
    for (const char *c = pattern; *c; c++) {
        if (*c == '\\' && c[1]) {
            c++;
        } else if (*c == '[') {
            c += strcspn(c, "]");
            if (*c == '\0')
                return false;
        } else if (*c == '$' && (isalnum((unsigned char)c[1]) || c[1] == '^') &&
                   !is_repetition(c[2])) {
            return true;
        } else if (*c == '^' && c > pattern && isalnum((unsigned char)c[-1])) {
            /* with an alternation, the ^ may begin a pattern of its own */
            return !strpbrk(pattern, "|");
        }
    }
    return false;
}

/* --- one rule -------------------------------------------------------------------------------- */

/* Does the pattern match a few commands that have nothing in common? */
static bool matches_everything(struct lint *l, const struct rule *r)
{
    static const char *const any[] = { "ls -l", "npm install", "x", "Make_2", "[ 1 = 1 ]" };
    struct matcher *m = matcher_new(LINT_TIME_MS);
    bool all = m != NULL;

    for (size_t i = 0; i < ARRAY_SIZE(any) && all; i++)
        all = matcher_run(m, r->regex, any[i], strlen(any[i])) == MATCH_YES;
    matcher_free(m);
    if (all)
        snprintf(l->what, sizeof(l->what), "matches everything: %s",
                 r->allow ? "it lifts the rule altogether" : "no command gets past it");
    return all;
}

/* The first of these signs that each match must contain: outside of groups and classes, and not
 * optional; '\0' if there is none. */
static char required_sign(const char *pattern, const char *signs)
{
    int depth = 0;
    char found = '\0';

    for (const char *c = pattern; *c; c++) {
        bool escaped = *c == '\\' && c[1];

        if (*c == '[') {
            c += strcspn(c, "]");
            if (*c == '\0')
                break;
            continue;
        }
        if (*c == '|' && depth == 0)
            return '\0'; /* an alternation: neither side must be there */
        c += escaped;
        if (!escaped && (*c == '(' || *c == ')'))
            depth += *c == '(' ? 1 : -1;
        else if (depth == 0 && !found && strchr(signs, *c) && (*c == '|' ? escaped : true) &&
                 (c[1] == '+' || !is_repetition(c[1])))
            found = *c;
    }
    return found;
}

/* Signs that words never hold, because the shell takes them away before. */
static const char *eaten_by_the_shell(const char *pattern)
{
    if (required_sign(pattern, "|;&"))
        return "commands are cut apart at | ; and &, only a raw rule sees these";
    if (required_sign(pattern, "'\""))
        return "quotes were taken away, only a raw rule sees them";
    return NULL;
}

static bool never_matches(struct lint *l, const struct rule *r)
{
    const char *why = NULL, *p = r->pattern;

    if (is_contradiction(p))
        why = "something must come before a ^ or behind a $";
    else if (strstr(p, "(?!)") || strstr(p, "(*F"))
        why = "a part of it fails always";
    else if (r->form == POLICY_FORM_WORDS &&
             (strncmp(p, "^/", 2) == 0 || strncmp(p, "^\\/", 3) == 0))
        why = "words begin with the program's name, without its folder";
    else if (r->form == POLICY_FORM_WORDS && (strstr(p, "  ") || strncmp(p, "^ ", 2) == 0))
        why = "words are joined by one blank";
    else if (r->form == POLICY_FORM_WORDS && (strstr(p, "\\n") || strstr(p, "\\t")))
        why = "words hold no newlines and tabs, they became blanks";
    else if (r->form == POLICY_FORM_WORDS)
        why = eaten_by_the_shell(p);
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

static bool ever_hold_together(const struct lint *l, const struct rule *a, const struct rule *b);

static bool excepts_nothing(struct lint *l, const struct rule *r)
{
    bool elsewhere = false;

    if (!r->allow || strcmp(r->name, "*") == 0)
        return false;
    for (size_t i = 0; i < l->p->rule_count; i++) {
        const struct rule *other = &l->p->rules[i];

        if (other->allow || other->form != r->form || strcmp(other->name, r->name) != 0)
            continue;
        if (ever_hold_together(l, other, r))
            return false;
        elsewhere = true;
    }
    snprintf(l->what, sizeof(l->what),
             elsewhere ? "an exception to a rule that does not hold for the same dialects"
                       : "an exception to a rule that is not there (or not %s)",
             policy_form_name(r->form));
    return true;
}

/* allow x /^rm -rf build/ lifts the rule for `rm -rf build /etc` as well. */
static bool excepts_too_much(struct lint *l, const struct rule *r)
{
    size_t len = strlen(r->pattern);
    bool open_end = r->pattern[len - 1] != '$' || (len > 1 && r->pattern[len - 2] == '\\');

    if (!r->allow || r->form != POLICY_FORM_WORDS || (!open_end && r->pattern[0] == '^'))
        return false;
    snprintf(l->what, sizeof(l->what),
             "an exception that does not %s also lifts the rule for other words beside these",
             open_end ? "end with $" : "begin with ^");
    return true;
}

static bool ever_hold_together(const struct lint *l, const struct rule *a, const struct rule *b)
{
    for (const char *const *d = l->dialects; d && *d; d++) {
        struct policy_query q = { .dialect = *d };

        if (scope_holds_dialect(&l->p->sections[a->section].scope, &q) &&
            scope_holds_dialect(&l->p->sections[b->section].scope, &q))
            return true;
    }
    return !l->dialects;
}

/* --- two rules ------------------------------------------------------------------------------- */

static bool is_closed(const char *pattern, size_t len)
{
    int open = 0;

    for (size_t i = 0; i < len; i++) {
        if (pattern[i] == '\\')
            i++;
        else if (pattern[i] == '[')
            return false; /* too long to compare */
        else if (pattern[i] == '(' || pattern[i] == ')')
            open += pattern[i] == '(' ? 1 : -1;
    }
    return open == 0 && pattern[len - 1] != '$' && pattern[len - 1] != '\\';
}

static bool is_plain_text(const char *pattern)
{
    return !strpbrk(pattern, "\\^$.[]|()*+?{}");
}

static bool must_contain(const char *pattern, const char *text)
{
    char literal[256];

    prefilter_literal(pattern, literal, sizeof(literal));
    return strstr(literal, text);
}

/* Is everything that b matches surely matched by a? Only if b is a and more, or a is a piece of it. */
static bool pattern_covers(const struct rule *a, const struct rule *b)
{
    size_t len = strlen(a->pattern);

    if (a->form != b->form || (b->caseless && !a->caseless))
        return false;
    if (is_plain_text(a->pattern) && !b->caseless && must_contain(b->pattern, a->pattern))
        return true;
    if (strncmp(a->pattern, b->pattern, len) != 0)
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
            continue; /* of two equal rules, warn about the later one */
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

static bool holds_for_somebody(const struct section *s, const char *const dialects[])
{
    for (; *dialects; dialects++) {
        struct policy_query q = { .dialect = *dialects };

        if (scope_holds_dialect(&s->scope, &q))
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
    if (count || holds_for_somebody(s, dialects))
        return count;
    snprintf(l->what, sizeof(l->what), "section [%.80s]: it holds for nobody", s->scope.head);
    fn(ctx, &(struct policy_warning){ s->file, s->line, NULL, l->what });
    return 1;
}

size_t policy_lint(const struct policy *p, const char *const dialects[], policy_warn_fn fn,
                   void *ctx)
{
    static bool (*const looks[])(struct lint *, const struct rule *) = {
        matches_everything, never_matches, runs_for_long, excepts_nothing,
        excepts_too_much,   is_shadowed,   has_a_twin
    };
    struct lint l = { .p = p, .dialects = dialects };
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
