/*
 * From characters to words: quotes and backslashes removed, expansions walked through.
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

static void read_dollar(struct lex *l, bool quoted);
static void read_backtick(struct lex *l, bool quoted);

static bool enter(struct lex *l)
{
    if (++l->depth > LEX_DEPTH_MAX)
        lex_limit(l);
    return lex_going(l);
}

static void leave(struct lex *l)
{
    l->depth--;
}

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool more(const struct lex *l)
{
    return l->at < l->end && lex_going(l);
}

static char peek(const struct lex *l, size_t ahead)
{
    return (size_t)(l->end - l->at) > ahead ? l->at[ahead] : '\0';
}

/* A blank that an expansion makes: splits words, unless it is quoted. */
static void add_blank(struct lex *l, bool quoted)
{
    if (quoted)
        lex_word_add_char(l, ' ');
    else
        lex_word_close(l);
}

static void mark_quoted(struct lex *l)
{
    lex_word_open(l);
    if (lex_going(l))
        l->words[l->word_count - 1].quoted = true;
}

/* 'text': at is behind the opening quote. */
static void read_single(struct lex *l)
{
    mark_quoted(l);
    while (more(l) && *l->at != '\'')
        lex_word_add_char(l, *l->at++);
    if (more(l))
        l->at++;
}

/* A number of up to `most` digits in base 8 or 16. */
static unsigned long read_digits(struct lex *l, int base, int most)
{
    char digits[9] = "";
    int n = 0;

    while (n < most && more(l) &&
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
    } else if (c == 'c' && more(l)) {
        lex_word_add_char(l, (char)(*l->at++ & 0x1f));
    } else {
        if (!strchr("\\'\"?", c))
            lex_word_add_char(l, '\\');
        lex_word_add_char(l, c);
    }
}

/* $'text': at is behind the opening quote. */
static void read_ansi(struct lex *l)
{
    mark_quoted(l);
    while (more(l) && *l->at != '\'') {
        char c = *l->at++;

        if (c == '\\' && more(l))
            read_ansi_escape(l);
        else
            lex_word_add_char(l, c);
    }
    if (more(l))
        l->at++;
}

/* A backslash within double quotes: keeps itself except before $ ` " \ and the end of the line. */
static void read_double_escape(struct lex *l)
{
    char c = peek(l, 1);

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
    while (more(l) && (*l->at != stop || stop == '\0')) {
        switch (*l->at) {
        case '\\':
            read_double_escape(l);
            break;
        case '$':
            l->at++;
            read_dollar(l, true);
            break;
        case '`':
            l->at++;
            read_backtick(l, true);
            break;
        default:
            lex_word_add_char(l, *l->at++);
        }
    }
}

/* "text": at is behind the opening quote. */
static void read_double(struct lex *l)
{
    mark_quoted(l);
    read_double_until(l, '"');
    if (more(l))
        l->at++;
}

void quote_read_expansions(struct lex *l)
{
    read_double_until(l, '\0');
}

/* A backslash outside quotes: the next character as it is, nothing at the end of a line. */
static void read_escape(struct lex *l)
{
    l->at++;
    if (!more(l))
        return;
    if (*l->at != '\n') {
        mark_quoted(l);
        lex_word_add_char(l, *l->at);
    }
    l->at++;
}

/* Up to and over the closing backtick; what a backslash protects loses it. */
static size_t unescape_backtick(struct lex *l, bool quoted, char *out)
{
    const char *escapable = quoted ? "$`\\\"" : "$`\\";
    size_t len = 0;

    while (l->at < l->end && *l->at != '`') {
        if (*l->at == '\\' && peek(l, 1) && strchr(escapable, peek(l, 1)))
            l->at++;
        out[len++] = *l->at++;
    }
    if (l->at < l->end)
        l->at++;
    return len;
}

/* `commands`: at is behind the first one. */
static void read_backtick(struct lex *l, bool quoted)
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
    while (more(l) && *l->at != '}') {
        char c = *l->at;

        if (c == '\\') {
            quoted ? read_double_escape(l) : read_escape(l);
        } else if (isspace((unsigned char)c) && !quoted) {
            lex_word_close(l);
            l->at++;
        } else if (c == '"' || (c == '\'' && !quoted)) {
            l->at++;
            c == '"' ? read_double(l) : read_single(l);
        } else if (c == '$' || c == '`') {
            l->at++;
            c == '$' ? read_dollar(l, quoted) : read_backtick(l, quoted);
        } else {
            lex_word_add_char(l, *l->at++);
        }
    }
    if (more(l))
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

    while (is_name_char(peek(l, n)))
        n++;
    if (n == 0 && peek(l, 0) && strchr("@*#?$!-", peek(l, 0)))
        n = 1;
    return n;
}

static bool has_default(struct lex *l)
{
    size_t colon = peek(l, 0) == ':';
    char op = peek(l, colon);

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

    if (peek(l, 0) == '!' || (peek(l, 0) == '#' && peek(l, 1) != '}'))
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

    while (is_name_char(peek(l, len)))
        len++;
    l->at += len;
    if (len == 3 && memcmp(name, "IFS", 3) == 0) {
        add_blank(l, quoted);
    } else {
        lex_word_add_char(l, '$');
        lex_word_add(l, name, len);
    }
}

static void read_substitution(struct lex *l)
{
    shell_read_list(l, SHELL_STOP_PAREN);
    lex_word_add(l, "$()", 3);
}

/* What follows a dollar sign. */
static void read_dollar(struct lex *l, bool quoted)
{
    char c = peek(l, 0);

    if (c == '(') {
        l->at++;
        read_substitution(l);
    } else if (c == '{') {
        l->at++;
        if (enter(l))
            read_param(l, quoted);
        leave(l);
    } else if (c == '\'' && !quoted) {
        l->at++;
        read_ansi(l);
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

/* name=( words ): data, though commands may be substituted in it. at is behind the parenthesis. */
static void read_array(struct lex *l)
{
    size_t count = l->word_count, len = l->text.len;

    l->word_open = false;
    while (more(l) && *l->at != ')') {
        const char *before = l->at;

        quote_read_word(l);
        if (l->at == before)
            l->at++;
        lex_word_drop(l, count);
        l->text.len = len;
    }
    if (more(l))
        l->at++;
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

    if ((c == '<' || c == '>') && peek(l, 1) == '(') {
        l->at += 2;
        read_substitution(l);
        return true;
    }
    if (c == '(' && at_array(l)) {
        l->at++;
        if (enter(l))
            read_array(l);
        leave(l);
        return true;
    }
    if (c != '\0' && strchr("<>();&| \t\n", c))
        return false;
    if (c == '\\') {
        read_escape(l);
        return true;
    }
    l->at++;
    switch (c) {
    case '\'':
        read_single(l);
        break;
    case '"':
        read_double(l);
        break;
    case '$':
        read_dollar(l, false);
        break;
    case '`':
        read_backtick(l, false);
        break;
    }
    return true;
}

void quote_read_word(struct lex *l)
{
    while (more(l)) {
        size_t plain = 0;

        while (l->at + plain < l->end && !is_special(l->at[plain]))
            plain++;
        if (plain)
            lex_word_add(l, l->at, plain);
        l->at += plain;
        if (!plain && !read_special(l))
            break;
    }
}

void quote_skip_continuation(struct lex *l)
{
    while (peek(l, 0) == '\\' && peek(l, 1) == '\n')
        l->at += 2;
}
