/* The log of each build: a file "l.ID" with a line per entry: time, level, step, message. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/builder/builder_private.h"

static void name_of(const char *id, char out[64])
{
    snprintf(out, 64, "l.%.40s", id);
}

static void append(struct build *b, const char *line, size_t len)
{
    char name[64];
    AUTO_CLOSE int fd = -1;

    name_of(b->info.id, name);
    fd = openat(b->builder->dir, name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, len) != (ssize_t)len)
        return; /* a full disk shortens the log; the build's own failure says more */
    b->log_bytes += len;
}

/* Replaces control characters, which would end the line or change the reader's terminal. */
static void add_clean(struct buf *line, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        buf_add_char(line, (unsigned char)text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i]);
    buf_add_char(line, '\n');
}

static void add_line(struct build *b, enum build_level level, const char *step, const char *text,
                     size_t len)
{
    static const char full[] = "this log is full: further output is not kept";
    AUTO_BUF struct buf line = BUF(2 * BUILD_MESSAGE_MAX);
    bool last = b->log_bytes + len + 64 > LOG_BYTES_MAX;

    if (b->log_bytes > LOG_BYTES_MAX)
        return;
    if (len >= BUILD_MESSAGE_MAX)
        len = BUILD_MESSAGE_MAX - 1;
    buf_addf(&line, "%llu %d %s ", (unsigned long long)clock_unix_ms(),
             last ? BUILD_WARN : (int)level, *step ? step : "-");
    add_clean(&line, last ? full : text, last ? sizeof(full) - 1 : len);
    append(b, line.data, line.len);
    if (last)
        b->log_bytes = LOG_BYTES_MAX + 1;
}

void log_add(struct build *b, enum build_level level, const char *step, const char *text,
             size_t len)
{
    const char *end = text + len;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((stop ? stop : end) - text), shown = n;

        while (shown > 0 && text[shown - 1] == '\r')
            shown--;
        add_line(b, level, step, text, shown);
        text += n + 1;
    }
}

void log_addf(struct build *b, enum build_level level, const char *step, const char *fmt, ...)
{
    char text[BUILD_MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    log_add(b, level, step, text, strlen(text));
}

/* ------------------------------------------------------------------ reading */

struct line {
    struct build_entry entry;
    char step[16];
    const char *message;
    size_t len;
};

static bool read_line(const char *text, const char *end, struct line *ret)
{
    unsigned long long ms;
    unsigned level;
    int used = 0;

    *ret = (struct line){ 0 };
    if (sscanf(text, "%llu %u %15s%n", &ms, &level, ret->step, &used) != 3 || level > BUILD_ERROR ||
        text + used >= end)
        return false;
    ret->entry = (struct build_entry){ .unix_ms = ms, .level = level };
    ret->message = text + used + 1;
    ret->len = (size_t)(end - ret->message);
    return true;
}

static void put(struct buf *out, const struct line *l)
{
    buf_add(out, &l->entry, sizeof(l->entry));
    buf_add(out, l->step, strlen(l->step) + 1);
    buf_add(out, l->message, l->len);
    buf_add_char(out, '\0');
}

struct cursor {
    const char *at, *begin, *end;
    bool backward;
};

/* The next whole line, from either end. NULL: there is none. */
static const char *next_line(struct cursor *c, const char **ret_end)
{
    const char *stop, *start;

    if (c->backward) {
        if (c->end <= c->begin)
            return NULL;
        stop = c->end - 1; /* skips the last line end */
        for (start = stop; start > c->begin && start[-1] != '\n';)
            start--;
        c->end = start;
    } else {
        start = c->at;
        stop = start < c->end ? memchr(start, '\n', (size_t)(c->end - start)) : NULL;
        if (!stop)
            return NULL;
        c->at = stop + 1;
    }
    *ret_end = stop;
    return start;
}

static uint32_t select_lines(char *text, size_t len, const struct build_ask *ask, struct buf *out)
{
    struct cursor c = { text, text, text + len, ask->backward };
    uint64_t skipped = 0;
    uint32_t told = 0;
    const char *start, *end;
    struct line l;

    while (c.end > c.begin && c.end[-1] != '\n')
        c.end--; /* leaves out a line that is still being written */
    while (told < ask->limit && told < BUILD_ENTRIES_MAX && (start = next_line(&c, &end))) {
        if (!read_line(start, end, &l) || l.entry.level < ask->level)
            continue;
        if (skipped++ < ask->offset)
            continue;
        put(out, &l);
        told++;
    }
    return told;
}

uint32_t log_read(const struct builder *b, const struct build_ask *ask, struct buf *out)
{
    const size_t most = LOG_BYTES_MAX + 8 * BUILD_MESSAGE_MAX;
    AUTO_FREE char *text = malloc(most + 1);
    AUTO_CLOSE int fd = -1;
    char name[64];
    ssize_t len;

    name_of(ask->which.id, name);
    fd = openat(b->dir, name, O_RDONLY | O_CLOEXEC);
    len = fd < 0 || !text ? 0 : pread(fd, text, most, 0);
    if (len <= 0)
        return 0;
    text[len] = '\0';
    return select_lines(text, (size_t)len, ask, out);
}
