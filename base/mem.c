#include "cove/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/budget.h"

int cove_close(int fd)
{
    if (fd >= 0) {
        int saved = errno;

        close(fd);
        errno = saved;
    }
    return -1;
}

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(16) char data[];
};

enum { BLOCK_SIZE = 4096 - sizeof(struct arena_block) };

static struct arena_block *block_new(struct arena *a, size_t size)
{
    struct arena_block *b = calloc(1, sizeof(*b) + size);

    if (!b)
        abort();
    b->size = size;
    b->next = a->blocks;
    a->blocks = b;
    a->bytes += sizeof(*b) + size;
    a->starved |= !budget_charge(a->budget, sizeof(*b) + size);
    return b;
}

void arena_within(struct arena *a, struct budget *budget)
{
    budget_give(a->budget, a->bytes);
    a->budget = budget;
    a->starved = !budget_charge(budget, a->bytes);
}

void *arena_alloc(struct arena *a, size_t size)
{
    struct arena_block *b = a->blocks;
    void *p;

    if (size > SIZE_MAX / 2)
        abort();
    size = (size + 15) & ~(size_t)15;
    if (!b || b->size - b->used < size)
        b = block_new(a, size > BLOCK_SIZE ? size : BLOCK_SIZE);
    p = b->data + b->used;
    b->used += size;
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    char *copy = arena_alloc(a, len + 1);

    memcpy(copy, s, len);
    return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    char *out;
    int len;

    va_start(ap, fmt);
    va_copy(again, ap);
    len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (len < 0)
        abort();
    out = arena_alloc(a, (size_t)len + 1);
    vsnprintf(out, (size_t)len + 1, fmt, again);
    va_end(again);
    return out;
}

void arena_done(struct arena *a)
{
    arena_within(a, NULL);
    a->bytes = 0;
    while (a->blocks) {
        struct arena_block *next = a->blocks->next;

        free(a->blocks);
        a->blocks = next;
    }
}
