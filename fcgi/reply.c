/* Replies: head, body, and the default shape of bad news. */
#include "fcgi/reply.h"

#include <assert.h>
#include <fcgiapp.h>
#include <limits.h>

enum { HEAD_MAX_BYTES = 8 * 1024, BODY_FIRST_BYTES = 512, LARGE_BODY_BYTES = 16 * 1024 };

void reply_init(struct reply *rep, size_t body_max)
{
    *rep = (struct reply){ .status = 200 };
    buf_init(&rep->body, body_max);
    json_writer_init(&rep->json, &rep->body);
    buf_reserve(&rep->body, BODY_FIRST_BYTES); /* most replies then grow no more */
}

void reply_done(struct reply *rep)
{
    buf_done(&rep->body);
}

void reply_within(struct reply *rep, struct budget *budget)
{
    buf_done(&rep->body);
    rep->body.budget = budget;
    buf_reserve(&rep->body, BODY_FIRST_BYTES);
}

void reply_clear(struct reply *rep)
{
    buf_clear(&rep->body);
    rep->json.comma = false;
    rep->content_type = NULL;
}

void reply_header(struct reply *rep, const char *name, const char *value)
{
    assert(rep->header_count < REPLY_HEADERS_MAX);
    rep->headers[rep->header_count++] = (struct pair){ name, value };
}

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        { 200, "OK" },
        { 201, "Created" },
        { 202, "Accepted" },
        { 204, "No Content" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 409, "Conflict" },
        { 410, "Gone" },
        { 413, "Content Too Large" },
        { 429, "Too Many Requests" },
        { 499, "Client Closed Request" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 502, "Bad Gateway" },
        { 503, "Service Unavailable" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Status";
}

int reply_head(const struct reply *rep, const struct request *req, struct buf *out)
{
    buf_addf(out, "Status: %d %s\r\n", rep->status, reason_of(rep->status));
    if (rep->body.len > 0 && !rep->streamed)
        buf_addf(out, "Content-Type: %s\r\n",
                 rep->content_type ? rep->content_type : "application/json");
    if (rep->status != 204 && !rep->streamed)
        buf_addf(out, "Content-Length: %zu\r\n", rep->body.len);
    buf_addf(out, "X-Request-Id: %s\r\n", req->request_id);
    for (size_t i = 0; i < rep->header_count; i++)
        buf_addf(out, "%s: %s\r\n", rep->headers[i].name, rep->headers[i].value);
    return buf_add_str(out, "\r\n");
}

static void put(const char *data, size_t len, FCGX_Stream *out)
{
    while (len > 0) {
        int n = FCGX_PutStr(data, len > INT_MAX ? INT_MAX : (int)len, out);

        if (n <= 0)
            return; /* the other side is gone: nobody to tell */
        data += n;
        len -= (size_t)n;
    }
}

static void send_head(const struct reply *rep, const struct request *req, FCGX_Stream *out)
{
    struct buf head;

    buf_init(&head, HEAD_MAX_BYTES);
    reply_head(rep, req, &head);
    assert(!head.overflow);
    put(head.data, head.len, out);
    buf_done(&head);
}

void reply_send(const struct reply *rep, const struct request *req, FCGX_Stream *out)
{
    struct wire wire;
    size_t taken;

    send_head(rep, req, out);
    if (req->method == HEAD || rep->body.len == 0)
        return;
    if (rep->body.len < LARGE_BODY_BYTES || req->client_fd < 0) {
        put(rep->body.data, rep->body.len, out);
    } else if (FCGX_FFlush(out) == 0) { /* in records of 64 KiB instead of 8 */
        wire_init(&wire, req->client_fd, req->fcgi_id);
        wire_send(&wire, rep->body.data, rep->body.len, true, &taken);
    }
}

void reply_begin(struct reply *rep, const struct request *req)
{
    rep->streamed = true;
    /* nginx collects replies unless one says otherwise: most streams are wanted as they come. */
    if (!rep->collected)
        reply_header(rep, "X-Accel-Buffering", "no");
    if (req->out) {
        send_head(rep, req, req->out);
        FCGX_FFlush(req->out);
    }
    wire_init(&rep->wire, req->client_fd, req->fcgi_id);
}

static const struct error_reply usual_errors[] = {
    { COVE_INVALID, 400 },   { COVE_UNAUTHORIZED, 401 }, { COVE_FORBIDDEN, 403 },
    { COVE_NOT_FOUND, 404 }, { COVE_METHOD, 405 },       { COVE_TIMEOUT, 408 },
    { COVE_CONFLICT, 409 },  { COVE_GONE, 410 },         { COVE_TOO_LARGE, 413 },
    { COVE_LIMIT, 429 },     { COVE_BUSY, 503 },         { COVE_UNSUPPORTED, 501 },
    { COVE_QUOTA, 429 },     { COVE_NOT_READY, 422 },
};

static int find_status(const struct error_reply *rows, size_t count, enum cove_code code)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].code == code)
            return rows[i].status;
    return 0;
}

int reply_error_status(const struct error_reply *rows, size_t count, enum cove_code code)
{
    int own = find_status(rows, count, code);
    int usual = find_status(usual_errors, ARRAY_SIZE(usual_errors), code);

    return own ? own : usual ? usual : 500;
}

void reply_json(struct reply *rep, const struct json_field *fields, const void *from)
{
    json_put_object(&rep->json, NULL, fields, from);
}

struct plain_error {
    const char *error;
};

static const struct json_field plain_error_fields[] = {
    JSON_STR(struct plain_error, error, "error", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

void reply_plain_error(struct request *req, struct reply *rep, const struct cove_err *e)
{
    (void)req;
    rep->status = reply_error_status(NULL, 0, e->code);
    reply_json(rep, plain_error_fields, &(struct plain_error){ e->msg });
}
