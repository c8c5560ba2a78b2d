/*
 * Expansions: what follows a dollar sign or a backtick. Commands in them are judged on the way.
 *
 * What a variable holds is not known here. `$x` stays as it is written, a command substitution
 * leaves `$()` after its commands were judged, `$IFS` is a blank, and the positional parameters are
 * nothing, as they are in the `bash -c TEXT` that will run this. `${x:-rm}` is its default.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "lexer_private.h"

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* A blank that an expansion makes: splits words, unless it is quoted. */
static void add_blank(struct lex *l, bool quoted)
{
    if (quoted)
        lex_word_add_char(l, ' ');
    else
        lex_word_close(l);
}

/* Up to and over the closing backtick; what a backslash protects loses it. */
static size_t unescape_backtick(struct lex *l, bool quoted, char *out)
{
    const char *escapable = quoted ? "$`\\\"" : "$`\\";
    size_t len = 0;

    while (l->at < l->end && *l->at != '`') {
        if (*l->at == '\\' && lex_peek(l, 1) && strchr(escapable, lex_peek(l, 1)))
            l->at++;
        out[len++] = *l->at++;
    }
    if (l->at < l->end)
        l->at++;
    return len;
}

/* `commands`: at is behind the first one. */
void expand_backtick(struct lex *l, bool quoted)
{
    AUTO_FREE char *inner = malloc((size_t)(l->end - l->at) + 1);

    if (!inner) {
        lex_limit(l);
        return;
    }
    lex_nested_text(l, inner, unescape_backtick(l, quoted, inner));
    lex_word_add(l, "$()", 3);
}

/* The word of ${x:-word}, up to and over the brace. */
static void read_param_word(struct lex *l, bool quoted)
{
    while (lex_more(l) && *l->at != '}') {
        char c = *l->at;

        if (c == '\\') {
            quote_read_escape(l, quoted);
        } else if (isspace((unsigned char)c) && !quoted) {
            lex_word_close(l);
            l->at++;
        } else if (c == '"' || (c == '\'' && !quoted)) {
            l->at++;
            c == '"' ? quote_read_double(l) : quote_read_single(l);
        } else if (c == '$' || c == '`') {
            l->at++;
            c == '$' ? expand_dollar(l, quoted) : expand_backtick(l, quoted);
        } else {
            lex_word_add_char(l, *l->at++);
        }
    }
    if (lex_more(l))
        l->at++;
}

/* As above, for the commands in it only: it leaves no trace in the word. */
static void skip_param_word(struct lex *l)
{
    bool open = l->word_open;
    size_t count = l->word_count, len;

    lex_word_open(l);
    len = l->text.len;
    read_param_word(l, true);
    if (l->text.len > len)
        l->text.len = len;
    if (!open)
        lex_word_drop(l, count);
}

static bool is_positional(const char *name, size_t len)
{
    return len > 0 && (isdigit((unsigned char)*name) || *name == '@' || *name == '*') &&
           *name != '0';
}

/* The name in ${name...}: letters, digits, or one special character. */
static size_t param_name_len(const struct lex *l)
{
    size_t n = 0;

    while (is_name_char(lex_peek(l, n)))
        n++;
    if (n == 0 && lex_peek(l, 0) && strchr("@*#?$!-", lex_peek(l, 0)))
        n = 1;
    return n;
}

static bool has_default(struct lex *l)
{
    size_t colon = lex_peek(l, 0) == ':';
    char op = lex_peek(l, colon);

    if (!op || !strchr("-=+", op))
        return false;
    l->at += colon + 1;
    return true;
}

/* ${...}: at is behind the brace. */
static void read_param(struct lex *l, bool quoted)
{
    const char *name;
    size_t len;

    if (lex_peek(l, 0) == '!' || (lex_peek(l, 0) == '#' && lex_peek(l, 1) != '}'))
        l->at++;
    name = l->at;
    len = param_name_len(l);
    l->at += len;
    if (has_default(l)) {
        read_param_word(l, quoted);
        return;
    }
    skip_param_word(l);
    if (len == 3 && memcmp(name, "IFS", 3) == 0) {
        add_blank(l, quoted);
    } else if (!is_positional(name, len)) {
        lex_word_add(l, "${", 2);
        lex_word_add(l, name, len);
        lex_word_add_char(l, '}');
    }
}

/* $name: at is on the first letter. */
static void read_variable(struct lex *l, bool quoted)
{
    const char *name = l->at;
    size_t len = 0;

    while (is_name_char(lex_peek(l, len)))
        len++;
    l->at += len;
    if (len == 3 && memcmp(name, "IFS", 3) == 0) {
        add_blank(l, quoted);
    } else {
        lex_word_add_char(l, '$');
        lex_word_add(l, name, len);
    }
}

void expand_substitution(struct lex *l)
{
    shell_read_list(l, SHELL_STOP_PAREN);
    lex_word_add(l, "$()", 3);
}

/* What follows a dollar sign. */
void expand_dollar(struct lex *l, bool quoted)
{
    char c = lex_peek(l, 0);

    if (c == '(') {
        l->at++;
        expand_substitution(l);
    } else if (c == '{') {
        l->at++;
        if (lex_enter(l))
            read_param(l, quoted);
        lex_leave(l);
    } else if (c == '\'' && !quoted) {
        l->at++;
        quote_read_ansi(l);
    } else if (c == '"' && !quoted) {
        ; /* $"text" is "text" */
    } else if (isalpha((unsigned char)c) || c == '_') {
        read_variable(l, quoted);
    } else if (is_positional(&c, 1)) {
        l->at++;
    } else {
        lex_word_add_char(l, '$');
    }
}
