/*
 * Tables for people: each column is as wide as its content. On a terminal the table is cut to the terminal's width
 * and has a bold head and coloured words; in a pipe there are no colours and nothing is cut.
 */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { TABLE_COLUMNS_MAX = 12 };

enum table_paint { PAINT_NONE, PAINT_GOOD, PAINT_BAD, PAINT_QUIET };

struct table_cell {
    char *text;
    enum table_paint paint;
};

struct table {
    /* NULL-terminated. '>' in front: a column of numbers. '?' in front, or after that: left out where the terminal is
     * too narrow, the last one first. */
    const char *const *heads;
    size_t columns;
    struct table_cell *cells;
    size_t count;
};

void table_begin(struct table *t, const char *const *heads);
/* Cells come row by row. What is not printable becomes '?'. */
void table_add(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_paint(struct table *t, enum table_paint paint); /* the cell that was added last */
void table_end(struct table *t);                           /* prints it */

/* A word in colour, if standard output is a terminal and NO_COLOR is not set. Both are "" otherwise. */
const char *paint_on(enum table_paint paint);
const char *paint_off(void);

#endif
