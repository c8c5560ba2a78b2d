/* run_command: a shell command, with its output told as progress while it runs, and as a whole at its end. */
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "fcgi/check.h"
#include "fcgi/dialects/mcp.h"

enum {
    OUTPUT_DEFAULT = 30000,
    OUTPUT_LEAST = 1000,
    OUTPUT_MOST = 128 * 1024, /* the answer has it twice, and a byte can take six in JSON */
    TIMEOUT_DEFAULT_S = 120,
    PIECE_BYTES = 16 * 1024,
    CARRY_MAX = 3, /* of a character that is not whole yet */
};

struct args {
    struct mcp_command command;
    int64_t timeout_s, output_bytes;
};

static const struct json_field arg_fields[] = {
    JSON_STR(struct args, command.command, "command", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct args, command.cwd, "cwd", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR_MAP(struct args, command.env, "env", JSON_OPTIONAL, ENV_MAX_COUNT, ENV_MAX_BYTES),
    JSON_INT(struct args, timeout_s, "timeout_seconds", JSON_OPTIONAL, 1, TIMEOUT_MAX_S),
    JSON_INT(struct args, output_bytes, "max_output_bytes", JSON_OPTIONAL, OUTPUT_LEAST,
             OUTPUT_MOST),
    JSON_END,
};

struct result {
    int64_t exit_code;
    const char *ended, *reason;
    struct json_text out, err;
    int64_t omitted, duration_ms;
};

static const struct json_field result_fields[] = {
    JSON_INT(struct result, exit_code, "exit_code", JSON_REQUIRED, 0, 255),
    JSON_STR(struct result, ended, "ended_by", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct result, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_TEXT(struct result, out, "stdout", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct result, err, "stderr", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct result, omitted, "omitted_bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct result, duration_ms, "duration_ms", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

static const struct mcp_about about[] = {
    { "command", "The command, as bash takes it: pipes, && and quotes work." },
    { "cwd", "Absolute path of the directory to run in. Default: the home directory." },
    { "env", "Environment variables for this command." },
    { "timeout_seconds", "After this long the command and all it started are killed. Default: 120. "
                         "The server may have a lower "
                         "limit." },
    { "max_output_bytes",
      "How much of each output stream to return. More is left out in the middle. Default: 30000." },
    { "exit_code",
      "As a shell shows it: 128 + signal when a signal ended it, 124 at the time-out." },
    { "ended_by", "own: by itself. Else what ended it: deadline, memory, output, client, ..." },
    { "reason", "Why it ended, in words, if it did not end by itself." },
    { "stdout", "What it wrote to standard output." },
    { "stderr", "What it wrote to standard error." },
    { "omitted_bytes", "How many bytes of output were left out." },
    { "duration_ms", "How long it ran." },
    { NULL, NULL },
};

/* ------------------------------------------------------------------ output */

/* One stream's output: the beginning and the end of it are kept. */
struct kept {
    struct buf first, last;
    size_t most;
    uint64_t dropped;
    char carry[CARRY_MAX];
    size_t carried;
};

struct run {
    struct mcp_call *call;
    struct kept out[2]; /* by enum run_stream */
};

static void kept_init(struct kept *k, size_t most, struct budget *budget)
{
    *k = (struct kept){ .most = most };
    buf_init_within(&k->first, most / 2, budget);
    buf_init_within(&k->last, most + PIECE_BYTES, budget);
}

static void kept_done(struct kept *k)
{
    buf_done(&k->first);
    buf_done(&k->last);
}

static int keep(struct kept *k, const char *bytes, size_t len)
{
    size_t room = k->first.max - k->first.len, n = len < room ? len : room;

    if (n > 0 && buf_add(&k->first, bytes, n) < 0)
        return -1;
    if (len > n && buf_add(&k->last, bytes + n, len - n) < 0)
        return -1;
    if (k->last.len > k->most) {
        n = k->last.len - k->most / 2;
        buf_drop(&k->last, n);
        k->dropped += n;
    }
    return 0;
}

/* Both parts as one text, with a word about what is missing between them. */
static int join(struct kept *k)
{
    char gap[80] = "";
    struct buf whole;
    int rc;

    if (k->last.len > k->most / 2) {
        k->dropped += k->last.len - k->most / 2;
        buf_drop(&k->last, k->last.len - k->most / 2);
    }
    if (k->dropped > 0)
        snprintf(gap, sizeof(gap), "\n[... %llu bytes left out ...]\n",
                 (unsigned long long)k->dropped);
    buf_init_within(&whole, 2 * k->most + sizeof(gap), k->first.budget);
    rc = buf_add(&whole, k->first.data ? k->first.data : "", k->first.len) < 0 ||
                 buf_add_str(&whole, gap) < 0 ||
                 buf_add(&whole, k->last.data ? k->last.data : "", k->last.len) < 0
             ? -1
             : 0;
    buf_done(&k->first);
    k->first = whole;
    return rc;
}

/* How many bytes at the end belong to a character that goes on in the next piece. */
static size_t open_character(const char *bytes, size_t len)
{
    for (size_t back = 1; back <= CARRY_MAX && back <= len; back++) {
        unsigned char c = (unsigned char)bytes[len - back];
        size_t whole = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;

        if ((c & 0xC0) != 0x80)
            return whole > back ? back : 0;
    }
    return 0;
}

static void tell(struct mcp_call *c, struct kept *k, const char *bytes, size_t len)
{
    char piece[CARRY_MAX + PIECE_BYTES];
    size_t total = k->carried + len, open;

    if (!c->streaming || !c->progress.bytes || total > sizeof(piece))
        return;
    memcpy(piece, k->carry, k->carried);
    memcpy(piece + k->carried, bytes, len);
    open = open_character(piece, total);
    k->carried = open;
    memcpy(k->carry, piece + total - open, open);
    if (total > open)
        mcp_put_progress(c, (int64_t)(total - open), piece, total - open);
}

static int sink(void *arg, enum run_stream stream, uint64_t offset, const char *bytes, size_t len)
{
    struct run *r = arg;

    (void)offset;
    if (mcp_is_cancelled(r->call) || keep(&r->out[stream], bytes, len) < 0)
        return -1;
    tell(r->call, &r->out[stream], bytes, len);
    return 0;
}

/* ------------------------------------------------------------------ the answer */

static const char *reason_of(struct mcp_call *c, const struct cove_end *end)
{
    char what[160] = "";

    if (end->cause != END_OWN || end->signal)
        end_describe(end, what, sizeof(what));
    return *what ? arena_strdup(&c->req->arena, what) : NULL;
}

static int put_text(const struct result *r, struct buf *text)
{
    buf_add(text, r->out.bytes, r->out.len);
    if (r->err.len > 0) {
        buf_addf(text, "%s[stderr]\n",
                 r->out.len && r->out.bytes[r->out.len - 1] != '\n' ? "\n" : "");
        buf_add(text, r->err.bytes, r->err.len);
    }
    if (text->len > 0 && text->data[text->len - 1] != '\n')
        buf_add_char(text, '\n');
    return buf_addf(text, "[exit code %lld%s%s]", (long long)r->exit_code, r->reason ? ": " : "",
                    r->reason ? r->reason : "");
}

static int answer(struct run *r, const struct run_result *run, struct cove_err *e)
{
    struct mcp_call *c = r->call;
    struct result result = {
        .exit_code = end_exit_code(&run->end),
        .ended = end_cause_name(run->end.cause),
        .reason = reason_of(c, &run->end),
        .duration_ms = (int64_t)(run->end.ended_unix_ms - run->end.started_unix_ms),
    };
    AUTO_BUF struct buf text = BUF(0);

    if (run->end.cause != END_OWN)
        c->req->note.cause = end_cause_name(run->end.cause);
    if (c->cancelled || run->end.cause == END_CLIENT)
        return 0; /* nobody waits for an answer */
    if (join(&r->out[RUN_STDOUT]) < 0 || join(&r->out[RUN_STDERR]) < 0)
        return core_fail_memory(e);
    result.out = (struct json_text){ r->out[0].first.data, r->out[0].first.len };
    result.err = (struct json_text){ r->out[1].first.data, r->out[1].first.len };
    result.omitted = (int64_t)(r->out[0].dropped + r->out[1].dropped);
    buf_init_within(&text, result.out.len + result.err.len + 512, c->req->core->bytes);
    if (put_text(&result, &text) < 0)
        return core_fail_memory(e);
    if (end_was_taken_away(run->end.cause)) {
        mcp_reply_failure(c, text.data);
        return 0;
    }
    return mcp_reply(c, text.data, text.len, result_fields, &result);
}

/* ------------------------------------------------------------------ running it */

static uint64_t timeout_ms(const struct args *a, const struct limits *limits)
{
    uint64_t wanted = (uint64_t)(a->timeout_s ? a->timeout_s : TIMEOUT_DEFAULT_S) * 1000;

    return wanted < limits->run_timeout_ms ? wanted : limits->run_timeout_ms;
}

static int run_in(struct run *r, struct core_session *s, const struct args *a,
                  const char *const *env, const struct policy_filter *filter,
                  struct run_result *ret, struct cove_err *e)
{
    const char *const argv[] = { "/bin/bash", "-c", a->command.command, NULL };
    struct mcp_call *c = r->call;
    struct run_args args = {
        .argv = argv,
        .cwd = a->command.cwd,
        .env = env,
        .timeout_ms = timeout_ms(a, &s->limits),
        .output_max_bytes = s->limits.output_max_bytes,
        .max_open_files = s->limits.open_files_max,
        .max_file_bytes = s->limits.file_max_bytes,
        .filter_fd = filter->fd,
        .exec_time = filter->exec_time,
        .dialect = DIALECT_MCP,
        .client_fd = c->req->client_fd,
        .sink = sink,
        .sink_arg = r,
        .sink_bytes = PIECE_BYTES,
    };

    mcp_begin_stream(c);
    args.stream = c->streaming ? &c->stream : NULL;
    return core_run(s, &args, ret, e);
}

static int run_permitted(struct mcp_call *c, const void *args, const char *const *env,
                         const struct policy_filter *filter, struct cove_err *e)
{
    const struct args *a = args;
    struct budget *budget = c->req->core->bytes;
    struct run r = { .call = c };
    size_t most = a->output_bytes ? (size_t)a->output_bytes : OUTPUT_DEFAULT;
    struct run_result result;
    struct core_session s;
    int rc;

    if (mcp_open(c, &s, e) < 0)
        return -1;
    kept_init(&r.out[0], most, budget);
    kept_init(&r.out[1], most, budget);
    rc = run_in(&r, &s, a, env, filter, &result, e);
    core_session_close(&s);
    if (rc == 0)
        rc = answer(&r, &result, e);
    kept_done(&r.out[0]);
    kept_done(&r.out[1]);
    return rc;
}

static int run_command_tool(struct mcp_call *c, const void *args, struct cove_err *e)
{
    return mcp_with_permit(c, args, run_permitted, e);
}

const struct mcp_tool mcp_tool_run = {
    .name = "run_command",
    .title = "Run a command",
    .description = "Run a shell command in the sandbox and wait for its end. Returns its output "
                   "and exit code. A "
                   "non-zero exit code is not an error of this tool. What the command leaves in "
                   "the background goes on. "
                   "For servers and other long-running programs use start_process.",
    .hints = MCP_DESTROYS | MCP_OPEN,
    .args = arg_fields,
    .args_size = sizeof(struct args),
    .result = result_fields,
    .about = about,
    .run = run_command_tool,
};
