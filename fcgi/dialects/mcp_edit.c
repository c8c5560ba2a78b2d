/* edit_file: one text in a file is replaced by another, exactly. */
#include <string.h>

#include "fcgi/dialects/mcp.h"

enum { EDIT_MOST = 4 * 1024 * 1024 };

struct args {
    const char *path;
    struct json_text old_text, new_text;
    bool all;
};

static const struct json_field arg_fields[] = {
    JSON_STR(struct args, path, "path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_TEXT(struct args, old_text, "old_text", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct args, new_text, "new_text", JSON_REQUIRED, JSON_ANY),
    JSON_BOOL(struct args, all, "replace_all", JSON_OPTIONAL),
    JSON_END,
};

struct result {
    const char *path;
    int64_t count, line;
};

static const struct json_field result_fields[] = {
    JSON_STR(struct result, path, "path", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct result, count, "replacements", JSON_REQUIRED, 1, INT64_MAX),
    JSON_INT(struct result, line, "first_line", JSON_REQUIRED, 1, INT64_MAX),
    JSON_END,
};

static const struct mcp_about about[] = {
    { "path", "The file." },
    { "old_text",
      "The text to replace, exactly as it stands in the file, blanks and line ends included." },
    { "new_text", "What to put in its place." },
    { "replace_all",
      "Replace it wherever it stands. Default: false; then it must stand there exactly once." },
    { "replacements", "How often it was replaced." },
    { "first_line", "The line of the first replacement." },
    { NULL, NULL },
};

static int64_t line_of(const char *text, size_t at)
{
    int64_t line = 1;

    for (const char *end = text + at; (text = memchr(text, '\n', (size_t)(end - text))); text++)
        line++;
    return line;
}

/* The text with its replacements; *ret_count is how often the old one was found. */
static int replace(const struct buf *from, const struct args *a, struct buf *out,
                   struct result *ret)
{
    const char *at = from->data ? from->data : "", *end = at + from->len, *found;

    while ((found = memmem(at, (size_t)(end - at), a->old_text.bytes, a->old_text.len))) {
        if (ret->count++ == 0)
            ret->line = line_of(from->data, (size_t)(found - from->data));
        buf_add(out, at, (size_t)(found - at));
        buf_add(out, a->new_text.bytes, a->new_text.len);
        at = found + a->old_text.len;
    }
    return buf_add(out, at, (size_t)(end - at));
}

static int check_count(const struct args *a, const struct result *r, struct cove_err *e)
{
    if (r->count == 0)
        return cove_fail(e, COVE_INVALID,
                         "old_text: is not in '%.100s'. Read the file and copy the text exactly",
                         a->path);
    if (r->count > 1 && !a->all)
        return cove_fail(e, COVE_INVALID,
                         "old_text: occurs %lld times. Add lines around it until it is the "
                         "only one, or set "
                         "replace_all",
                         (long long)r->count);
    return 0;
}

static int edit_in(struct mcp_call *c, struct core_session *s, const struct args *a,
                   struct result *ret, struct cove_err *e)
{
    const char *user = core_default_user(s);
    AUTO_BUF struct buf before = BUF(0);
    AUTO_BUF struct buf after = BUF(0);

    buf_init_within(&before, EDIT_MOST, c->req->core->bytes);
    buf_init_within(&after, 2 * EDIT_MOST, c->req->core->bytes);
    if (core_file_read(s, user, a->path, &before, e) < 0)
        return -1;
    if (replace(&before, a, &after, ret) < 0 && check_count(a, ret, e) == 0)
        return after.starved
                   ? core_fail_memory(e)
                   : cove_fail(e, COVE_TOO_LARGE, "the new file would be larger than 8 MiB");
    if (check_count(a, ret, e) < 0)
        return -1;
    return core_file_put(s, user, a->path, false, after.data, after.len, e);
}

static int edit(struct mcp_call *c, const void *args, struct cove_err *e)
{
    const struct args *a = args;
    struct result r = { .path = a->path, .line = 1 };
    struct core_session s;
    int rc;

    if (a->old_text.len == 0)
        return cove_fail(e, COVE_INVALID,
                         "old_text: must not be empty; write_file writes a whole file");
    if (mcp_open(c, &s, e) < 0)
        return -1;
    rc = edit_in(c, &s, a, &r, e);
    core_session_close(&s);
    if (rc < 0)
        return -1;
    return mcp_replyf(c, result_fields, &r, "Replaced %lld time%s in %.400s, first in line %lld",
                      (long long)r.count, r.count == 1 ? "" : "s", a->path, (long long)r.line);
}

const struct mcp_tool mcp_tool_edit = {
    .name = "edit_file",
    .title = "Edit a file",
    .description = "Replace an exact piece of text in a file of up to 4 MiB. The old text must be "
                   "unique in the file "
                   "unless replace_all is set; nothing is changed if it is not.",
    .hints = MCP_DESTROYS,
    .args = arg_fields,
    .args_size = sizeof(struct args),
    .result = result_fields,
    .about = about,
    .run = edit,
};
