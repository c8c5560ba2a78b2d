/* From characters to words: quotes and backslashes removed. Expansions are in expand.c. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

static void mark_quoted(struct lex *l)
{
    lex_word_open(l);
    if (lex_going(l))
        l->words[l->word_count - 1].quoted = true;
}

/* 'text': at is behind the opening quote. */
void quote_read_single(struct lex *l)
{
    mark_quoted(l);
    while (lex_more(l) && *l->at != '\'')
        lex_word_add_char(l, *l->at++);
    if (lex_more(l))
        l->at++;
}

/* A number of up to `most` digits in base 8 or 16. */
static unsigned long read_digits(struct lex *l, int base, int most)
{
    char digits[9] = "";
    int n = 0;

    while (n < most && lex_more(l) &&
           (base == 16 ? isxdigit((unsigned char)*l->at) : *l->at >= '0' && *l->at <= '7'))
        digits[n++] = *l->at++;
    return strtoul(digits, NULL, base);
}

static void add_utf8(struct lex *l, unsigned long c)
{
    if (c < 0x80) {
        lex_word_add_char(l, (char)c);
    } else if (c < 0x800) {
        lex_word_add_char(l, (char)(0xc0 | c >> 6));
        lex_word_add_char(l, (char)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        lex_word_add_char(l, (char)(0xe0 | c >> 12));
        lex_word_add_char(l, (char)(0x80 | (c >> 6 & 0x3f)));
        lex_word_add_char(l, (char)(0x80 | (c & 0x3f)));
    } else {
        lex_word_add_char(l, '?');
    }
}

/* One escape of $'...': at is behind the backslash. */
static void read_ansi_escape(struct lex *l)
{
    static const char letters[] = "abeEfnrtv", bytes[] = "\a\b\033\033\f\n\r\t\v";
    char c = *l->at++;
    const char *simple = c ? strchr(letters, c) : NULL;

    if (simple) {
        lex_word_add_char(l, bytes[simple - letters]);
    } else if (c >= '0' && c <= '7') {
        l->at--;
        lex_word_add_char(l, (char)read_digits(l, 8, 3));
    } else if (c == 'x') {
        lex_word_add_char(l, (char)read_digits(l, 16, 2));
    } else if (c == 'u' || c == 'U') {
        add_utf8(l, read_digits(l, 16, c == 'u' ? 4 : 8));
    } else if (c == 'c' && lex_more(l)) {
        lex_word_add_char(l, (char)(*l->at++ & 0x1f));
    } else {
        if (!strchr("\\'\"?", c))
            lex_word_add_char(l, '\\');
        lex_word_add_char(l, c);
    }
}

/* $'text': at is behind the opening quote. */
void quote_read_ansi(struct lex *l)
{
    mark_quoted(l);
    while (lex_more(l) && *l->at != '\'') {
        char c = *l->at++;

        if (c == '\\' && lex_more(l))
            read_ansi_escape(l);
        else
            lex_word_add_char(l, c);
    }
    if (lex_more(l))
        l->at++;
}

/* A backslash within double quotes: keeps itself except before $ ` " \ and the end of the line. */
static void read_double_escape(struct lex *l)
{
    char c = lex_peek(l, 1);

    l->at += 1;
    if (c == '\n') {
        l->at++;
    } else if (c && strchr("$`\"\\", c)) {
        lex_word_add_char(l, c);
        l->at++;
    } else {
        lex_word_add_char(l, '\\');
    }
}

/* Characters as within double quotes, up to `stop` or the end; at is left on the stop. */
static void read_double_until(struct lex *l, char stop)
{
    while (lex_more(l) && (*l->at != stop || stop == '\0')) {
        switch (*l->at) {
        case '\\':
            read_double_escape(l);
            break;
        case '$':
            l->at++;
            expand_dollar(l, true);
            break;
        case '`':
            l->at++;
            expand_backtick(l, true);
            break;
        default:
            lex_word_add_char(l, *l->at++);
        }
    }
}

/* "text": at is behind the opening quote. */
void quote_read_double(struct lex *l)
{
    mark_quoted(l);
    read_double_until(l, '"');
    if (lex_more(l))
        l->at++;
}

void quote_read_expansions(struct lex *l)
{
    read_double_until(l, '\0');
}

/* A backslash outside quotes: the next character as it is, nothing at the end of a line. */
static void read_plain_escape(struct lex *l)
{
    l->at++;
    if (!lex_more(l))
        return;
    if (*l->at != '\n') {
        mark_quoted(l);
        lex_word_add_char(l, *l->at);
    }
    l->at++;
}

void quote_read_escape(struct lex *l, bool quoted)
{
    quoted ? read_double_escape(l) : read_plain_escape(l);
}

/* A variable's elements as words; returns where they begin. */
static size_t push_elements(struct lex *l, const struct var *v)
{
    size_t first = l->word_count;
    const char *e;

    for (size_t i = 0; (e = vars_element(v, i)) && lex_going(l); i++)
        lex_word_push(l, e);
    return first;
}

/* The words behind the topmost of `count`, which is `name=` or `name+=`, are its elements. */
static void set_array(struct lex *l, size_t count)
{
    const char *name = lex_word(l, count - 1);
    size_t len = strcspn(name, "+=");
    const struct var *old = name[len] == '+' ? vars_get(l, name, len) : NULL;
    size_t first = count;

    if (!lex_going(l) || strchr(name, '[') || (name[len] == '+' && !old))
        return;
    if (old)
        first = push_elements(
            l, old); /* old elements come first, so the new ones are pushed again behind them */
    for (size_t i = count, end = first; old && i < end; i++) {
        AUTO_FREE char *copy = strdup(lex_word(l, i));

        if (copy)
            lex_word_push(l, copy);
    }
    name = lex_word(l, count - 1); /* the stack may have moved */
    vars_set_words(l, name, len, first, l->word_count);
}

/* name=( words ): data, though commands may be substituted in it. at is behind the parenthesis. */
static void read_array(struct lex *l)
{
    size_t count = l->word_count, len = l->text.len;

    lex_word_close(l);
    while (lex_more(l) && *l->at != ')') {
        const char *before = l->at;

        if (*l->at == '#') { /* in a comment, quotes have no meaning */
            while (l->at < l->end && *l->at != '\n')
                l->at++;
            continue;
        }
        quote_read_word(l);
        lex_word_close(l);
        if (l->at == before)
            l->at++;
    }
    if (lex_more(l))
        l->at++;
    set_array(l, count);
    lex_word_drop(l, count);
    l->text.len = len;
    l->word_open = true;
}

/* True when `(` opens an array, as in a=( or a+=( */
static bool at_array(const struct lex *l)
{
    size_t start = l->word_open ? l->words[l->word_count - 1].start : l->text.len;

    return l->text.len > start && l->text.data[l->text.len - 1] == '=' &&
           unwrap_is_assignment(l->text.data + start);
}

static bool is_special(char c)
{
    return c == '\0' || strchr("<>();&| \t\n\\'\"$`", c);
}

/* At the next thing that is not an ordinary character of a word; false where the word ends. */
static bool read_special(struct lex *l)
{
    char c = *l->at;

    if ((c == '<' || c == '>') && lex_peek(l, 1) == '(') {
        l->at += 2;
        expand_process(l);
        return true;
    }
    if (c == '(' && at_array(l)) {
        l->at++;
        if (lex_enter(l))
            read_array(l);
        lex_leave(l);
        return true;
    }
    if (c != '\0' && strchr("<>();&| \t\n", c))
        return false;
    if (c == '\\') {
        read_plain_escape(l);
        return true;
    }
    l->at++;
    switch (c) {
    case '\'':
        quote_read_single(l);
        break;
    case '"':
        quote_read_double(l);
        break;
    case '$':
        expand_dollar(l, false);
        break;
    case '`':
        expand_backtick(l, false);
        break;
    }
    return true;
}

/* Characters that stand for themselves; which of them are braces is kept for brace.c. */
static void add_plain(struct lex *l, size_t len)
{
    size_t start;

    lex_word_add(l, l->at, len);
    start = l->text.len - len;
    for (size_t i = 0; i < len && lex_going(l); i++) {
        if (l->at[i] == '{' || l->at[i] == '}' || l->at[i] == ',')
            lex_live(l, start + i);
    }
}

void quote_read_word(struct lex *l)
{
    while (lex_more(l)) {
        size_t plain = 0;

        while (l->at + plain < l->end && !is_special(l->at[plain]))
            plain++;
        if (plain)
            add_plain(l, plain);
        l->at += plain;
        if (!plain && !read_special(l))
            break;
    }
}

void quote_skip_continuation(struct lex *l)
{
    while (lex_peek(l, 0) == '\\' && lex_peek(l, 1) == '\n')
        l->at += 2;
}
