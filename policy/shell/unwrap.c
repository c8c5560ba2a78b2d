/*
 * From commands to the commands inside them: `sudo -u x sh -c "rm -rf /"` is judged as it stands,
 * then as `sh -c ...`, then as what the text given to sh would run. Which programs do that stands
 * in wrappers.c.
 */
#include <ctype.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

bool unwrap_is_assignment(const char *w)
{
    size_t n = 0;

    if (!isalpha((unsigned char)w[0]) && w[0] != '_')
        return false;
    while (isalnum((unsigned char)w[n]) || w[n] == '_')
        n++;
    if (w[n] == '[')
        n += strcspn(w + n, "]=");
    n += w[n] == ']';
    return w[n] == '=' || (w[n] == '+' && w[n + 1] == '=');
}

/* --- options --------------------------------------------------------------------------------- */

/* Long options may be abbreviated: --us for --user. */
static bool long_takes_arg(const struct prefix *p, const char *w)
{
    size_t len = strlen(w);

    for (const char *at = p->long_args; at && *at; at += strcspn(at, " ") + 1) {
        if (strncmp(at, w, len) == 0 && len > 2)
            return true;
    }
    return false;
}

static const char *long_option_text(struct lex *l, const char *w, size_t next, size_t last)
{
    static const char *const names[] = { "--command", "--split-string", "--session-command" };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t len = strcspn(w, "=");

        if (len < 4 || strncmp(names[i], w, len) != 0)
            continue;
        if (w[len] == '=')
            return w + len + 1;
        return next < last ? lex_word(l, next) : NULL;
    }
    return NULL;
}

/* The text given with a long or short option: --split-string=TEXT, -STEXT, -c TEXT. */
const char *unwrap_option_text(struct lex *l, const struct prefix *p, const char *w, size_t next,
                               size_t last)
{
    const char *letter;

    if (!p->text_opts)
        return NULL;
    if (w[1] == '-')
        return long_option_text(l, w, next, last);
    letter = strpbrk(w + 1, p->text_opts);
    if (!letter)
        return NULL;
    if (letter[1])
        return letter + 1;
    return next < last ? lex_word(l, next) : NULL;
}

/* How many words an option takes up, itself included. */
size_t unwrap_option_width(const struct prefix *p, const char *w)
{
    const char *letter;

    if (w[1] == '-')
        return long_takes_arg(p, w) ? 2 : 1;
    letter = p->short_args ? strpbrk(w + 1, p->short_args) : NULL;
    return letter && letter[1] == '\0' ? 2 : 1;
}

/* Over the options behind the name; texts in them are judged. An option that we do not know is
 * taken to have no argument. */
size_t unwrap_options(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    size_t i = c->first + 1;

    while (i < c->last && lex_going(l)) {
        const char *w = lex_word(l, i), *text;

        if (strcmp(w, "--") == 0)
            return i + 1;
        if (w[0] != '-')
            break;
        text = w[1] ? unwrap_option_text(l, p, w, i + 1, c->last) : NULL;
        i += w[1] ? unwrap_option_width(p, w) : 1; /* a lone dash is env's -i */
        if (text)
            lex_nested_script(l, text);
    }
    return i < c->last ? i : c->last;
}

/* --- variables that nobody knows ------------------------------------------------------------- */

/* $x, ${x} and $(): how long is it? */
static size_t unknown_len(const char *s)
{
    size_t n = 1;

    if (s[0] != '$')
        return 0;
    if (s[1] == '{' || s[1] == '(') {
        n = strcspn(s, s[1] == '{' ? "}" : ")");
        return s[n] ? n + 1 : 0;
    }
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n > 1 ? n : 0;
}

static bool has_unknown(const char *s)
{
    const char *dollar = strchr(s, '$');

    while (dollar && !unknown_len(dollar))
        dollar = strchr(dollar + 1, '$');
    return dollar;
}

static void push_without_unknown(struct lex *l, const char *word)
{
    AUTO_FREE char *copy = strdup(word);
    char *to = copy;

    if (!copy) {
        lex_limit(l);
        return;
    }
    for (const char *from = copy; *from;) {
        size_t skip = unknown_len(from);

        if (skip)
            from += skip;
        else
            *to++ = *from++;
    }
    *to = '\0';
    if (*copy)
        lex_word_push(l, copy);
}

static bool may_be_empty(const struct lex *l, const struct shell_command *c, size_t i)
{
    const char *w = lex_word(l, i);

    return (i == c->first || w[0] == '-') && has_unknown(w);
}

/*
 * `$SUDO rm`, `r${x}m`, `rm -r$x`: a variable that the text does not set is most likely empty. In a
 * command's name and in options we look at it that way too; not in names of files, where `$dir/`
 * would become the root.
 */
static void judge_without_unknown(struct lex *l, const struct shell_command *c)
{
    struct shell_command bare = { .redirects_first = l->redirect_count,
                                  .stdin_text = c->stdin_text,
                                  .bare = true };
    size_t words = l->word_count, len = l->text.len;
    bool any = false;

    for (size_t i = c->first; i < c->last && !any; i++)
        any = may_be_empty(l, c, i);
    if (!any || c->bare)
        return;
    bare.first = l->word_count;
    for (size_t i = c->first; i < c->last && lex_going(l); i++) {
        AUTO_FREE char *copy = strdup(lex_word(l, i));

        if (!copy || !lex_spend(l, strlen(copy)))
            lex_limit(l);
        else if (may_be_empty(l, c, i))
            push_without_unknown(l, copy);
        else
            lex_word_push(l, copy);
    }
    bare.last = l->word_count;
    if (lex_going(l) && bare.first < bare.last)
        unwrap_command(l, bare);
    lex_word_drop(l, words);
    l->text.len = len;
}

/* --- commands inside commands ------------------------------------------------------------------------ */

/* x=1 y=2 in front: for what the command reads again (sh -c), or, without one, for all that
 * follows. */
static void take_assignments(struct lex *l, struct shell_command *c)
{
    for (; c->first < c->last && unwrap_is_assignment(lex_word(l, c->first)); c->first++) {
        const char *w = lex_word(l, c->first);
        const struct var *v = vars_get(l, w, strcspn(w, "+="));

        if (w[strlen(w) - 1] != '=' || !v || !v->array) /* a=( ) was set when it was read */
            vars_assign(l, w);
    }
}

static bool only_assigns(const struct lex *l, const struct shell_command *c)
{
    size_t i = c->first;

    while (i < c->last && unwrap_is_assignment(lex_word(l, i)))
        i++;
    return i == c->last;
}

static void unwrap_all(struct lex *l, struct shell_command *c)
{
    for (unsigned i = 0; lex_going(l); i++) {
        const struct prefix *p;

        take_assignments(l, c);
        lex_emit_command(l, c);
        if (c->first == c->last || !lex_going(l))
            return;
        judge_without_unknown(l, c);
        vars_call(l, c);
        p = lex_going(l) ? wrappers_find(lex_word(l, c->first)) : NULL;
        if (!p)
            return;
        if (i == LEX_WRAP_MAX)
            lex_limit(l);
        else
            c->first = p->open(l, p, c);
        if (c->first == c->last)
            return;
    }
}

/* What a command sets for itself is forgotten behind it; what export sets is not. */
void unwrap_command(struct lex *l, struct shell_command c)
{
    bool scoped =
        c.first < c.last && unwrap_is_assignment(lex_word(l, c.first)) && !only_assigns(l, &c);
    struct vars_scope outer = { 0 };

    if (lex_enter(l)) {
        if (scoped)
            outer = vars_enter(l);
        unwrap_all(l, &c);
        if (scoped)
            vars_leave(l, outer);
    }
    lex_leave(l);
}
