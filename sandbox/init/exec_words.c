/*
 * The words of an execve that waits for its verdict, read from the memory of the process that is stopped at it. The process belongs to
 * the sandbox: its addresses may lead nowhere, and its strings have no end that could be trusted.
 */
#include "config.h" /* _GNU_SOURCE */

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "sandbox/init/init_private.h"

enum {
    ARGV_BYTES_MAX = 2 * 1024 * 1024, /* what the kernel takes under the usual limit of the stack */
    FIRST_BYTES = 8 * 1024,
    PAGE = 4096,
};

struct view { /* the page of another process that was read last: its strings are neighbours */
    pid_t pid;
    uint64_t base; /* 0: none */
    char page[PAGE];
};

/* The bytes at address `at`, up to the end of their page: the next page may not be mapped. */
static const char *view_at(struct view *v, uint64_t at, size_t *ret_len)
{
    uint64_t base = at - at % PAGE;
    struct iovec local = { v->page, PAGE }, remote = { (void *)(uintptr_t)base, PAGE };

    if (base != v->base || base == 0) {
        v->base = 0;
        if (process_vm_readv(v->pid, &local, 1, &remote, 1, 0) != PAGE)
            return NULL;
        v->base = base;
    }
    *ret_len = PAGE - at % PAGE;
    return v->page + at % PAGE;
}

static bool words_add(struct exec_words *w, const char *bytes, size_t len)
{
    if (w->len + len > w->cap) {
        size_t cap = w->cap ? w->cap : FIRST_BYTES;
        char *more;

        while (cap < w->len + len)
            cap *= 2;
        more = cap <= 2 * (size_t)ARGV_BYTES_MAX ? realloc(w->bytes, cap) : NULL;
        if (!more)
            return false;
        w->bytes = more;
        w->cap = cap;
    }
    memcpy(w->bytes + w->len, bytes, len);
    w->len += len;
    return true;
}

static bool add_word(struct exec_words *w, struct view *v, uint64_t at)
{
    while (w->len < ARGV_BYTES_MAX) {
        size_t len;
        const char *s = view_at(v, at, &len), *nul = s ? memchr(s, '\0', len) : NULL;

        if (!s || !words_add(w, s, nul ? (size_t)(nul + 1 - s) : len))
            return false;
        if (nul) {
            w->count++;
            return true;
        }
        at += len;
    }
    return false;
}

static bool read_pointer(struct view *v, uint64_t at, uint64_t *ret)
{
    char *out = (char *)ret;

    for (size_t done = 0, len; done < sizeof(*ret); done += len) { /* may lie across two pages */
        const char *s = view_at(v, at + done, &len);

        if (!s)
            return false;
        len = len < sizeof(*ret) - done ? len : sizeof(*ret) - done;
        memcpy(out + done, s, len);
    }
    return true;
}

void exec_words_read(struct exec_words *w, pid_t pid, uint64_t file, uint64_t argv)
{
    struct view pointers = { .pid = pid }, strings = { .pid = pid };
    uint64_t word;

    w->truncated = !add_word(w, &strings, file);
    for (; argv && !w->truncated; argv += sizeof(word)) {
        if (!read_pointer(&pointers, argv, &word))
            w->truncated = true;
        else if (word == 0)
            break;
        else
            w->truncated = !add_word(w, &strings, word);
    }
}
