/*
 * Redirections, and the bodies of heredocs. A target is no word of its command but stays visible to
 * rules; a body is data, unless a shell reads it.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

/* The number in front of an operator, 2>, or {fd}>, is no word of the command. */
bool redirect_takes_last_word(const struct lex *l, size_t first)
{
    const char *w;

    if (l->word_count == first || l->words[l->word_count - 1].quoted)
        return false;
    w = lex_word(l, l->word_count - 1);
    return w[strspn(w, "0123456789")] == '\0' || (w[0] == '{' && w[strlen(w) - 1] == '}');
}

static void add_heredoc(struct lex *l, size_t word, bool strip_tabs)
{
    char *delimiter;

    if (l->heredoc_count == LEX_HEREDOCS_MAX || !(delimiter = strdup(lex_word(l, word)))) {
        lex_limit(l);
        return;
    }
    l->heredocs[l->heredoc_count++] = (struct heredoc){ .delimiter = delimiter,
                                                        .quoted = l->words[word].quoted,
                                                        .strip_tabs = strip_tabs };
}

/* at is on < or >, or on the & of &>. */
static size_t redirect_op_len(const struct lex *l)
{
    static const char *const ops[] = { "<<<", "<<-", "&>>", "<<", "<&", "<>",
                                       ">>",  ">|",  ">&",  "&>", "<",  ">" };

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        size_t n = strlen(ops[i]);

        if ((size_t)(l->end - l->at) >= n && memcmp(l->at, ops[i], n) == 0)
            return n;
    }
    return 1;
}

static void skip_blanks(struct lex *l)
{
    quote_skip_continuation(l);
    while (lex_peek(l, 0) == ' ' || lex_peek(l, 0) == '\t') {
        l->at++;
        quote_skip_continuation(l);
    }
}

/* 2>&1 and >&- name no file. */
static bool is_dup(const char *op, size_t op_len, const char *target)
{
    return op_len == 2 && op[1] == '&' && target[strspn(target, "0123456789-")] == '\0';
}

void redirect_read(struct lex *l, bool arith, char **stdin_text)
{
    const char *op = l->at;
    size_t len = redirect_op_len(l), target = l->word_count;
    bool here = len >= 2 && op[0] == '<' && op[1] == '<';

    l->at += len;
    skip_blanks(l);
    quote_read_word(l);
    lex_word_close(l);
    if (!lex_going(l) || l->word_count == target)
        return;
    if (here && len == 3 && op[2] == '<') {
        free(*stdin_text);
        *stdin_text = strdup(lex_word(l, target));
    } else if (here && !arith) {
        add_heredoc(l, target, len == 3);
    } else if (op[0] == '<' && l->process_text && strcmp(lex_word(l, target), "$()") == 0) {
        free(*stdin_text); /* < <(echo text) */
        *stdin_text = take_ptr(l->process_text);
    } else if (!is_dup(op, len, lex_word(l, target))) {
        for (size_t i = target; i < l->word_count; i++)
            lex_redirect_push(l, i, op[0] == '<' ? '<' : '>');
    }
    lex_word_drop(l, target);
}

/* The line at `at`, without its newline; moves to the next one. */
static size_t take_line(struct lex *l, const char **ret)
{
    const char *newline = memchr(l->at, '\n', (size_t)(l->end - l->at));
    const char *stop = newline ? newline : l->end;

    *ret = l->at;
    l->at = newline ? newline + 1 : l->end;
    return (size_t)(stop - *ret);
}

static bool ends_heredoc(const struct heredoc *h, const char *line, size_t len)
{
    while (h->strip_tabs && len && *line == '\t') {
        line++;
        len--;
    }
    return len == strlen(h->delimiter) && memcmp(line, h->delimiter, len) == 0;
}

/* A body is data; but a shell runs it, and $( ) in it runs unless the EOF is quoted. */
static void judge_heredoc(struct lex *l, const struct heredoc *h, const char *body, size_t len)
{
    const char *at = l->at, *end = l->end;

    if (h->script) {
        AUTO_FREE char *copy = strndup(body, len);

        copy ? lex_nested_script(l, copy) : lex_limit(l);
    } else if (!h->quoted) {
        size_t first = l->heredoc_first;

        l->at = body;
        l->end = body + len;
        l->heredoc_first = l->heredoc_count;
        quote_read_expansions(l);
        l->heredoc_first = first;
        l->at = at;
        l->end = end;
    }
}

/* Behind a newline: the bodies of the heredocs that the line announced. */
void redirect_read_heredocs(struct lex *l)
{
    while (l->heredoc_count > l->heredoc_first && lex_going(l)) {
        struct heredoc h = l->heredocs[l->heredoc_first];
        const char *body = l->at, *line;
        size_t len = 0;

        memmove(&l->heredocs[l->heredoc_first], &l->heredocs[l->heredoc_first + 1],
                (--l->heredoc_count - l->heredoc_first) * sizeof(h));
        while (l->at < l->end) {
            size_t n = take_line(l, &line);

            if (ends_heredoc(&h, line, n))
                break;
            len = (size_t)(l->at - body);
        }
        judge_heredoc(l, &h, body, len);
        free(h.delimiter);
    }
}
