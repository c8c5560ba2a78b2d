/*
 * Expansions: what follows a dollar sign or a backtick. Commands in them are judged on the way.
 * When it is certain what they print (output.c), that is put in their place; else they leave `$()`.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

/* Adds what the list of commands that was just read prints, without the newlines at its end. */
static void add_printed(struct lex *l, bool quoted)
{
    AUTO_FREE char *text = take_ptr(l->printed);
    size_t len = text ? strlen(text) : 0;

    while (len && text[len - 1] == '\n')
        len--;
    if (text)
        param_add_value(l, text, len, quoted);
    else
        lex_word_add(l, "$()", 3);
}

/* Reads up to and over the closing backtick. Backslashes that protect a character are dropped. */
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

/* `commands`: l->at is behind the first backtick. */
void expand_backtick(struct lex *l, bool quoted)
{
    AUTO_FREE char *inner = malloc((size_t)(l->end - l->at) + 1);

    if (!inner) {
        lex_limit(l);
        return;
    }
    l->wants_printed = true;
    lex_nested_text(l, inner, unescape_backtick(l, quoted, inner));
    add_printed(l, quoted);
}

/* <( ) and >( ): a file, whose content we may know. */
void expand_process(struct lex *l)
{
    shell_read_list(l, SHELL_STOP_PAREN);
    free(l->process_text);
    l->process_text = take_ptr(l->printed);
    lex_word_add(l, "$()", 3);
}

/* What follows a dollar sign. */
void expand_dollar(struct lex *l, bool quoted)
{
    char c = lex_peek(l, 0);

    if (c == '(') {
        l->at++;
        shell_read_list(l, SHELL_STOP_PAREN);
        add_printed(l, quoted);
    } else if (c == '{') {
        l->at++;
        if (lex_enter(l))
            param_read_braces(l, quoted);
        lex_leave(l);
    } else if (c == '\'' && !quoted) {
        l->at++;
        quote_read_ansi(l);
    } else if (c == '"' && !quoted) {
        ; /* $"text" is "text" */
    } else if (isalnum((unsigned char)c) || (c && strchr("_@*", c))) {
        param_read_plain(l, quoted);
    } else {
        lex_word_add_char(l, '$');
    }
}
