/* Files as they are, of any size: one buffer holds what is on its way. An extension of the
 * document. */
#include <fcgiapp.h>
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/dialects/executor.h"
#include "fcgi/stream.h"

enum { CHUNK_BYTES = 64 * 1024 };

static int decode_path(struct request *req, const char **ret, struct cove_err *e)
{
    const char *path = request_query(req, "path");

    if (!path || !*path)
        return cove_fail(e, COVE_INVALID, "path: is missing from the query");
    if (strlen(path) >= MSG_PATH_MAX)
        return cove_fail(e, COVE_INVALID, "path: longer than %d bytes", MSG_PATH_MAX - 1);
    *ret = path;
    return 0;
}

/* ------------------------------------------------------------------ GET */

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

int executor_get_raw(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct stream stream;
    AUTO_CLOSE int fd = -1;
    struct box_stat st;
    const char *path;
    int rc;

    req->note.operation = "raw_file";
    if (decode_path(req, &path, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    rc = core_file_open(&session, req->core->config->user, path, &fd, &st, e);
    core_session_close(&session);
    if (rc < 0)
        return executor_fail(e);
    reply_header(rep, "Content-Type", "application/octet-stream");
    reply_header(rep, "Content-Length",
                 arena_printf(&req->arena, "%llu", (unsigned long long)st.bytes));
    stream_init(&stream, req, rep, &framing_bytes);
    stream_begin(&stream);
    if (send_file(&stream, fd, req->method == HEAD ? 0 : st.bytes) < 0)
        req->note.cause = "client";
    return 0;
}

/* ------------------------------------------------------------------ PUT */

static int receive_file(struct request *req, struct core_file *file, struct cove_err *e)
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

int executor_put_raw(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct core_file file;
    const char *path;
    int rc;

    req->note.operation = "raw_file";
    if (decode_path(req, &path, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    rc = core_file_create(&session, req->core->config->user, path,
                          request_query(req, "parents") != NULL, &file, e);
    if (rc == 0) {
        rc = receive_file(req, &file, e) < 0 || core_file_commit(&file, e) < 0 ? -1 : 0;
        core_file_done(&file);
    }
    core_session_close(&session);
    if (rc < 0)
        return executor_fail(e);
    return executor_reply(rep, &(struct executor_result){
                                   .success = true,
                                   .bytes = (int64_t)file.written,
                                   .has_bytes = true,
                               });
}
