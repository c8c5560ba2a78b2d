/*
 * The list of keys for a process that has to know whether a key is still valid, and nothing else about it. The first
 * line is a hash of the others: by it a reader notices a list that is just being written. Each other line is
 *
 *     <public name> <unix time of its end, 20 digits; 0 = never>
 *
 * and the lines are sorted, so that a reader can search in them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/keys.h"
#include "cove/mem.h"
#include "cove/text.h"

enum { LINE = KEY_ID_LEN + 1 + 20 + 1, HASH_LINE = 16 + 1 };

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, KEY_ID_LEN);
}

int key_names_write(const struct keys *keys, struct buf *out)
{
    AUTO_FREE char *lines = calloc(keys->count + 1, LINE);
    char id[KEY_ID_LEN + 1], line[LINE + 1];

    if (!lines)
        return -1;
    for (size_t i = 0; i < keys->count; i++) {
        keys_id(&keys->items[i], id);
        snprintf(line, sizeof(line), "%s %020" PRIu64 "\n", id, keys->items[i].expires_s);
        memcpy(lines + i * LINE, line, LINE);
    }
    qsort(lines, keys->count, LINE, compare);
    buf_addf(out, "%016" PRIx64 "\n%s", text_hash(TEXT_HASH_START, lines), lines);
    return out->overflow ? -1 : 0;
}

int key_names_read(const char *text, struct key_names *ret, struct cove_err *e)
{
    size_t len = strlen(text);
    char hash[HASH_LINE + 1] = "";

    if (len >= HASH_LINE && (len - HASH_LINE) % LINE == 0)
        snprintf(hash, sizeof(hash), "%016" PRIx64 "\n",
                 text_hash(TEXT_HASH_START, text + HASH_LINE));
    if (!*hash || memcmp(hash, text, HASH_LINE) != 0)
        return cove_fail(e, COVE_BUSY, "the list of keys is being written");
    ret->lines = strdup(text + HASH_LINE);
    if (!ret->lines)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    ret->count = (len - HASH_LINE) / LINE;
    return 0;
}

bool key_names_hold(const struct key_names *names, const char *id, uint64_t now_s)
{
    const char *line =
        strlen(id) == KEY_ID_LEN ? bsearch(id, names->lines, names->count, LINE, compare) : NULL;
    uint64_t expires_s = line ? strtoull(line + KEY_ID_LEN + 1, NULL, 10) : 0;

    return line && (expires_s == 0 || now_s < expires_s);
}

void key_names_done(struct key_names *names)
{
    free(names->lines);
    *names = (struct key_names){ 0 };
}
