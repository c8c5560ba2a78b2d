#include "cove/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/text.h"

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){ .max = max };
}

void buf_init_within(struct buf *b, size_t max, struct budget *budget)
{
    *b = (struct buf){ .max = max, .budget = budget };
}

void buf_done(struct buf *b)
{
    free(b->data);
    budget_give(b->budget, b->cap);
    *b = (struct buf){ .max = b->max, .budget = b->budget };
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->overflow = b->starved = false;
    if (b->data)
        b->data[0] = '\0';
}

void buf_drop(struct buf *b, size_t n)
{
    if (n >= b->len) {
        buf_clear(b);
        return;
    }
    memmove(b->data, b->data + n, b->len - n + 1); /* with the NUL */
    b->len -= n;
}

static int overflow(struct buf *b)
{
    b->overflow = true;
    return -1;
}

/* Makes room for `more` bytes and a NUL. */
static int grow(struct buf *b, size_t more)
{
    size_t need, cap;
    char *data;

    assert(b->len <= b->max && (b->len < b->cap || !b->cap));
    if (more > b->max - b->len)
        return overflow(b);
    need = b->len + more + 1;
    if (need <= b->cap)
        return 0;
    cap = b->cap ? b->cap : 256;
    while (cap < need)
        cap *= 2;
    if (cap > b->max + 1)
        cap = b->max + 1;
    if (!budget_take(b->budget, cap - b->cap)) {
        b->starved = true;
        return overflow(b);
    }
    data = realloc(b->data, cap);
    if (!data) {
        budget_give(b->budget, cap - b->cap);
        return overflow(b);
    }
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_add(struct buf *b, const void *data, size_t len)
{
    if (grow(b, len) < 0)
        return -1;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_add_str(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_add_char(struct buf *b, char c)
{
    return buf_add(b, &c, 1);
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    int len;

    va_start(ap, fmt);
    va_copy(again, ap);
    len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (len < 0 || grow(b, (size_t)len) < 0) {
        va_end(again);
        return overflow(b);
    }
    vsnprintf(b->data + b->len, (size_t)len + 1, fmt, again);
    va_end(again);
    b->len += (size_t)len;
    return 0;
}

char *buf_reserve(struct buf *b, size_t want)
{
    if (grow(b, want) < 0)
        return NULL;
    return b->data + b->len;
}

/* One part of a longer text did not fit: the buffer goes back to its length before that text. */
static int take_back(struct buf *b, size_t start)
{
    b->len = start;
    if (b->data)
        b->data[start] = '\0';
    return overflow(b);
}

/* The escape of one ASCII character that JSON does not take as it is, or NULL. */
static const char *json_escape(unsigned char c, char scratch[8])
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    }
    if (c >= ' ' && c != 127)
        return NULL;
    snprintf(scratch, 8, "\\u%04x", c);
    return scratch;
}

/* Counts the bytes from `s` on that can be copied as they are. */
static size_t plain_run(const char *s, size_t len)
{
    size_t n = 0;

    while ((n += text_plain_run(s + n, len - n)) < len) {
        unsigned char c = (unsigned char)s[n];
        size_t seq = 1;

        if (c < ' ' || c == '"' || c == '\\' || c == 127)
            break;
        if (c >= 0x80 && (seq = text_utf8_seq(s + n, len - n)) == 0)
            break;
        n += seq;
    }
    return n;
}

int buf_add_json_part(struct buf *b, const char *s, size_t len)
{
    size_t start = b->len;
    int failed = 0;

    while (len > 0 && !failed) {
        size_t n = plain_run(s, len);
        char scratch[8];
        const char *esc;

        failed = buf_add(b, s, n);
        s += n;
        len -= n;
        if (len == 0 || failed)
            break;
        esc = json_escape((unsigned char)*s, scratch);
        failed = buf_add_str(b, esc ? esc : "\xef\xbf\xbd");
        s++;
        len--;
    }
    return failed ? take_back(b, start) : 0;
}

int buf_add_json_str(struct buf *b, const char *s, size_t len)
{
    size_t start = b->len;

    if (buf_add_char(b, '"') < 0 || buf_add_json_part(b, s, len) < 0 || buf_add_char(b, '"') < 0)
        return take_back(b, start);
    return 0;
}
