/*
 * A bundle's text into sections and rules. The grammar, a line each:
 *
 *   [execute]  [dialect=executor,e2b tenant=acme template=*]  [dialect=!execute]
 *   deny  NAME  words|raw  /pattern/[i]  "reason shown to the caller"
 *   allow NAME  words|raw  /pattern/[i]  ["why"]      an exception to the deny rule NAME, or to *
 *   exec-time = on|off     seccomp = PROFILE     audit = refusals|all     max-text = SIZE     max-time = TIME
 *   # comment
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "policy/deny/policy_private.h"

struct parser {
    struct policy *p;
    const char *file;
    unsigned line;
    size_t section;
    size_t waiting[POLICY_INCLUDE_DEPTH + 1]; /* sections of the files that include this one */
    unsigned depth;
    char *text; /* the line, NUL-terminated; words are cut out of it in place */
    char *at;
    char rule[POLICY_NAME_MAX + 1]; /* for error messages; "" when not in a rule */
    struct cove_err *e;
};

/* --- errors and small things ----------------------------------------------------------------- */

/* column counts from 1; at points into the line. */
static int fail_at(struct parser *ps, const char *at, const char *what)
{
    unsigned column = (unsigned)(at - ps->text) + 1;

    if (ps->rule[0])
        return cove_fail(ps->e, COVE_INVALID, "%s:%u:%u: rule '%s': %s", ps->file, ps->line, column,
                         ps->rule, what);
    return cove_fail(ps->e, COVE_INVALID, "%s:%u:%u: %s", ps->file, ps->line, column, what);
}

static int no_memory(struct parser *ps)
{
    return cove_fail(ps->e, COVE_INTERNAL, "out of memory");
}

static int grow(struct parser *ps, void **array, size_t count, size_t *cap, size_t size)
{
    size_t want = *cap ? *cap * 2 : 32;
    void *more;

    if (count < *cap)
        return 0;
    more = reallocarray(*array, want, size);
    if (!more)
        return no_memory(ps);
    *array = more;
    *cap = want;
    return 0;
}

static void skip_blanks(struct parser *ps)
{
    ps->at += strspn(ps->at, " \t\r");
}

static bool at_end(struct parser *ps)
{
    skip_blanks(ps);
    return *ps->at == '\0' || *ps->at == '#';
}

/* The next word, cut out of the line; NULL at its end. */
static char *take_word(struct parser *ps)
{
    char *word;

    if (at_end(ps))
        return NULL;
    word = ps->at;
    ps->at += strcspn(ps->at, " \t\r");
    if (*ps->at)
        *ps->at++ = '\0';
    return word;
}

static bool is_name(const char *s)
{
    return *s && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
                     strlen(s);
}

/* --- marks ----------------------------------------------------------------------------------- */

static int intern_file(struct parser *ps, const char *name)
{
    struct policy *p = ps->p;

    for (size_t i = p->file_count; i-- > 0;) {
        if (strcmp(p->files[i], name) == 0) {
            ps->file = p->files[i];
            return 0;
        }
    }
    if (grow(ps, (void **)&p->files, p->file_count, &p->file_cap, sizeof(*p->files)) < 0)
        return -1;
    p->files[p->file_count] = strdup(name);
    if (!p->files[p->file_count])
        return no_memory(ps);
    ps->file = p->files[p->file_count++];
    return 0;
}

static int on_mark(struct parser *ps)
{
    char kind = ps->text[1], *end = NULL;
    unsigned long line = kind ? strtoul(ps->text + 2, &end, 10) : 0;

    if (!end || *end != ' ' || line == 0 || line > 100000000)
        return fail_at(ps, ps->text, "a broken mark: this is not a bundle");
    if (kind == MARK_ENTER) {
        if (ps->depth == POLICY_INCLUDE_DEPTH)
            return fail_at(ps, ps->text, "included too deep");
        ps->waiting[ps->depth++] = ps->section;
        ps->section = 0;
    } else if (kind == MARK_LEAVE && ps->depth > 0) {
        ps->section = ps->waiting[--ps->depth];
    } else if (kind == MARK_FILE && ps->depth == 0) {
        ps->section = 0;
    } else {
        return fail_at(ps, ps->text, "a broken mark: this is not a bundle");
    }
    if (intern_file(ps, end + 1) < 0)
        return -1;
    ps->line = (unsigned)line - 1;
    return 0;
}

/* --- sections and settings ------------------------------------------------------------------- */

static int add_section(struct parser *ps, const struct scope *scope)
{
    struct policy *p = ps->p;

    if (grow(ps, (void **)&p->sections, p->section_count, &p->section_cap, sizeof(*p->sections)) <
        0)
        return -1;
    p->sections[p->section_count] = (struct section){
        .scope = *scope, .file = ps->file, .line = ps->line, .exec_time = -1, .audit_all = -1
    };
    ps->section = p->section_count++;
    return 0;
}

static int on_section(struct parser *ps)
{
    char *head = ps->at + 1, *close = strchr(head, ']');
    struct scope scope;
    size_t at = 0;

    if (!close)
        return fail_at(ps, ps->at, "section: the closing ] is missing");
    *close = '\0';
    ps->at = close + 1;
    if (!at_end(ps))
        return fail_at(ps, ps->at, "section: text follows the ]");
    if (scope_parse(head, &scope, &at, ps->e) < 0) {
        struct cove_err why = *ps->e;

        return fail_at(ps, head + at, why.msg);
    }
    if (add_section(ps, &scope) < 0) {
        scope_done(&scope);
        return -1;
    }
    return 0;
}

static int parse_choice(struct parser *ps, const char *value, const char *no, const char *yes,
                        int *ret)
{
    char what[80];

    if (strcmp(value, yes) != 0 && strcmp(value, no) != 0) {
        snprintf(what, sizeof(what), "neither %s nor %s", yes, no);
        return fail_at(ps, value, what);
    }
    *ret = strcmp(value, yes) == 0;
    return 0;
}

static int set_exec_time(struct parser *ps, struct section *s, const char *value)
{
    return parse_choice(ps, value, "off", "on", &s->exec_time);
}

static int set_audit(struct parser *ps, struct section *s, const char *value)
{
    return parse_choice(ps, value, "refusals", "all", &s->audit_all);
}

/* The value must be a profile's name, never a path: all profiles are in one folder. */
static int set_seccomp(struct parser *ps, struct section *s, const char *value)
{
    if (!is_name(value) || value[0] == '.' || strlen(value) > POLICY_NAME_MAX)
        return fail_at(ps, value, "seccomp: not a profile's name");
    free(s->profile);
    s->profile = strdup(value);
    s->profile_file = ps->file;
    s->profile_line = ps->line;
    return s->profile ? 0 : no_memory(ps);
}

static int set_max_text(struct parser *ps, struct section *s, const char *value)
{
    if (text_parse_bytes(value, &s->max_text, NULL) < 0 || s->max_text < 1024 ||
        s->max_text > POLICY_TEXT_MAX)
        return fail_at(ps, value, "max-text: a size from 1K to 64M");
    return 0;
}

static int set_max_time(struct parser *ps, struct section *s, const char *value)
{
    if (text_parse_ms(value, &s->max_time_ms, NULL) < 0 || s->max_time_ms < 10 ||
        s->max_time_ms > 60000)
        return fail_at(ps, value, "max-time: a time from 10ms to 60s");
    return 0;
}

static const struct setting {
    const char *name;
    int (*set)(struct parser *ps, struct section *s, const char *value);
} settings[] = {
    { "exec-time", set_exec_time }, { "seccomp", set_seccomp },   { "audit", set_audit },
    { "max-text", set_max_text },   { "max-time", set_max_time },
};

static int on_setting(struct parser *ps, const char *name)
{
    char *equals = take_word(ps), *value = take_word(ps);

    if (!equals || strcmp(equals, "=") != 0 || !value)
        return fail_at(ps, name, "neither a rule, a [section] nor a setting (name = value)");
    if (!at_end(ps))
        return fail_at(ps, ps->at, "text follows the value");
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
        if (strcmp(settings[i].name, name) == 0)
            return settings[i].set(ps, &ps->p->sections[ps->section], value);
    }
    return fail_at(ps, name,
                   "no such setting; there are exec-time, seccomp, audit, max-text and max-time");
}

/* --- rules ----------------------------------------------------------------------------------- */

static int parse_name(struct parser *ps, struct rule *r)
{
    char *at = ps->at, *name = take_word(ps);

    if (!name)
        return fail_at(ps, at, "a name is missing");
    if (!(is_name(name) || (r->allow && strcmp(name, "*") == 0)) || strlen(name) > POLICY_NAME_MAX)
        return fail_at(ps, name, "a name is letters, digits, dot, dash and underscore, at most 63");
    text_copy(ps->rule, sizeof(ps->rule), name);
    r->name = strdup(name);
    return r->name ? 0 : no_memory(ps);
}

static int parse_kind(struct parser *ps, struct rule *r)
{
    char *at = ps->at, *kind = take_word(ps);

    if (kind && strcmp(kind, "words") == 0)
        r->form = POLICY_FORM_WORDS;
    else if (kind && strcmp(kind, "raw") == 0)
        r->form = POLICY_FORM_RAW;
    else
        return fail_at(ps, kind ? kind : at, "its kind must be words or raw");
    return 0;
}

/* Finds the end of a pattern, which begins with its delimiter. A backslash protects the next character. */
static char *pattern_end(char *at)
{
    char delimiter = *at;

    for (char *p = at + 1; *p; p++) {
        if (*p == '\\' && p[1])
            p++;
        else if (*p == delimiter)
            return p;
    }
    return NULL;
}

static int compile_pattern(struct parser *ps, struct rule *r, const char *begin)
{
    size_t at = 0;

    if (r->pattern[0] == '\0')
        return fail_at(ps, begin, "an empty pattern would match everything");
    if (strlen(r->pattern) > POLICY_PATTERN_MAX)
        return fail_at(ps, begin, "a pattern of more than 4096 bytes");
    if (regex_new(r->pattern, r->caseless, &r->regex, &at, ps->e) < 0) {
        struct cove_err why = *ps->e;

        return fail_at(ps, begin + at, why.msg);
    }
    return 0;
}

/* /pattern/, and an i behind it for any case. Instead of slashes: ~ % @ or ! */
static int parse_pattern(struct parser *ps, struct rule *r)
{
    char *begin, *end;

    skip_blanks(ps);
    begin = ps->at;
    if (*begin == '\0' || !strchr("/~%@!", *begin))
        return fail_at(ps, begin, "the pattern must stand between /slashes/ (or ~ % @ !)");
    end = pattern_end(begin);
    if (!end)
        return fail_at(ps, begin, "the pattern has no end");
    ps->at = end + 1;
    r->caseless = *ps->at == 'i';
    ps->at += r->caseless;
    if (*ps->at && !strchr(" \t\r", *ps->at))
        return fail_at(ps, ps->at, "after the pattern only an i may follow");
    r->pattern = strndup(begin + 1, (size_t)(end - begin - 1));
    return r->pattern ? compile_pattern(ps, r, begin + 1) : no_memory(ps);
}

static int parse_reason(struct parser *ps, struct rule *r)
{
    char *end;

    if (at_end(ps)) {
        if (!r->allow)
            return fail_at(ps, ps->at, "the \"reason\" that callers are shown is missing");
        r->reason = strdup("");
        return r->reason ? 0 : no_memory(ps);
    }
    if (*ps->at != '"' || !(end = strchr(ps->at + 1, '"')))
        return fail_at(ps, ps->at, "the reason must stand in \"quotes\"");
    *end = '\0';
    if (!r->allow && ps->at[1 + strspn(ps->at + 1, " ")] == '\0')
        return fail_at(ps, ps->at, "an empty reason");
    r->reason = strdup(ps->at + 1);
    ps->at = end + 1;
    if (!at_end(ps))
        return fail_at(ps, ps->at, "text follows the reason");
    return r->reason ? 0 : no_memory(ps);
}

static int add_rule(struct parser *ps, struct rule *r)
{
    struct policy *p = ps->p;

    if (p->rule_count == POLICY_RULES_MAX)
        return fail_at(ps, ps->text, "more than 20000 rules");
    if (grow(ps, (void **)&p->rules, p->rule_count, &p->rule_cap, sizeof(*p->rules)) < 0)
        return -1;
    p->rules[p->rule_count] = *r;
    p->rule_count++; /* from here on the rule belongs to the policy */
    p->deny_count += !r->allow;
    *r = (struct rule){ 0 };
    if (prefilter_add(p->prefilter, p->rules[p->rule_count - 1].pattern,
                      p->rules[p->rule_count - 1].caseless) < 0)
        return no_memory(ps);
    return 0;
}

static int on_rule(struct parser *ps, bool allow)
{
    struct rule r = { .file = ps->file, .line = ps->line, .section = ps->section, .allow = allow };
    int failed = parse_name(ps, &r) < 0 || parse_kind(ps, &r) < 0 || parse_pattern(ps, &r) < 0 ||
                 parse_reason(ps, &r) < 0 || add_rule(ps, &r) < 0;

    if (failed) {
        free(r.name);
        free(r.pattern);
        free(r.reason);
        regex_free(r.regex);
    }
    ps->rule[0] = '\0';
    return failed ? -1 : 0;
}

/* --- lines ----------------------------------------------------------------------------------- */

static int on_line(struct parser *ps)
{
    char *word;

    ps->at = ps->text;
    if (at_end(ps))
        return 0;
    if (*ps->at == '[')
        return on_section(ps);
    word = take_word(ps);
    if (strcmp(word, "deny") == 0 || strcmp(word, "allow") == 0)
        return on_rule(ps, word[0] == 'a');
    return on_setting(ps, word);
}

static int parse_lines(struct parser *ps, char *text, size_t len)
{
    for (char *line = text; line < text + len; ps->line++) {
        char *end = memchr(line, '\n', (size_t)(text + len - line));

        if (!end)
            end = text + len;
        *end = '\0';
        ps->text = line;
        if (strlen(line) != (size_t)(end - line))
            return fail_at(ps, line + strlen(line), "a control character: is this a binary file?");
        if ((line[0] == BUNDLE_MARK ? on_mark(ps) : on_line(ps)) < 0)
            return -1;
        line = end + 1;
    }
    return 0;
}

int parse_bundle(const char *bundle, size_t len, struct policy *p, struct cove_err *e)
{
    AUTO_FREE char *copy = malloc(len + 1);
    struct parser ps = { .p = p, .line = 1, .text = copy, .e = e };
    struct scope all = { .head = strdup("*") };

    if (!copy || !all.head || intern_file(&ps, "policy") < 0 || add_section(&ps, &all) < 0) {
        scope_done(&all);
        return no_memory(&ps);
    }
    memcpy(copy, bundle, len);
    copy[len] = '\0';
    return parse_lines(&ps, copy, len);
}
