#include "fcgi/transfer.h"

#include <fcgiapp.h>
#include <unistd.h>

#include "cove/text.h"
#include "fcgi/stream.h"

enum { CHUNK_BYTES = 64 * 1024 };

/* Exactly as many bytes as were announced, or the connection breaks: half a file must not look
 * whole. */
static int send_file(struct stream *s, int fd, uint64_t left)
{
    while (left > 0) {
        struct buf *out = stream_open_frame(s, &(struct frame){ 0 });
        char *at = out ? buf_reserve(out, CHUNK_BYTES) : NULL;
        ssize_t n = at ? read(fd, at, left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES) : -1;

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
    if (send_file(&stream, fd, req->method == HEAD ? 0 : bytes) < 0)
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
