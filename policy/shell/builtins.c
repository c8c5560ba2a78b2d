/*
 * Builtins of a shell that change variables: what they set is known to the commands that follow. Each returns the end of
 * the command, because none of its words is a command.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

/* export x=1, declare -r x=1 */
size_t builtin_declare(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    (void)p;
    for (size_t i = c->first + 1; i < c->last; i++) {
        const char *w = lex_word(l, i);

        if (unwrap_is_assignment(w) && w[strlen(w) - 1] != '=')
            vars_assign(l, w);
    }
    return c->last;
}

/* unset x, read x, mapfile x, getopts o x: from here on the variable is unknown, or unset. */
size_t builtin_forget(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    bool unset = strcmp(p->name, "unset") == 0;

    for (size_t i = c->first + 1; i < c->last; i++) {
        const char *w = lex_word(l, i);

        if (w[0] != '-' && strlen(w) < 64)
            vars_set(l, w, strlen(w), unset ? "" : NULL, 0, false);
    }
    return c->last;
}

/* read a b c <<< TEXT: a word each, the rest to the last. */
size_t builtin_read(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    static const char blanks[] = " \t\n";
    size_t i = unwrap_options(l, p, c);
    const char *at = c->stdin_text;

    if (!at || i == c->last)
        return builtin_forget(l, p, c);
    for (; i < c->last; i++) {
        size_t len;

        at += strspn(at, blanks);
        len = i + 1 < c->last ? strcspn(at, blanks) : strcspn(at, "\n");
        vars_set(l, lex_word(l, i), strlen(lex_word(l, i)), at, len, false);
        at += len;
    }
    return c->last;
}

/* `set -- rm -rf /` sets the parameters; `set -e` sets none. */
size_t builtin_set(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    size_t i = c->first + 1;

    (void)p;
    while (i < c->last && (lex_word(l, i)[0] == '-' || lex_word(l, i)[0] == '+')) {
        if (strcmp(lex_word(l, i++), "--") == 0) {
            vars_set_words(l, "@", 1, i, c->last);
            return c->last;
        }
    }
    if (i < c->last && i == c->first + 1)
        vars_set_words(l, "@", 1, i, c->last);
    return c->last;
}

/* alias x=TEXT: a function that goes on with its parameters. */
size_t builtin_alias(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    (void)p;
    for (size_t i = c->first + 1; i < c->last; i++) {
        AUTO_FREE char *name = strdup(lex_word(l, i));
        char *value = name ? strchr(name, '=') : NULL;
        struct buf body;

        if (!value)
            continue;
        *value++ = '\0';
        buf_init(&body, LEX_VALUE_MAX);
        buf_addf(&body, "%s \"$@\"", value);
        if (!body.overflow && body.data)
            vars_define(l, name, body.data, body.len);
        buf_done(&body);
    }
    return c->last;
}
