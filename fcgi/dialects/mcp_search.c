/*
 * search_text and find_files: grep and find of the sandbox, run in it like any command, with an argv of
 * ours. The policy is asked only about the program's name, for its seccomp filter: the text that is searched for is
 * no command. Results, time and output are bounded.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/dialect.h"
#include "fcgi/dialects/mcp.h"

enum {
    RESULTS_DEFAULT = 100,
    RESULTS_MOST = 500,
    LINE_SHOWN = 300,
    PATTERN_MAX = 1000,
    SEARCH_MS = 30000,
    OUTPUT_MAX = 4 * 1024 * 1024,
    RECORD_MAX = 64 * 1024,
    ERROR_MAX = 500,
    ARGS_MAX = 24,
};

struct args {
    const char *pattern, *path, *include;
    bool fixed, ignore_case;
    int64_t most;
};

static const struct json_field text_fields[] = {
    JSON_STR(struct args, pattern, "pattern", JSON_REQUIRED, PATTERN_MAX),
    JSON_STR(struct args, path, "path", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR(struct args, include, "include", JSON_OPTIONAL, 200),
    JSON_BOOL(struct args, fixed, "fixed_string", JSON_OPTIONAL),
    JSON_BOOL(struct args, ignore_case, "ignore_case", JSON_OPTIONAL),
    JSON_INT(struct args, most, "max_results", JSON_OPTIONAL, 1, RESULTS_MOST),
    JSON_END,
};

static const struct json_field name_fields[] = {
    JSON_STR(struct args, pattern, "name", JSON_REQUIRED, 200),
    JSON_STR(struct args, path, "path", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_BOOL(struct args, ignore_case, "ignore_case", JSON_OPTIONAL),
    JSON_INT(struct args, most, "max_results", JSON_OPTIONAL, 1, RESULTS_MOST),
    JSON_END,
};

struct match {
    const char *path, *type;
    int64_t line;
    struct json_text text;
    int64_t size;
};

static const struct json_field match_fields[] = {
    JSON_STR(struct match, path, "path", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct match, line, "line", JSON_REQUIRED, 1, INT64_MAX),
    JSON_TEXT(struct match, text, "text", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static const struct json_field found_fields[] = {
    JSON_STR(struct match, path, "path", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct match, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct match, size, "size_bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

struct matches {
    struct json_array list;
    bool truncated;
};

static const struct json_field matches_fields[] = {
    JSON_OBJECTS(struct matches, list, struct match, "matches", JSON_REQUIRED, match_fields,
                 RESULTS_MOST),
    JSON_BOOL(struct matches, truncated, "truncated", JSON_REQUIRED),
    JSON_END,
};

static const struct json_field files_fields[] = {
    JSON_OBJECTS(struct matches, list, struct match, "files", JSON_REQUIRED, found_fields,
                 RESULTS_MOST),
    JSON_BOOL(struct matches, truncated, "truncated", JSON_REQUIRED),
    JSON_END,
};

static const struct mcp_about about[] = {
    { "pattern",
      "What to look for: an extended regular expression, or with fixed_string the text itself." },
    { "name", "A pattern for file names, such as *.py or test_*." },
    { "path", "The directory to search, with all below it. Default: /workspace." },
    { "include", "Only files whose names fit this pattern, such as *.ts." },
    { "fixed_string", "The pattern is plain text. Default: false." },
    { "ignore_case", "Upper and lower case are the same. Default: false." },
    { "max_results", "How many results to return at most. Default: 100." },
    { "matches", "The lines that fit." },
    { "files", "The files and directories whose names fit." },
    { "line", "The line's number, counted from 1." },
    { "text", "The line, shortened to 300 bytes." },
    { "type", "file, directory, link or other." },
    { "size_bytes", "Its size." },
    { "truncated",
      "True: there are more results than were returned, or the search took too long." },
    { NULL, NULL },
};

struct search {
    struct arena *arena;
    const struct args *args;
    struct matches found;
    struct match *items;
    size_t most;
    struct buf held; /* of a record whose end has not come */
    struct buf errors;
    /* Takes one record apart. False: the bytes are not a record. */
    bool (*parse)(struct search *s, char *record, size_t len, struct match *ret);
    char end; /* of a record */
};

/* ------------------------------------------------------------------ what grep and find print */

/* PATH NUL LINE ':' TEXT, and a line feed. */
static bool parse_match(struct search *s, char *record, size_t len, struct match *ret)
{
    char *nul = memchr(record, '\0', len), *number = nul ? nul + 1 : NULL, *colon;
    size_t left = nul ? len - (size_t)(number - record) : 0;

    colon = number ? memchr(number, ':', left) : NULL;
    if (!colon)
        return false;
    *colon = '\0';
    left -= (size_t)(colon + 1 - number);
    ret->path = arena_strdup(s->arena, record);
    ret->line = strtoll(number, NULL, 10);
    ret->text.len = left < LINE_SHOWN ? left : LINE_SHOWN;
    ret->text.bytes = arena_strndup(s->arena, colon + 1, ret->text.len);
    ret->text.len = strlen(ret->text.bytes);
    return ret->line > 0;
}

/* TYPE ' ' SIZE ' ' PATH NUL */
static bool parse_name(struct search *s, char *record, size_t len, struct match *ret)
{
    char *at = NULL;

    (void)len;
    if (record[0] == '\0' || record[1] != ' ')
        return false;
    ret->type = record[0] == 'f'   ? "file"
                : record[0] == 'd' ? "directory"
                : record[0] == 'l' ? "link"
                                   : "other";
    ret->size = strtoll(record + 2, &at, 10);
    if (*at != ' ' || ret->size < 0)
        return false;
    ret->path = arena_strdup(s->arena, at + 1);
    return true;
}

/* 1: no more are wanted. */
static int take_record(struct search *s, char *record, size_t len)
{
    struct match m = { 0 };

    if (!s->parse(s, record, len, &m))
        return 0;
    if (s->found.list.count == s->most) {
        s->found.truncated = true;
        return 1;
    }
    s->items[s->found.list.count++] = m;
    return 0;
}

static int take_output(struct search *s, const char *bytes, size_t len)
{
    while (len > 0) {
        const char *end = memchr(bytes, s->end, len);
        size_t n = end ? (size_t)(end - bytes) : len;

        /* Of a record that is too long the beginning is kept: that is what would be shown. */
        buf_add(&s->held, bytes, n < s->held.max - s->held.len ? n : s->held.max - s->held.len);
        if (!end)
            return 0;
        if (s->held.len > 0 && take_record(s, s->held.data, s->held.len))
            return 1;
        buf_clear(&s->held);
        bytes += n + 1;
        len -= n + 1;
    }
    return 0;
}

static int sink(void *arg, enum run_stream stream, uint64_t offset, const char *bytes, size_t len)
{
    struct search *s = arg;

    (void)offset;
    if (s->arena->starved) /* records that are no results cost memory, too */
        return -1;
    if (stream == RUN_STDOUT)
        return take_output(s, bytes, len);
    buf_add(&s->errors, bytes,
            len < s->errors.max - s->errors.len ? len : s->errors.max - s->errors.len);
    return 0;
}

/* ------------------------------------------------------------------ running it */

static int run_search(struct mcp_call *c, struct core_session *session, struct search *s,
                      const char *const *argv, const struct policy_filter *filter,
                      struct run_result *ret, struct cove_err *e)
{
    struct run_args run = {
        .argv = argv,
        .cwd = "/",
        .timeout_ms = SEARCH_MS,
        .output_max_bytes = OUTPUT_MAX,
        .max_open_files = session->limits.open_files_max,
        .max_file_bytes = session->limits.file_max_bytes,
        .filter_fd = filter->fd,
        .exec_time = filter->exec_time,
        .dialect = DIALECT_MCP,
        .client_fd = c->req->client_fd,
        .sink = sink,
        .sink_arg = s,
    };

    return core_run(session, &run, ret, e);
}

/* grep says 1 when nothing was found, and 2 when some file could not be read. */
static int check_end(struct search *s, const struct cove_end *end, struct cove_err *e)
{
    int code = end_exit_code(end);

    if (end->cause == END_DEADLINE || end->cause == END_OUTPUT)
        s->found.truncated = true;
    else if (end_was_taken_away(end->cause))
        return cove_fail(e, COVE_GONE, "the sandbox ended during the search");
    else if (code > 1 && s->found.list.count == 0 && s->errors.len > 0 && !s->found.truncated)
        return cove_fail(e, COVE_INVALID, "%.200s", s->errors.data);
    else if (code == 127)
        return cove_fail(e, COVE_UNSUPPORTED, "this sandbox's template has no such program");
    return 0;
}

static int search_in(struct mcp_call *c, struct search *s, const char *const *argv,
                     struct cove_err *e)
{
    struct core_permit permit;
    struct core_session session;
    struct run_result result;
    int rc = mcp_permit(c, argv[0], &permit, e);

    if (rc != 0)
        return rc;
    rc = mcp_open(c, &session, e);
    if (rc == 0) {
        rc = run_search(c, &session, s, argv, &permit.filter, &result, e);
        core_session_close(&session);
    }
    core_permit_put(&permit);
    return rc < 0 ? -1 : check_end(s, &result.end, e);
}

static void put_results(const struct search *s, struct buf *text)
{
    for (size_t i = 0; i < s->found.list.count; i++) {
        const struct match *m = &s->items[i];

        if (m->line)
            buf_addf(text, "%s:%lld:%s\n", m->path, (long long)m->line, m->text.bytes);
        else
            buf_addf(text, "%s%s\n", m->path, *m->type == 'd' ? "/" : "");
    }
    if (s->found.list.count == 0)
        buf_add_str(text, "Nothing was found.");
    if (s->found.truncated)
        buf_add_str(text, "[there is more: search for something narrower]");
}

static int search(struct mcp_call *c, struct search *s, const char *const *argv,
                  const struct json_field *fields, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(1024 * 1024);
    int rc;

    s->arena = &c->req->arena;
    s->most = s->args->most ? (size_t)s->args->most : RESULTS_DEFAULT;
    s->found.list.items = s->items = arena_alloc(s->arena, s->most * sizeof(*s->items));
    buf_init(&s->held, RECORD_MAX);
    buf_init(&s->errors, ERROR_MAX);
    rc = search_in(c, s, argv, e);
    buf_done(&s->held);
    buf_done(&s->errors);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    put_results(s, &text);
    return mcp_reply(c, text.data, text.len, fields, &s->found);
}

static const char *where(const struct args *a)
{
    return a->path && *a->path ? a->path : "/workspace";
}

static int check_path(const struct args *a, struct cove_err *e)
{
    if (*where(a) != '/')
        return cove_fail(e, COVE_INVALID, "path: must begin with '/'");
    if (!*a->pattern)
        return cove_fail(e, COVE_INVALID, "pattern: must not be empty");
    return 0;
}

static int search_text(struct mcp_call *c, const void *args, struct cove_err *e)
{
    const struct args *a = args;
    const char *argv[ARGS_MAX] = { "/usr/bin/grep", "-rnIHZ", "--exclude-dir=.git",
                                   a->fixed ? "-F" : "-E" };
    struct search s = { .args = a, .parse = parse_match, .end = '\n' };
    size_t n = 4;

    if (check_path(a, e) < 0)
        return -1;
    if (a->ignore_case)
        argv[n++] = "-i";
    if (a->include && *a->include)
        argv[n++] = arena_printf(&c->req->arena, "--include=%s", a->include);
    argv[n++] = "-e";
    argv[n++] = a->pattern;
    argv[n++] = "--";
    argv[n] = where(a);
    return search(c, &s, argv, matches_fields, e);
}

const struct mcp_tool mcp_tool_search = {
    .name = "search_text",
    .title = "Search in files",
    .description =
        "Find lines that fit a pattern in all text files below a directory (.git is left out).",
    .hints = MCP_READS,
    .args = text_fields,
    .args_size = sizeof(struct args),
    .result = matches_fields,
    .about = about,
    .run = search_text,
};

static int find_files(struct mcp_call *c, const void *args, struct cove_err *e)
{
    const struct args *a = args;
    const char *const argv[] = { "/usr/bin/find", where(a),
                                 "-xdev",         a->ignore_case ? "-iname" : "-name",
                                 a->pattern,      "-printf",
                                 "%y %s %p\\0",   NULL };
    struct search s = { .args = a, .parse = parse_name, .end = '\0' };

    if (check_path(a, e) < 0)
        return -1;
    return search(c, &s, argv, files_fields, e);
}

const struct mcp_tool mcp_tool_find = {
    .name = "find_files",
    .title = "Find files by name",
    .description = "Find files and directories by name below a directory.",
    .hints = MCP_READS,
    .args = name_fields,
    .args_size = sizeof(struct args),
    .result = files_fields,
    .about = about,
    .run = find_files,
};
