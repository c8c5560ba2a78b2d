/* The file `info` of a snapshot: what is known of it, a word and its value a line. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/snapshots.h"

enum { INFO_BYTES_MAX = 2048 };

static const struct field {
    const char *word;
    size_t at, size;
} fields[] = {
    { "tenant", offsetof(struct snapshot, info.tenant), COVE_TENANT_MAX },
    { "name", offsetof(struct snapshot, info.name), COVE_TEMPLATE_MAX },
    { "tags", offsetof(struct snapshot, info.tags), COVE_TAGS_MAX },
    { "build", offsetof(struct snapshot, info.build), 40 },
    { "sandbox", offsetof(struct snapshot, info.sandbox), 24 },
    { "template", offsetof(struct snapshot, info.template), COVE_TEMPLATE_MAX },
    { "parent", offsetof(struct snapshot, parent), 24 },
};

static const struct number {
    const char *word;
    size_t at;
} numbers[] = {
    { "created", offsetof(struct snapshot, info.created_unix_ms) },
    { "bytes", offsetof(struct snapshot, info.bytes) },
};

static void format_info(const struct snapshot *s, struct buf *out)
{
    const char *base = (const char *)s;

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        buf_addf(out, "%s %s\n", fields[i].word, base + fields[i].at);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        buf_addf(out, "%s %llu\n", numbers[i].word,
                 *(const unsigned long long *)(base + numbers[i].at));
    buf_addf(out, "flags %u\n", (unsigned)s->info.flags);
}

static void parse_line(char *line, struct snapshot *s)
{
    char *value = strchr(line, ' ');
    uint64_t flags;

    if (!value)
        return;
    *value++ = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (strcmp(fields[i].word, line) == 0)
            text_copy((char *)s + fields[i].at, fields[i].size, value);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        if (strcmp(numbers[i].word, line) == 0)
            text_parse_u64(value, (uint64_t *)((char *)s + numbers[i].at), NULL);
    if (strcmp(line, "flags") == 0 && text_parse_u64(value, &flags, NULL) == 0)
        s->info.flags = (uint32_t)flags;
}

/* Written beside and renamed: what is there is whole. */
int snapshot_info_write(int dir, const struct snapshot *s, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, "info.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    AUTO_BUF struct buf text = BUF(INFO_BYTES_MAX);

    format_info(s, &text);
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len ||
        renameat(dir, "info.new", dir, "info") < 0)
        return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL,
                               "record of the snapshot");
    return 0;
}

bool snapshot_info_read(int dir, struct snapshot *s)
{
    char text[INFO_BYTES_MAX], *rest = text, *line;

    if (read_file_at(dir, "info", text, sizeof(text)) <= 0)
        return false;
    while ((line = strsep(&rest, "\n")))
        parse_line(line, s);
    if (s->info.name[0] && !s->info.tags[0]) /* of a version that knew no tags */
        text_copy(s->info.tags, sizeof(s->info.tags), COVE_TAG_DEFAULT);
    return true;
}
