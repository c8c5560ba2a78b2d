/* Lines and settings: the files of keys, tenants and templates are made of them. */
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "keys/keys_private.h"

char *next_word(char **at)
{
    char *word;

    while ((word = strsep(at, " \t")))
        if (*word)
            return word;
    return NULL;
}

int lines_parse(const char *text, line_fn line_cb, void *arg, struct cove_err *e)
{
    AUTO_FREE char *copy = strdup(text);
    unsigned number = 1;
    char *rest = copy, *line;

    if (!copy)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    for (; (line = strsep(&rest, "\n")); number++) {
        line[strcspn(line, "\r")] = '\0';
        if (line[strspn(line, " \t")] == '#' || line[strspn(line, " \t")] == '\0')
            continue;
        if (line_cb(arg, line, e) < 0)
            return cove_context(e, "line %u", number);
    }
    return 0;
}

static const struct {
    const char *name;
    size_t offset;
    bool bytes;
} quota_members[] = {
    { "requests", offsetof(struct quota, requests), false },
    { "sandboxes", offsetof(struct quota, sandboxes), false },
    { "processes", offsetof(struct quota, processes), false },
    { "disk", offsetof(struct quota, disk), true },
};

static uint64_t *member(const struct quota *q, size_t i)
{
    return (uint64_t *)(void *)((char *)(uintptr_t)q + quota_members[i].offset);
}

int quota_set(struct quota *q, const char *name, const char *value, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(quota_members); i++) {
        if (strcmp(quota_members[i].name, name) != 0)
            continue;
        if (quota_members[i].bytes)
            return text_parse_bytes(value, member(q, i), e) < 0 ? cove_context(e, "%s", name)
                                                                : 1 << i;
        if (text_parse_u64(value, member(q, i), e) < 0)
            return cove_context(e, "%s", name);
        if (*member(q, i) > 1000000)
            return cove_fail(e, COVE_INVALID, "%s: %.20s is above 1000000", name, value);
        return 1 << i;
    }
    return 0;
}

void quota_format(const struct quota *q, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(quota_members); i++)
        if (*member(q, i))
            buf_addf(out, " %s=%llu", quota_members[i].name, (unsigned long long)*member(q, i));
}
