#include "cli/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cove/text.h"

enum { GAP = 2, LEAST = 8 }; /* blanks between columns; a column is not cut below this */

static bool has_colours(void)
{
    static int known = -1;

    if (known < 0)
        known = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    return known > 0;
}

const char *paint_on(enum table_paint paint)
{
    static const char *const codes[] = { [PAINT_NONE] = "",
                                         [PAINT_GOOD] = "\033[32m",
                                         [PAINT_BAD] = "\033[31m",
                                         [PAINT_QUIET] = "\033[2m" };

    return has_colours() ? codes[paint] : "";
}

const char *paint_off(void)
{
    return has_colours() ? "\033[0m" : "";
}

/* How many columns the terminal has; 0: the output is no terminal, and nothing is cut. */
static size_t terminal_width(void)
{
    struct winsize size;

    if (!isatty(STDOUT_FILENO))
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

void table_begin(struct table *t, const char *const *heads)
{
    *t = (struct table){ .heads = heads };
    while (heads[t->columns])
        t->columns++;
}

void table_add(struct table *t, const char *fmt, ...)
{
    struct table_cell *more = reallocarray(t->cells, t->count + 1, sizeof(*more));
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (!more || vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    t->cells = more;
    t->cells[t->count++] = (struct table_cell){ .text = text };
}

void table_paint(struct table *t, enum table_paint paint)
{
    t->cells[t->count - 1].paint = paint;
}

/* Counts characters as a terminal shows them; most take one column. */
static size_t width_of(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static const char *head_of(const struct table *t, size_t column)
{
    return t->heads[column] + strspn(t->heads[column], ">?");
}

static bool is_number(const struct table *t, size_t column)
{
    return t->heads[column][0] == '>';
}

static bool may_be_left_out(const struct table *t, size_t column)
{
    return t->heads[column][is_number(t, column)] == '?';
}

static void measure(const struct table *t, size_t widths[TABLE_COLUMNS_MAX])
{
    for (size_t i = 0; i < t->columns; i++)
        widths[i] = width_of(head_of(t, i));
    for (size_t i = 0; i < t->count; i++) {
        size_t width = width_of(t->cells[i].text);

        if (width > widths[i % t->columns])
            widths[i % t->columns] = width;
    }
}

/* Shortens the widest column of text until the table fits. The first column names the row and stays. When no column can be
 * shortened any more, one that may be left out gets the width 0. */
static void fit(const struct table *t, size_t widths[TABLE_COLUMNS_MAX], size_t room)
{
    for (;;) {
        size_t all = 0, widest = 0, spare = 0;

        for (size_t i = 0; i < t->columns; i++) {
            all += widths[i] ? widths[i] + (i > 0 ? GAP : 0) : 0;
            if (i > 0 && !is_number(t, i) && (!widest || widths[i] > widths[widest]))
                widest = i;
            if (widths[i] && may_be_left_out(t, i))
                spare = i;
        }
        if (all <= room)
            return;
        if (widest && widths[widest] > LEAST)
            widths[widest]--;
        else if (spare)
            widths[spare] = 0;
        else
            return;
    }
}

static void print_cell(const char *text, size_t width, bool number, bool is_last,
                       const char *before, const char *after)
{
    size_t has = width_of(text), bytes = strlen(text);
    const char *cut = "";

    if (width == 0)
        return;
    if (has > width) {
        for (bytes = 0, has = 0; has < width - 1; has++)
            bytes += text_utf8_seq(text + bytes, strlen(text + bytes))
                         ? text_utf8_seq(text + bytes, strlen(text + bytes))
                         : 1;
        cut = "…";
        has = width;
    }
    printf("%*s%s%.*s%s%s", number ? (int)(width - has) : 0, "", before, (int)bytes, text, cut,
           after);
    if (!is_last)
        printf("%*s", (int)((number ? 0 : width - has) + GAP), "");
}

void table_end(struct table *t)
{
    size_t widths[TABLE_COLUMNS_MAX], room = terminal_width(), last = 0;

    measure(t, widths);
    if (room)
        fit(t, widths, room);
    for (size_t i = 0; i < t->columns; i++)
        last = widths[i] ? i : last;
    for (size_t i = 0; i < t->columns; i++)
        print_cell(head_of(t, i), widths[i], is_number(t, i), i == last,
                   has_colours() ? "\033[1m" : "", paint_off());
    putchar('\n');
    for (size_t i = 0; i < t->count; i++) {
        size_t column = i % t->columns;
        const struct table_cell *cell = &t->cells[i];

        print_cell(cell->text, widths[column], is_number(t, column), column == last,
                   paint_on(cell->paint), cell->paint ? paint_off() : "");
        if (column + 1 == t->columns)
            putchar('\n');
        free(cell->text);
    }
    free(t->cells);
    *t = (struct table){ 0 };
}
