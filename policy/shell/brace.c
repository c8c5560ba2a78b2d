/*
 * Brace expansion, as bash does it: -{r,f} is -r -f, {rm,-rf,/{,}} is rm -rf / /, r{m..m} is rm.
 * Only braces and commas that were not quoted count; quote.c keeps their places (lex.live).
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

#define SEQUENCE_MAX 20000

/* A word, and for each of its characters whether it was written without quotes. */
struct live_text {
    char *text;
    char *live;
    size_t len;
};

static void live_done(struct live_text *t)
{
    free(t->text);
    free(t->live);
}

static bool is_live(const struct live_text *t, size_t i, char c)
{
    return t->live[i] && t->text[i] == c;
}

static bool live_new(struct live_text *t, size_t len)
{
    *t = (struct live_text){ malloc(len + 1), calloc(1, len + 1), 0 };
    return t->text && t->live;
}

static void live_add(struct live_text *t, const struct live_text *from, size_t at, size_t len)
{
    memcpy(t->text + t->len, from->text + at, len);
    memcpy(t->live + t->len, from->live + at, len);
    t->len += len;
    t->text[t->len] = '\0';
}

struct list {
    size_t open, close;
    size_t commas; /* at its own level */
};

/* The first list at or behind `from` that closes. */
static bool find_list(const struct live_text *t, size_t from, struct list *ret)
{
    for (; from < t->len; from++) {
        size_t depth = 0;

        if (!is_live(t, from, '{'))
            continue;
        *ret = (struct list){ .open = from };
        for (size_t i = from; i < t->len; i++) {
            depth += is_live(t, i, '{');
            ret->commas += depth == 1 && is_live(t, i, ',');
            if (is_live(t, i, '}') && --depth == 0) {
                ret->close = i;
                return true;
            }
        }
        return false; /* this list never closes, so none behind it closes at this level either */
    }
    return false;
}

static void expand(struct lex *l, const struct live_text *t, size_t from);

/* Writes what stands before the list, one item of the list, and what stands behind it. */
static void expand_item(struct lex *l, const struct live_text *t, const struct list *g,
                        const struct live_text *item, size_t at, size_t len)
{
    struct live_text whole = { 0 };

    if (lex_spend(l, t->len + len) && live_new(&whole, t->len + len)) {
        live_add(&whole, t, 0, g->open);
        live_add(&whole, item, at, len);
        live_add(&whole, t, g->close + 1, t->len - g->close - 1);
        expand(l, &whole, g->open);
    }
    live_done(&whole);
}

static void expand_commas(struct lex *l, const struct live_text *t, const struct list *g)
{
    size_t item = g->open + 1, depth = 0;

    for (size_t i = item; i <= g->close && lex_going(l); i++) {
        if ((is_live(t, i, ',') && depth == 0) || i == g->close) {
            expand_item(l, t, g, t, item, i - item);
            item = i + 1;
        }
        depth += is_live(t, i, '{');
        depth -= is_live(t, i, '}') && depth > 0;
    }
}

/* Reads the ends and the step of a..e, 1..9 or 9..1..2. False if the text is no such range, or
 * the range is too long. */
static bool read_sequence(const char *s, size_t len, long *first, long *last, long *step,
                          bool *letters)
{
    char text[64], a, b, end;

    if (len >= sizeof(text))
        return false;
    memcpy(text, s, len);
    text[len] = '\0';
    *step = 1;
    *letters = true;
    if (sscanf(text, "%c..%c%c", &a, &b, &end) == 2 && isalpha((unsigned char)a) &&
        isalpha((unsigned char)b)) {
        *first = a;
        *last = b;
        return true;
    }
    *letters = false;
    if (sscanf(text, "%ld..%ld..%ld%c", first, last, step, &end) != 3 &&
        sscanf(text, "%ld..%ld%c", first, last, &end) != 2)
        return false;
    *step = labs(*step) ? labs(*step) : 1;
    return labs(*first) < 1000000000 && labs(*last) < 1000000000 &&
           labs(*last - *first) / *step < SEQUENCE_MAX;
}

static bool expand_sequence(struct lex *l, const struct live_text *t, const struct list *g)
{
    long first, last, step;
    bool letters;

    if (!read_sequence(t->text + g->open + 1, g->close - g->open - 1, &first, &last, &step,
                       &letters))
        return false;
    for (long n = labs(last - first) / step, i = 0; i <= n && lex_going(l); i++) {
        long value = first < last ? first + i * step : first - i * step;
        char text[32], live[32] = "";
        struct live_text item = { text, live, 0 };

        text[0] = (char)value;
        item.len = letters ? 1 : (size_t)snprintf(text, sizeof(text), "%ld", value);
        expand_item(l, t, g, &item, 0, item.len);
    }
    return true;
}

static void expand(struct lex *l, const struct live_text *t, size_t from)
{
    struct list g;

    if (lex_enter(l)) {
        while (find_list(t, from, &g) && lex_spend(l, g.close - g.open)) {
            if (g.commas)
                expand_commas(l, t, &g);
            else if (!expand_sequence(l, t, &g)) {
                from = g.open + 1; /* {x} is nothing special, but something in it may be */
                continue;
            }
            lex_leave(l);
            return;
        }
        lex_word_open(l);
        lex_word_add(l, t->text, t->len);
        lex_word_close(l);
    }
    lex_leave(l);
}

void brace_expand_last(struct lex *l)
{
    const struct word *last = &l->words[l->word_count - 1];
    const char *text = l->text.data + last->start;
    struct live_text t = { 0 };
    struct list g;

    if (l->live_count == last->live || unwrap_is_assignment(text))
        return;
    if (!live_new(&t, strlen(text))) {
        lex_limit(l);
    } else {
        t.len = strlen(text);
        memcpy(t.text, text, t.len + 1);
        for (size_t i = last->live; i < l->live_count; i++) {
            if (l->live[i] - last->start < t.len)
                t.live[l->live[i] - last->start] = 1;
        }
        if (find_list(&t, 0, &g)) {
            lex_word_drop(l, l->word_count - 1);
            expand(l, &t, 0);
        }
    }
    live_done(&t);
}
