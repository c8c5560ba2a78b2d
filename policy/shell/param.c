/*
 * Parameters: $x, ${x:-word}, "${a[@]}", $1. What is known (vars.c) is put in the word's place,
 * split as the shell would split it; what is not known stays as it is written.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

/* --- values into words ----------------------------------------------------------------------- */

/* x=$y does not split what y holds. */
static bool in_assignment(const struct lex *l)
{
    size_t start = l->word_open ? l->words[l->word_count - 1].start : l->text.len;

    return l->text.len > start && unwrap_is_assignment(l->text.data + start);
}

void param_add_value(struct lex *l, const char *value, size_t len, bool quoted)
{
    const struct var *ifs = vars_get(l, "IFS", 3);
    const char *blanks = ifs ? ifs->value : " \t\n";

    if (len > LEX_EXPAND_BYTES - l->expanded) {
        l->vars_lost =
            true; /* reaching this bound is no reason to refuse: from here on no variable is known */
        lex_word_add(l, "$()", 3);
        return;
    }
    l->expanded += len;
    if (quoted || in_assignment(l)) {
        lex_word_add(l, value, len);
        return;
    }
    for (size_t i = 0, n; i < len; i += n) {
        for (n = 0; i + n < len && !strchr(blanks, value[i + n]);)
            n++;
        if (n) {
            lex_word_add(l, value + i, n);
            lex_word_mark(l);
        }
        if (i + n < len) {
            lex_word_close(l);
            n++;
        }
    }
}

/* "$@" is a word per element, "$*" is one word. */
static void add_elements(struct lex *l, const struct var *v, char how, bool quoted)
{
    const char *e;

    for (size_t i = 0; (e = vars_element(v, i)) && lex_going(l); i++) {
        if (i > 0 && quoted && how == '*')
            lex_word_add_char(l, ' ');
        else if (i > 0)
            lex_word_close(l);
        param_add_value(l, e, strlen(e), quoted);
        if (quoted)
            lex_word_mark(l);
    }
}

/* A blank that $IFS makes: splits words, unless it is quoted. */
static void add_ifs(struct lex *l, bool quoted)
{
    if (quoted)
        lex_word_add_char(l, ' ');
    else
        lex_word_close(l);
}

/* --- the pieces of ${...} -------------------------------------------------------------------- */

/* The word of ${x:-word}, up to and over the brace. */
static void read_word(struct lex *l, bool quoted)
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

/* Reads the word as above, but only for the commands in it: nothing is added to the current
 * word. */
static void skip_word(struct lex *l)
{
    bool open = l->word_open;
    size_t count = l->word_count, len;

    lex_word_open(l);
    len = l->text.len;
    read_word(l, true);
    if (l->text.len > len)
        l->text.len = len;
    if (!open)
        lex_word_drop(l, count);
}

struct param {
    const char *name;
    size_t len;
    char element; /* '@' or '*' of ${a[@]}; 'n' with an index; 0 without brackets */
    size_t index;
    bool indirect, length;
};

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Reads [@], [*] or [12]. Any other index is left unread, and its element is not known. */
static void read_index(struct lex *l, struct param *p)
{
    size_t n = 1;

    if (lex_peek(l, 0) != '[')
        return;
    if ((lex_peek(l, 1) == '@' || lex_peek(l, 1) == '*') && lex_peek(l, 2) == ']') {
        p->element = lex_peek(l, 1);
        l->at += 3;
        return;
    }
    while (isdigit((unsigned char)lex_peek(l, n)) && n < 6)
        n++;
    if (n > 1 && lex_peek(l, n) == ']') {
        p->element = 'n';
        p->index = strtoul(l->at + 1, NULL, 10);
        l->at += n + 1;
    }
}

/* The name in ${name...}: letters, digits, or one special character. */
static struct param read_name(struct lex *l)
{
    struct param p = { 0 };

    if (lex_peek(l, 0) == '!' && is_name_char(lex_peek(l, 1))) {
        p.indirect = true;
        l->at++;
    } else if (lex_peek(l, 0) == '#' && lex_peek(l, 1) != '}') {
        p.length = true;
        l->at++;
    }
    p.name = l->at;
    while (is_name_char(lex_peek(l, p.len)))
        p.len++;
    if (p.len == 0 && lex_peek(l, 0) && strchr("@*#?$!-", lex_peek(l, 0)))
        p.len = 1;
    l->at += p.len;
    read_index(l, &p);
    return p;
}

static bool is_positional(const struct param *p)
{
    return p->len > 0 && *p->name != '0' &&
           (isdigit((unsigned char)*p->name) || *p->name == '@' || *p->name == '*');
}

/* The variable that holds the parameter. $1 and $@ are in the variable "@"; index and element
 * say which of its elements are meant. */
static const struct var *find(struct lex *l, struct param *p)
{
    const struct var *v;

    if (is_positional(p)) {
        if (isdigit((unsigned char)*p->name)) {
            p->element = 'n';
            p->index = strtoul(p->name, NULL, 10) - 1;
        } else {
            p->element = *p->name;
        }
        return vars_get(l, "@", 1);
    }
    v = vars_get(l, p->name, p->len);
    if (v && p->indirect)
        v = vars_get(l, v->value, strlen(v->value));
    return v;
}

/* The value of ${x}, ${a[2]} or $1; NULL for lists and for variables that are not known. */
static const char *single(const struct var *v, const struct param *p)
{
    if (!v || p->element == '@' || p->element == '*')
        return NULL;
    return vars_element(v, p->element == 'n' ? p->index : 0);
}

static void add_known(struct lex *l, const struct var *v, const struct param *p, bool quoted)
{
    const char *value = single(v, p);

    if (p->element == '@' || p->element == '*')
        add_elements(l, v, p->element, quoted);
    else if (value)
        param_add_value(l, value, strlen(value), quoted);
}

/* Adds the parameter as it is written. Positional parameters that were not given are empty, as
 * they are in `bash -c TEXT`. */
static void add_unknown(struct lex *l, const struct param *p)
{
    if (is_positional(p))
        return;
    lex_word_add(l, "${", 2);
    lex_word_add(l, p->name, p->len);
    lex_word_add_char(l, '}');
}

/* --- operators ------------------------------------------------------------------------------- */

/* :2 and :2:3, plain numbers only; false: something else, nothing was read. */
static bool cut(struct lex *l, const char *value, bool quoted)
{
    char *end;
    size_t len = strlen(value), from, count = len;

    if (lex_peek(l, 0) != ':' || !memchr(l->at, '}', (size_t)(l->end - l->at)))
        return false;
    from = strtoul(l->at + 1, &end, 10);
    if (end == l->at + 1 || !isdigit((unsigned char)l->at[1]))
        return false;
    if (*end == ':' && isdigit((unsigned char)end[1]))
        count = strtoul(end + 1, &end, 10);
    if (*end != '}')
        return false;
    l->at = end + 1;
    if (from < len)
        param_add_value(l, value + from, count < len - from ? count : len - from, quoted);
    return true;
}

/* ,, and ^^ */
static bool fold(struct lex *l, const char *value, bool quoted)
{
    bool lower = lex_peek(l, 0) == ',';
    AUTO_FREE char *folded = NULL;

    if ((!lower && lex_peek(l, 0) != '^') || lex_peek(l, 1) != lex_peek(l, 0) ||
        lex_peek(l, 2) != '}')
        return false;
    l->at += 3;
    folded = strdup(value);
    for (char *c = folded; c && *c; c++)
        *c = (char)(lower ? tolower((unsigned char)*c) : toupper((unsigned char)*c));
    if (folded)
        param_add_value(l, folded, strlen(folded), quoted);
    return true;
}

/* The plain text up to one of `stops`; false if there is anything in it that is more than text. */
static bool plain_until(const struct lex *l, size_t from, const char *stops, size_t *ret_len)
{
    size_t n = from;

    while (lex_peek(l, n) && !strchr(stops, lex_peek(l, n))) {
        if (strchr("*?[\\$`'\"", lex_peek(l, n)))
            return false;
        n++;
    }
    *ret_len = n - from;
    return lex_peek(l, n) != '\0';
}

/* ${x#text} and ${x%text}: the value without that text at its beginning, or at its end. */
static bool strip(struct lex *l, const char *value, bool quoted)
{
    char op = lex_peek(l, 0);
    size_t twice = lex_peek(l, 1) == op, len, all = strlen(value);
    const char *text = l->at + 1 + twice;

    if ((op != '#' && op != '%') || !plain_until(l, 1 + twice, "}", &len))
        return false;
    l->at = text + len + 1;
    if (op == '#' && len <= all && memcmp(value, text, len) == 0)
        param_add_value(l, value + len, all - len, quoted);
    else if (op == '%' && len <= all && memcmp(value + all - len, text, len) == 0)
        param_add_value(l, value, all - len, quoted);
    else
        param_add_value(l, value, all, quoted);
    return true;
}

/* /text/other and //text/other */
static bool replace(struct lex *l, const char *value, bool quoted)
{
    size_t all = lex_peek(l, 1) == '/', len, with_len = 0;
    const char *text = l->at + 1 + all, *with, *found;
    struct buf b;

    if (lex_peek(l, 0) != '/' || !plain_until(l, 1 + all, "/}", &len) || len == 0)
        return false;
    with = text + len + (text[len] == '/');
    if (text[len] == '/' && !plain_until(l, (size_t)(with - l->at), "}", &with_len))
        return false;
    l->at = with + with_len + 1;
    buf_init(&b, LEX_VALUE_MAX);
    while ((found = memmem(value, strlen(value), text, len))) {
        buf_add(&b, value, (size_t)(found - value));
        buf_add(&b, with, with_len);
        value = found + len;
        if (!all)
            break;
    }
    buf_add_str(&b, value);
    param_add_value(l, b.data ? b.data : "", b.len, quoted);
    buf_done(&b);
    return true;
}

/* -, =, + and the same with a colon; 0 if it is something else. */
static char read_default(struct lex *l, bool *ret_colon)
{
    size_t colon = lex_peek(l, 0) == ':';
    char op = lex_peek(l, colon);

    if (!op || !strchr("-=+", op))
        return '\0';
    l->at += colon + 1;
    *ret_colon = colon;
    return op;
}

/* ${x:=word} sets it as well. */
static void set_default(struct lex *l, const struct param *p, size_t count, size_t start)
{
    if (l->word_open && l->word_count == count && l->text.len >= start)
        vars_set(l, p->name, p->len, l->text.len > start ? l->text.data + start : "",
                 l->text.len - start, false);
}

static void with_default(struct lex *l, const struct var *v, const struct param *p, char op,
                         bool colon, bool quoted)
{
    bool has = v && (!colon || (vars_element(v, 0) && *vars_element(v, 0)));

    if (op == '+' ? v && !has : has) {
        skip_word(l);
        if (op != '+')
            add_known(l, v, p, quoted);
    } else {
        size_t count, start;

        lex_word_open(l);
        count = l->word_count;
        start = l->text.len;
        read_word(l, quoted);
        if (op == '=')
            set_default(l, p, count, start);
        if (l->word_open && l->word_count == count && l->text.len == l->words[count - 1].start &&
            !quoted && !l->words[count - 1].quoted)
            lex_word_drop(l, count - 1); /* the word turned out to be empty */
    }
}

/* ${...}: at is behind the brace. */
void param_read_braces(struct lex *l, bool quoted)
{
    struct param p = read_name(l);
    const struct var *v = find(l, &p);
    const char *value = single(v, &p);
    bool colon = false;
    char op = read_default(l, &colon);

    if (op) {
        with_default(l, v, &p, op, colon, quoted);
    } else if (p.len == 3 && memcmp(p.name, "IFS", 3) == 0) {
        skip_word(l);
        add_ifs(l, quoted);
    } else if (value && !p.length &&
               (cut(l, value, quoted) || fold(l, value, quoted) || strip(l, value, quoted) ||
                replace(l, value, quoted))) {
        ; /* one of these four has added the word */
    } else if (v && !p.length && lex_peek(l, 0) == '}') {
        l->at++;
        add_known(l, v, &p, quoted);
    } else {
        skip_word(l);
        add_unknown(l, &p);
    }
}

/* $x""y: without the quotes it would look like $xy. */
static bool touches_next(const struct lex *l)
{
    size_t n = 0;

    while (lex_peek(l, n) && strchr("'\"\\", lex_peek(l, n)))
        n++;
    return n && is_name_char(lex_peek(l, n));
}

/* $name, $1, $@: at is on the first character of the name. */
void param_read_plain(struct lex *l, bool quoted)
{
    struct param p = { .name = l->at, .len = 1 };
    const struct var *v;

    if (isalpha((unsigned char)*l->at) || *l->at == '_') {
        while (is_name_char(lex_peek(l, p.len)))
            p.len++;
    }
    l->at += p.len;
    v = find(l, &p);
    if (p.len == 3 && memcmp(p.name, "IFS", 3) == 0) {
        add_ifs(l, quoted);
    } else if (v) {
        add_known(l, v, &p, quoted);
    } else if (touches_next(l)) {
        add_unknown(l, &p);
    } else if (!is_positional(&p)) {
        lex_word_add_char(l, '$');
        lex_word_add(l, p.name, p.len);
    }
}
