/*
 * Records in files: each line is a word and its value, read and written by a table of a struct's members.
 *
 *     static const struct record_field fields[] = {
 *         RECORD(struct build, tenant, RECORD_TEXT, "tenant"),
 *         RECORD(struct build, info.created_unix_ms, RECORD_U64, "created"),
 *         { 0 },
 *     };
 */
#ifndef COVE_RECORD_H
#define COVE_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/err.h"

enum record_kind { RECORD_TEXT, RECORD_U64, RECORD_U32, RECORD_BOOL };

struct record_field { /* a table of them ends with one that has no word */
    const char *word;
    enum record_kind kind;
    size_t offset, size;
};

#define RECORD(type, member, kind, word)                                                           \
    {                                                                                              \
        word, kind, offsetof(type, member), sizeof(((type *)0)->member)                            \
    }

void record_write(const struct record_field *fields, const void *from, struct buf *out);
/* The value of a field of any kind but RECORD_TEXT. */
uint64_t record_number(const struct record_field *f, const void *from);
/* Reads one line, which is cut up in place. A word that the table does not have was written by a newer version
 * and is skipped. COVE_INVALID names the word whose value is wrong. */
int record_read_line(const struct record_field *fields, char *line, void *to, struct cove_err *e);

#endif
