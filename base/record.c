/* Records in files: see cove/record.h. */
#include "cove/record.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "cove/text.h"

uint64_t record_number(const struct record_field *f, const void *from)
{
    const char *at = (const char *)from + f->offset;

    assert(f->kind != RECORD_TEXT);
    switch (f->kind) {
    case RECORD_U64:
        return *(const uint64_t *)(const void *)at;
    case RECORD_U32:
        return *(const uint32_t *)(const void *)at;
    default:
        return *(const bool *)at;
    }
}

void record_write(const struct record_field *fields, const void *from, struct buf *out)
{
    for (const struct record_field *f = fields; f->word; f++)
        if (f->kind == RECORD_TEXT)
            buf_addf(out, "%s %s\n", f->word, (const char *)from + f->offset);
        else
            buf_addf(out, "%s %llu\n", f->word, (unsigned long long)record_number(f, from));
}

static int set_number(const struct record_field *f, const char *value, char *at)
{
    uint64_t n = 0, most = f->kind == RECORD_BOOL  ? 1
                           : f->kind == RECORD_U32 ? UINT32_MAX
                                                   : UINT64_MAX;

    if (text_parse_u64(value, &n, NULL) < 0 || n > most)
        return -1;
    if (f->kind == RECORD_U64)
        *(uint64_t *)(void *)at = n;
    else if (f->kind == RECORD_U32)
        *(uint32_t *)(void *)at = (uint32_t)n;
    else
        *(bool *)at = n != 0;
    return 0;
}

int record_read_line(const struct record_field *fields, char *line, void *to, struct cove_err *e)
{
    char *value = strchr(line, ' ');
    int rc;

    if (!value)
        return cove_fail(e, COVE_INVALID, "the record has a line without a value");
    *value++ = '\0';
    for (const struct record_field *f = fields; f->word; f++) {
        char *at = (char *)to + f->offset;

        if (strcmp(f->word, line) != 0)
            continue;
        rc = f->kind == RECORD_TEXT ? (text_copy(at, f->size, value) ? 0 : -1)
                                    : set_number(f, value, at);
        if (rc < 0)
            return cove_fail(e, COVE_INVALID, "the record's %s is wrong", f->word);
    }
    return 0;
}
