#include "fcgi/transfer.h"

#include <fcgiapp.h>
#include <unistd.h>

#include "cove/text.h"
#include "fcgi/stream.h"
#include "process/policy_live.h"

enum { CHUNK_BYTES = 64 * 1024 };

int transfer_bytes(struct stream *s, int fd, uint64_t left, bool announced)
{
    while (left > 0) {
        struct buf *out = stream_open_frame(s, &(struct frame){ 0 });
        char *at = out ? buf_reserve(out, CHUNK_BYTES) : NULL;
        ssize_t n = at ? read(fd, at, left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES) : -1;

        if (n == 0 && !announced)
            break;
        if (n <= 0)
            return -1;
        out->len = (size_t)n;
        left -= (uint64_t)n;
        stream_close_frame(s);
        if (stream_drain(s) < 0)
            return -1;
    }
    return stream_end(s);
}

void transfer_send(struct request *req, struct reply *rep, int fd, uint64_t bytes)
{
    struct stream stream;

    reply_header(rep, "Content-Length",
                 arena_printf(&req->arena, "%llu", (unsigned long long)bytes));
    stream_init(&stream, req, rep, &framing_bytes);
    stream_begin(&stream);
    if (transfer_bytes(&stream, fd, req->method == HEAD ? 0 : bytes, true) < 0)
        req->note.cause = "client";
}

int transfer_receive(struct request *req, struct core_file *file, struct cove_err *e)
{
    char chunk[CHUNK_BYTES];
    const char *declared = request_param(req, "CONTENT_LENGTH");
    uint64_t want = 0;
    int n;

    if (*declared && text_parse_u64(declared, &want, e) < 0)
        return cove_context(e, "Content-Length");
    while ((n = FCGX_GetStr(chunk, CHUNK_BYTES, req->in)) > 0)
        if (core_file_write(file, chunk, (size_t)n, e) < 0)
            return -1;
    if (FCGX_GetError(req->in) || file->written < want)
        return cove_fail(e, COVE_INVALID, "body: ended before its Content-Length");
    return 0;
}

static int send_piece(void *arg, enum run_stream stream, uint64_t offset, const char *bytes,
                      size_t len)
{
    struct stream *s = arg;
    struct buf *out;

    (void)offset;
    if (stream != RUN_STDOUT)
        return 0;
    out = stream_open_frame(s, &(struct frame){ 0 });
    if (!out)
        return -1;
    buf_add(out, bytes, len);
    stream_close_frame(s);
    return stream_drain(s);
}

/* A command's output is limited to twice the size of the sandbox's disk. */
static uint64_t most_output(const struct core_session *s)
{
    return s->limits.disk_max_bytes ? 2 * s->limits.disk_max_bytes : UINT64_MAX / 2;
}

int transfer_output(struct request *req, struct reply *rep, struct core_session *s,
                    const char *const *argv, const struct policy_filter *filter, struct cove_err *e)
{
    struct run_result result;
    struct stream stream;
    struct run_args args = {
        .argv = argv,
        .cwd = "/",
        .timeout_ms = req->core->config->lifetime_ms,
        .output_max_bytes = most_output(s),
        .filter_fd = filter->fd,
        .exec_time = filter->exec_time,
        .dialect = req->core->dialect,
        .leaving = req->core->leaving,
        .client_fd = req->client_fd,
        .stream = &stream,
        .sink = send_piece,
        .sink_arg = &stream,
    };

    stream_init(&stream, req, rep, &framing_bytes);
    stream_begin(&stream);
    if (core_run(s, &args, &result, e) < 0)
        return -1;
    if (result.end.cause == END_OWN && end_exit_code(&result.end) == 0)
        stream_end(&stream);
    return 0;
}
