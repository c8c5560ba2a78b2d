/*
 * Brace expansion, as bash does it: -{r,f} is -r -f. Only the first list of a word, without lists
 * in it, and only of a word without any quotes; more is not what people write by accident.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "lexer_private.h"

/* The opening brace of the first {a,b}; *ret_close is its end. */
static const char *find_list(const char *word, const char **ret_close)
{
    for (const char *open = strchr(word, '{'); open; open = strchr(open + 1, '{')) {
        const char *stop = open + 1 + strcspn(open + 1, "{}");

        if (open > word && open[-1] == '$') /* ${x}, which was kept as it is written */
            continue;
        if (*stop == '}' && memchr(open, ',', (size_t)(stop - open))) {
            *ret_close = stop;
            return open;
        }
    }
    return NULL;
}

/* The words that a list makes, in place of the topmost one. */
static void expand(struct lex *l, const char *word, const char *open, const char *close)
{
    const char *item = open + 1;

    lex_word_drop(l, l->word_count - 1);
    while (item <= close && lex_going(l)) {
        size_t len = strcspn(item, ",}");

        if (!lex_spend(l, strlen(word)))
            return;
        lex_word_open(l);
        lex_word_add(l, word, (size_t)(open - word));
        lex_word_add(l, item, len);
        lex_word_add(l, close + 1, strlen(close + 1));
        lex_word_close(l);
        item += len + 1;
    }
}

void brace_expand_last(struct lex *l)
{
    const struct word *last = &l->words[l->word_count - 1];
    const char *text = l->text.data + last->start, *open, *close;
    AUTO_FREE char *copy = NULL;

    if (last->quoted || !find_list(text, &close))
        return;
    copy = strdup(text); /* the stack moves while words are added */
    if (!copy) {
        lex_limit(l);
        return;
    }
    open = find_list(copy, &close);
    expand(l, copy, open, close);
}
