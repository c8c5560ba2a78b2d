/*
 * Works out what a command prints, when that is certain: `echo rm -rf / | sh`, `$(printf rm) -rf /`. A handful of
 * programs whose output is in their arguments or their input; NULL for all others.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

#define OUTPUT_MAX (64 * 1024)

struct printer {
    struct lex *l;
    size_t at, last; /* the words behind the name that are left */
    const char *input;
    struct buf out;
};

static const char *next_word(struct printer *p)
{
    return p->at < p->last ? lex_word(p->l, p->at++) : NULL;
}

/* --- escapes --------------------------------------------------------------------------------- */

static size_t digits(const char *s, size_t most, int base, unsigned char *ret)
{
    const char *all = base == 8 ? "01234567" : "0123456789abcdefABCDEF";
    char text[4] = "";
    size_t n = strspn(s, all);

    n = n < most ? n : most;
    memcpy(text, s, n);
    *ret = (unsigned char)strtoul(text, NULL, base);
    return n;
}

/* One escape, behind its backslash; returns how long it was. */
static size_t add_escape(struct buf *out, const char *s)
{
    static const char letters[] = "abefnrtv\\\"'", bytes[] = "\a\b\033\f\n\r\t\v\\\"'";
    const char *simple = *s ? strchr(letters, *s) : NULL;
    unsigned char byte;
    size_t n = 0;

    if (simple) {
        buf_add_char(out, bytes[simple - letters]);
        return 1;
    }
    if (*s == 'x' && (n = digits(s + 1, 2, 16, &byte)))
        n++;
    else if (*s >= '0' && *s <= '7')
        n = digits(s, *s == '0' ? 4 : 3, 8, &byte);
    if (n == 0)
        buf_add_char(out, '\\');
    else if (byte)
        buf_add_char(out, (char)byte);
    return n;
}

static void add_unescaped(struct buf *out, const char *s)
{
    while (*s) {
        if (*s != '\\')
            buf_add_char(out, *s++);
        else
            s += 1 + add_escape(out, s + 1);
    }
}

/* --- programs -------------------------------------------------------------------------------- */

static bool print_echo(struct printer *p)
{
    bool escapes = false, newline = true, first = true;
    const char *w;

    while (p->at < p->last) {
        w = lex_word(p->l, p->at);
        if (w[0] != '-' || w[1] == '\0' || w[strspn(w + 1, "neE") + 1] != '\0')
            break;
        escapes |= strchr(w, 'e') != NULL;
        newline &= strchr(w, 'n') == NULL;
        p->at++;
    }
    while ((w = next_word(p))) {
        if (!first)
            buf_add_char(&p->out, ' ');
        first = false;
        escapes ? add_unescaped(&p->out, w) : (void)buf_add_str(&p->out, w);
    }
    if (newline)
        buf_add_char(&p->out, '\n');
    return true;
}

/* Prints the format once. False if it has a conversion that is not followed here. */
static bool add_format(struct printer *p, const char *f, bool *ret_used)
{
    while (*f) {
        if (*f == '\\') {
            f += 1 + add_escape(&p->out, f + 1);
        } else if (*f != '%') {
            buf_add_char(&p->out, *f++);
        } else if (f[1] == '%') {
            buf_add_char(&p->out, '%');
            f += 2;
        } else if (f[1] == 's' || f[1] == 'b' || f[1] == 'd') {
            const char *w = next_word(p);

            *ret_used = true;
            if (w && f[1] == 'b')
                add_unescaped(&p->out, w);
            else if (w)
                buf_add_str(&p->out, w);
            f += 2;
        } else {
            return false;
        }
    }
    return true;
}

static bool print_printf(struct printer *p)
{
    const char *name = NULL, *w = next_word(p);
    bool used;

    if (w && strcmp(w, "-v") == 0) {
        name = next_word(p);
        w = next_word(p);
    }
    if (w && strcmp(w, "--") == 0)
        w = next_word(p);
    if (!w)
        return false;
    do {
        used = false;
        if (!add_format(p, w, &used))
            return false;
    } while (used && p->at < p->last && !p->out.overflow);
    if (name) { /* printf -v: the output goes into a variable */
        vars_set(p->l, name, strlen(name), p->out.data ? p->out.data : "", p->out.len, false);
        buf_clear(&p->out);
    }
    return true;
}

/* cat and tee pass on what they read. */
static bool print_input(struct printer *p)
{
    if (!p->input)
        return false;
    buf_add_str(&p->out, p->input);
    return true;
}

static bool print_cat(struct printer *p)
{
    const char *w = next_word(p);

    return (!w || strcmp(w, "-") == 0) && print_input(p);
}

/* which rm, command -v rm: the output is taken to be the name, because rules ignore the folder. */
static bool print_which(struct printer *p)
{
    const char *w = next_word(p);

    while (w && w[0] == '-')
        w = next_word(p);
    if (!w)
        return false;
    buf_add_str(&p->out, w);
    return true;
}

static bool print_command(struct printer *p)
{
    return p->at < p->last && strcmp(lex_word(p->l, p->at), "-v") == 0 && print_which(p);
}

/* type -P rm; without an option it prints a sentence. */
static bool print_type(struct printer *p)
{
    return p->at < p->last && strpbrk(lex_word(p->l, p->at), "pP") &&
           lex_word(p->l, p->at)[0] == '-' && print_which(p);
}

static bool print_nothing(struct printer *p)
{
    (void)p;
    return true;
}

static const struct {
    const char *name;
    bool (*print)(struct printer *p);
} programs[] = {
    { "echo", print_echo }, { "printf", print_printf }, { "cat", print_cat },
    { "tee", print_input }, { "which", print_which },   { "true", print_nothing },
    { "type", print_type }, { "yes", print_echo },      { "command", print_command },
    { ":", print_nothing },
};

char *output_of(struct lex *l, size_t first, size_t last, const char *input)
{
    struct printer p = { .l = l, .at = first, .last = last, .input = input };
    const char *name, *slash;

    while (p.at < last && unwrap_is_assignment(lex_word(l, p.at)))
        p.at++;
    if (p.at == last)
        return strdup(""); /* nothing but assignments */
    name = lex_word(l, p.at++);
    slash = strrchr(name, '/');
    buf_init(&p.out, OUTPUT_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        if (strcmp(programs[i].name, slash ? slash + 1 : name) != 0)
            continue;
        if (!programs[i].print(&p) || p.out.overflow)
            break;
        return p.out.data ? p.out.data : strdup("");
    }
    buf_done(&p.out);
    return NULL;
}
