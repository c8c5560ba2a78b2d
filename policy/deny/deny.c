/*
 * The engine: the verdict on a command.
 *
 * A command is looked at in forms: the text as sent (raw rules), each command that lexing finds in
 * it (words rules), and each text inside that a shell would read (raw rules again). The first deny
 * rule that matches a form and has no exception for the same form ends it. Nothing here is shared
 * between threads but the policy itself, which is never written after policy_compile().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "policy/deny/policy_private.h"
#include "policy/shell/lexer.h"

/* What one check needs while it runs. */
struct check {
    const struct policy *p;
    struct matcher *matcher; /* has the request's clock */
    uint64_t *candidates;    /* a bit for each rule: the prefilter sets those that may match */
    bool *holds;             /* for each section: does it apply to this query? */
    enum policy_form words_form;
    struct policy_limits limits; /* of the request, all its commands together */
    struct policy_result *result;
    policy_explain_fn explain; /* NULL: stop at the first refusal */
    void *explain_ctx;
};

/* --- the result ------------------------------------------------------------------------------ */

/* Copies as much of the text as fits, cut between characters. Control characters and bytes that are not
 * UTF-8 become '?'. */
static void copy_shown(char *out, size_t size, const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        size_t seq = text_utf8_seq(text + i, len - i);
        bool plain = seq > 0 && (unsigned char)text[i] >= ' ' && text[i] != 127;
        size_t take = plain ? seq : 1;

        if (n + take + 4 > size) { /* room for the dots and the NUL */
            memcpy(out + n, "...", 3);
            n += 3;
            break;
        }
        if (plain)
            memcpy(out + n, text + i, seq);
        else
            out[n] = text[i] == '\n' || text[i] == '\t' ? ' ' : '?';
        n += take;
        i += seq ? seq : 1;
    }
    out[n] = '\0';
}

static void set_result(struct policy_result *r, enum policy_form form, const char *rule,
                       const char *reason, const char *text, size_t len)
{
    r->denied = true;
    r->form = form;
    text_copy(r->rule, sizeof(r->rule), rule);
    copy_shown(r->reason, sizeof(r->reason), reason, strlen(reason));
    copy_shown(r->matched, sizeof(r->matched), text, len);
}

static void set_limit(struct policy_result *r, const char *rule, const char *text, size_t len)
{
    set_result(r, POLICY_FORM_LIMIT, rule,
               "The command is too large, too deep or too costly to be judged", text, len);
}

/* Refuses because of a bound of the whole request. The reason names the bound, so that the caller can split the
 * request. */
static void set_text_limit(const struct check *c, const char *text)
{
    char reason[160];

    snprintf(reason, sizeof(reason),
             "The commands of one request may have %llu bytes together (max-text of the policy)",
             (unsigned long long)c->limits.text_bytes);
    set_result(c->result, POLICY_FORM_LIMIT, "max-text", reason, text, strlen(text));
}

static void set_time_limit(const struct check *c, const char *text, size_t len)
{
    char reason[160], time[32];

    if (matcher_is_gone(c->matcher)) {
        c->result->gone = true;
        set_result(c->result, POLICY_FORM_LIMIT, "gone", "Nobody waits for the verdict", text, len);
        return;
    }
    text_format_ms(c->limits.time_ms, time);
    snprintf(reason, sizeof(reason),
             "Judging the commands of this request takes more than %s (max-time of the policy)",
             time);
    set_result(c->result, POLICY_FORM_LIMIT, "max-time", reason, text, len);
}

/* --- matching one form ----------------------------------------------------------------------- */

static bool is_candidate(const struct check *c, size_t i)
{
    return c->candidates[i / 64] >> i % 64 & 1;
}

static enum match try_rule(const struct check *c, size_t i, enum policy_form kind, bool allow,
                           const char *text, size_t len)
{
    const struct rule *r = &c->p->rules[i];

    if (r->allow != allow || r->form != kind || !c->holds[r->section])
        return MATCH_NO;
    return matcher_run(c->matcher, r->regex, text, len);
}

/* An exception whose pattern runs into a bound does not count. */
static bool is_excepted(const struct check *c, const struct rule *deny, const char *text,
                        size_t len)
{
    for (size_t i = 0; i < c->p->rule_count; i++) {
        const struct rule *r = &c->p->rules[i];

        if (!is_candidate(c, i) || !r->allow)
            continue;
        if (strcmp(r->name, "*") != 0 && strcmp(r->name, deny->name) != 0)
            continue;
        if (try_rule(c, i, deny->form, true, text, len) == MATCH_YES)
            return true;
    }
    return false;
}

/* True when this rule refuses the form; the result says why. */
static bool judge_rule(const struct check *c, size_t i, enum policy_form kind,
                       enum policy_form shown, const char *text, size_t len)
{
    const struct rule *r = &c->p->rules[i];
    enum match m = try_rule(c, i, kind, false, text, len);

    if (m == MATCH_NO)
        return false;
    if (m == MATCH_YES && is_excepted(c, r, text, len)) {
        text_copy(c->result->lifted, sizeof(c->result->lifted), r->name);
        return false;
    }
    if (m == MATCH_LATE)
        set_time_limit(c, text, len);
    else if (m == MATCH_LIMIT)
        set_limit(c->result, r->name, text, len);
    else
        set_result(c->result, shown, r->name, r->reason, text, len);
    return true;
}

/* False when the form is refused; the reason is in the result. */
static bool judge(const struct check *c, enum policy_form kind, enum policy_form shown,
                  const char *text, size_t len)
{
    size_t words = prefilter_words(c->p->prefilter);

    if (matcher_is_late(c->matcher)) {
        set_time_limit(c, text, len);
        return false;
    }
    prefilter_run(c->p->prefilter, text, len, c->candidates);
    for (size_t w = 0; w < words; w++) {
        for (uint64_t bits = c->candidates[w]; bits; bits &= bits - 1) {
            size_t i = w * 64 + (size_t)__builtin_ctzll(bits);

            if (judge_rule(c, i, kind, shown, text, len))
                return false;
        }
    }
    return true;
}

/* Like judge(). When somebody wants an explanation, the verdict on each form is told, and the search
 * goes on behind a refusal. */
static bool judge_form(const struct check *c, enum policy_form kind, enum policy_form shown,
                       const char *text, size_t len)
{
    bool fine = judge(c, kind, shown, text, len);

    if (!c->explain)
        return fine;
    c->result->form = fine ? shown : c->result->form;
    c->explain(c->explain_ctx, text, len, c->result);
    *c->result = (struct policy_result){ 0 };
    return true;
}

static bool on_found(void *ctx, enum lexer_kind kind, const char *text, size_t len)
{
    const struct check *c = ctx;

    if (kind == LEXER_SCRIPT)
        return judge_form(c, POLICY_FORM_RAW, POLICY_FORM_RAW, text, len);
    return judge_form(c, POLICY_FORM_WORDS, c->words_form, text, len);
}

/* --- a check --------------------------------------------------------------------------------- */

static bool check_init(struct check *c, const struct policy *p, const struct policy_query *q,
                       enum policy_form words_form, struct policy_result *result)
{
    *c = (struct check){ .p = p, .words_form = words_form, .result = result };
    *result = (struct policy_result){ 0 };
    policy_get_limits(p, q, &c->limits);
    c->matcher = matcher_new(c->limits.time_ms);
    c->candidates = calloc(prefilter_words(p->prefilter) + 1, sizeof(*c->candidates));
    c->holds = calloc(p->section_count, sizeof(*c->holds));
    if (!c->matcher || !c->candidates || !c->holds) {
        set_limit(result, "limit", "", 0);
        return false;
    }
    matcher_stop_when(c->matcher, q->gone, q->gone_arg);
    for (size_t i = 0; i < p->section_count; i++)
        c->holds[i] = scope_holds(&p->sections[i].scope, q);
    return true;
}

static void check_done(struct check *c)
{
    matcher_free(c->matcher);
    free(c->candidates);
    free(c->holds);
}

static void run_text(struct check *c, const char *command, size_t len)
{
    if (len > POLICY_COMMAND_MAX)
        set_limit(c->result, "limit", command, len);
    else if (judge_form(c, POLICY_FORM_RAW, POLICY_FORM_RAW, command, len) &&
             lexer_text(command, len, on_found, c) == LEXER_LIMIT)
        set_limit(c->result, "limit", command, len);
}

void policy_check(const struct policy *p, const struct policy_query *q, const char *command,
                  size_t len, struct policy_result *ret)
{
    struct check c;

    if (check_init(&c, p, q, POLICY_FORM_WORDS, ret))
        run_text(&c, command, len);
    check_done(&c);
}

/* Finds the first command with which the text of all commands so far is too long; `count`: there is none. */
static size_t find_too_much_text(const struct check *c, const char *const commands[], size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += strlen(commands[i]);
        if (bytes > c->limits.text_bytes)
            return i;
    }
    return count;
}

size_t policy_check_all(const struct policy *p, const struct policy_query *q,
                        const char *const commands[], size_t count, struct policy_result *ret)
{
    struct check c;
    size_t i = 0;

    if (check_init(&c, p, q, POLICY_FORM_WORDS, ret) &&
        (i = find_too_much_text(&c, commands, count)) < count) {
        set_text_limit(&c, commands[i]);
    } else if (!ret->denied) {
        for (i = 0; i < count && !ret->denied; i++)
            run_text(&c, commands[i], strlen(commands[i]));
        i -= ret->denied;
    }
    check_done(&c);
    return i;
}

void policy_check_argv(const struct policy *p, const struct policy_query *q,
                       const char *const argv[], size_t argc, struct policy_result *ret)
{
    struct check c;

    if (check_init(&c, p, q, POLICY_FORM_ARGV, ret) &&
        lexer_argv(argv, argc, on_found, &c) == LEXER_LIMIT)
        set_limit(ret, "limit", argc ? argv[0] : "", argc ? strlen(argv[0]) : 0);
    check_done(&c);
}

void policy_explain(const struct policy *p, const struct policy_query *q, const char *command,
                    size_t len, policy_explain_fn fn, void *ctx)
{
    struct policy_result result;
    struct check c;

    if (check_init(&c, p, q, POLICY_FORM_WORDS, &result)) {
        c.explain = fn;
        c.explain_ctx = ctx;
        run_text(&c, command, len);
    }
    if (result.denied) /* a bound was hit: this is about the whole command, not about one form */
        fn(ctx, command, len, &result);
    check_done(&c);
}
