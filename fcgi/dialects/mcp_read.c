/* read_file: a whole file, or a range of its lines. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/base64.h"
#include "cove/text.h"
#include "fcgi/dialects/mcp.h"

enum {
    READ_DEFAULT = 50000,
    READ_LEAST = 100,
    READ_MOST = 128 * 1024,       /* the answer has it twice, and a byte can take six in JSON */
    SCAN_MOST = 64 * 1024 * 1024, /* how far into a file a line is looked for */
    PIECE_BYTES = 64 * 1024,
};

struct read_args {
    const char *path;
    int64_t start_line, lines, max_bytes;
};

static const struct mcp_about about[] = {
    { "path", "Absolute path, or one that begins in the home directory." },
    { "start_line", "The first line to return, counted from 1. Default: 1." },
    { "line_count", "How many lines to return at most. Default: as many as fit." },
    { "max_bytes", "How much to return at most. Default: 50000." },
    { "encoding", "utf-8, or base64 when the file is not text." },
    { "text", "What was read." },
    { "next_line", "Pass it as start_line to read on; not there at the end of the file." },
    { "size_bytes", "The size of the whole file." },
    { NULL, NULL },
};

bool mcp_is_text(const char *bytes, size_t len)
{
    return !memchr(bytes, '\0', len) && text_is_utf8(bytes, len);
}

/* ------------------------------------------------------------------ read_file */

static const struct json_field read_fields[] = {
    JSON_STR(struct read_args, path, "path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_INT(struct read_args, start_line, "start_line", JSON_OPTIONAL, 1, INT32_MAX - 1),
    JSON_INT(struct read_args, lines, "line_count", JSON_OPTIONAL, 1, INT32_MAX - 1),
    JSON_INT(struct read_args, max_bytes, "max_bytes", JSON_OPTIONAL, READ_LEAST, READ_MOST),
    JSON_END,
};

struct read_result {
    const char *path, *encoding;
    struct json_text text;
    int64_t start_line, next_line, size;
};

static const struct json_field read_result_fields[] = {
    JSON_STR(struct read_result, path, "path", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct read_result, encoding, "encoding", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct read_result, text, "text", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct read_result, start_line, "start_line", JSON_REQUIRED, 1, INT64_MAX),
    JSON_INT(struct read_result, next_line, "next_line", JSON_OPTIONAL, 1, INT64_MAX),
    JSON_INT(struct read_result, size, "size_bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

struct range {
    int64_t line, first, last; /* the current line; the first and last line that are wanted */
    struct buf out;
    bool full;
};

/* Keeps those of these bytes that lie in the range of lines. 1: nothing behind them is wanted. */
static int take_lines(struct range *r, const char *bytes, size_t len)
{
    const char *end = bytes + len;

    while (bytes < end) {
        const char *feed = memchr(bytes, '\n', (size_t)(end - bytes));
        size_t n = (size_t)((feed ? feed + 1 : end) - bytes);
        size_t room = r->out.max - r->out.len;

        if (r->line > r->last)
            return 1;
        if (r->line >= r->first) {
            r->full = n > room;
            if (buf_add(&r->out, bytes, r->full ? room : n) < 0)
                return -1;
            if (r->full)
                return 1;
        }
        r->line += feed != NULL;
        bytes += n;
    }
    return 0;
}

static int read_range(int fd, struct range *r, bool *ret_more, struct cove_err *e)
{
    AUTO_FREE char *bytes = malloc(PIECE_BYTES);
    size_t scanned = 0;
    ssize_t n = 1;
    int rc = 0;

    if (!bytes)
        return core_fail_memory(e);
    while (rc == 0 && scanned < SCAN_MOST && (n = read(fd, bytes, PIECE_BYTES)) > 0) {
        scanned += (size_t)n;
        rc = take_lines(r, bytes, (size_t)n);
    }
    if (n < 0)
        return cove_fail_errno(e, COVE_INVALID, "reading");
    if (rc < 0 || r->out.starved)
        return core_fail_memory(e);
    if (scanned >= SCAN_MOST && r->line < r->first)
        return cove_fail(e, COVE_TOO_LARGE, "start_line: is further than 64 MiB into the file");
    *ret_more = rc == 1;
    return 0;
}

/* A line that did not fit is left out, unless it is the only one; then its beginning is returned. */
static void end_at_line(struct range *r)
{
    char *feed = r->full ? memrchr(r->out.data, '\n', r->out.len) : NULL;

    if (feed)
        r->out.len = (size_t)(feed + 1 - r->out.data);
    else if (r->full)
        while (r->out.len > 0 && !text_is_utf8(r->out.data, r->out.len) &&
               r->out.len > r->out.max - 4)
            r->out.len--;
}

static struct json_text as_base64(struct arena *a, const struct buf *bytes)
{
    char *text = arena_alloc(a, BASE64_LEN(bytes->len) + 1);

    base64_encode(bytes->data, bytes->len, text);
    return (struct json_text){ text, BASE64_LEN(bytes->len) };
}

static int answer_read(struct mcp_call *c, const char *path, const struct range *r, bool more,
                       const struct box_stat *st)
{
    const char *bytes = r->out.data ? r->out.data : "";
    struct read_result result = {
        .path = path,
        .encoding = "utf-8",
        .text = { bytes, r->out.len },
        .start_line = r->first,
        .next_line =
            more ? (r->full && !memchr(bytes, '\n', r->out.len) ? r->line + 1 : r->line) : 0,
        .size = (int64_t)st->bytes,
    };

    if (mcp_is_text(bytes, r->out.len))
        return mcp_reply(c, bytes, r->out.len, read_result_fields, &result);
    result.encoding = "base64";
    result.next_line = 0;
    result.text = as_base64(&c->req->arena, &r->out);
    return mcp_replyf(
        c, read_result_fields, &result,
        "%.200s is not text: %llu bytes. The first %zu are in the structured result, as base64.",
        path, (unsigned long long)st->bytes, r->out.len);
}

static int read_opened(struct mcp_call *c, const struct read_args *a, int fd,
                       const struct box_stat *st, struct cove_err *e)
{
    struct range r = { .line = 1, .first = a->start_line ? a->start_line : 1 };
    bool more = false;
    int rc;

    r.last = a->lines ? r.first + a->lines - 1 : INT64_MAX - 1;
    buf_init_within(&r.out, a->max_bytes ? (size_t)a->max_bytes : READ_DEFAULT,
                    c->req->core->bytes);
    rc = read_range(fd, &r, &more, e);
    if (rc == 0) {
        end_at_line(&r);
        rc = answer_read(c, a->path, &r, more, st);
    }
    buf_done(&r.out);
    return rc;
}

static int read_file(struct mcp_call *c, const void *args, struct cove_err *e)
{
    const struct read_args *a = args;
    AUTO_CLOSE int fd = -1;
    struct core_session s;
    struct box_stat st;
    int rc;

    if (mcp_open(c, &s, e) < 0)
        return -1;
    rc = core_file_open(&s, core_default_user(&s), a->path, &fd, &st, e);
    core_session_close(&s);
    return rc < 0 ? -1 : read_opened(c, a, fd, &st, e);
}

const struct mcp_tool mcp_tool_read = {
    .name = "read_file",
    .title = "Read a file",
    .description =
        "Read a file, whole or a range of lines. Large files come in parts: go on with next_line.",
    .hints = MCP_READS,
    .args = read_fields,
    .args_size = sizeof(struct read_args),
    .result = read_result_fields,
    .about = about,
    .run = read_file,
};
