/*
 * Forms that clients upload: fcgi/multipart.c. The input is a Content-Type up to its first line feed, and the body. However the body
 * is cut into pieces, the same parts with the same bytes come out, and calls come in order: begin, data..., end.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    uint64_t hash; /* of all names and bytes, in order */
    uint64_t bytes;
    unsigned parts;
    bool open;
};

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * 1099511628211u;
    return hash;
}

static int begin(void *arg, const struct multipart_part *part, struct cove_err *e)
{
    struct seen *s = arg;

    (void)e;
    assert(!s->open && strlen(part->name) < 256 &&
           (!part->filename || strlen(part->filename) < 4096));
    s->open = true;
    s->parts++;
    s->hash = text_hash(text_hash(s->hash, part->name), part->filename ? part->filename : "\xff");
    return 0;
}

static int add(void *arg, const char *bytes, size_t len, struct cove_err *e)
{
    struct seen *s = arg;

    (void)e;
    assert(s->open && len > 0);
    s->hash = hash_bytes(s->hash, bytes, len);
    s->bytes += len;
    return 0;
}

static int end(void *arg, struct cove_err *e)
{
    struct seen *s = arg;

    (void)e;
    assert(s->open);
    s->open = false;
    return 0;
}

/* What multipart_finish() or the first failure says. */
static int read_form(const char *type, const char *body, size_t len, size_t piece, struct seen *ret)
{
    struct multipart m = { .begin = begin, .data = add, .end = end, .arg = ret };
    struct cove_err e = { 0 };
    int rc = 0;

    *ret = (struct seen){ .hash = TEXT_HASH_START };
    if (multipart_init(&m, type, &e) < 0)
        return -1;
    for (size_t at = 0; rc == 0 && at < len; at += piece)
        rc = multipart_feed(&m, body + at, len - at < piece ? len - at : piece, &e);
    if (rc == 0)
        rc = multipart_finish(&m, &e);
    assert(rc < 0 || !ret->open);
    assert(ret->bytes <= len && ret->parts <= MULTIPART_PARTS_MAX);
    multipart_done(&m);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *feed = size ? memchr(data, '\n', size) : NULL;
    struct seen whole, pieces;
    const char *body;
    char type[1024];
    size_t len;

    if (!feed || (size_t)(feed - data) >= sizeof(type))
        return 0;
    memcpy(type, data, (size_t)(feed - data));
    type[feed - data] = '\0';
    body = (const char *)feed + 1;
    len = size - (size_t)(feed + 1 - data);
    if (read_form(type, body, len, len ? len : 1, &whole) == 0) {
        assert(read_form(type, body, len, 1 + size % 7, &pieces) == 0);
        assert(whole.hash == pieces.hash && whole.parts == pieces.parts);
    } else {
        assert(read_form(type, body, len, 1 + size % 7, &pieces) < 0);
    }
    return 0;
}
