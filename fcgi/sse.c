/* Server-Sent Events on top of a streamed reply. */
#include "fcgi/sse.h"

#include <sys/socket.h>

/* A client (nginx for it) that takes nothing for this long is taken for gone. */
static const struct timeval patience = { .tv_sec = 60 };

void sse_begin(struct reply *rep, const struct request *req)
{
    if (req->client_fd >= 0)
        setsockopt(req->client_fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    reply_header(rep, "Content-Type", "text/event-stream");
    reply_header(rep, "Cache-Control", "no-cache");
    reply_begin(rep, req);
    buf_add_str(&rep->body,
                ": here it begins\n\n"); /* nginx keeps a head to itself until a body follows */
    reply_flush(rep, req);
}

/* The id comes first: who looks for "event: x\ndata: {...}\n\n" finds it as documented. */
void sse_event(struct reply *rep, const char *id, const char *name, const struct json_field *fields,
               const void *from)
{
    struct json_writer w;

    buf_addf(&rep->body, "id: %s\nevent: %s\ndata: ", id, name);
    json_writer_init(&w, &rep->body);
    json_put_object(&w, NULL, fields, from);
    buf_add_str(&rep->body, "\n\n");
}

void sse_comment(struct reply *rep)
{
    buf_add_str(&rep->body, ": still here\n\n");
}

int sse_heartbeat(struct reply *rep, const struct request *req)
{
    sse_comment(rep);
    return reply_flush(rep, req);
}

int sse_flush_some(struct reply *rep, const struct request *req)
{
    return rep->body.len < SSE_BATCH_BYTES ? 0 : reply_flush(rep, req);
}
