/* One WebSocket on a process: what all kinds of viewers have in common. See attach.h. */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/attach.h"

enum { TURN_PIECES = 32, PING_MS = 30000 };

struct viewer *viewer_new(struct relay *r, const struct viewer_kind *kind,
                          const struct viewer_options *options)
{
    struct viewer *v = calloc(1, sizeof(*v));
    struct gate *g = r->gate;
    struct budget *bytes = r->usage ? &r->usage->share->socket_bytes : &g->socket_bytes;
    int fd;

    if (!v)
        return NULL;
    buf_done(&r->head);
    fd = watch_take(&r->end[CLIENT]);
    if (websocket_init(&v->socket, &kind->socket, &g->loop, fd, bytes, PING_MS) < 0) {
        free(v);
        return NULL;
    }
    v->relay = r;
    v->kind = kind;
    v->options = *options;
    r->viewer = v;
    r->stage = RELAY_SOCKET;
    r->moved_ms = clock_boot_ms();
    return v;
}

int viewer_greet(struct viewer *v)
{
    const char *protocol = v->options.protocol;

    return websocket_greet(&v->socket, v->options.accept, strcmp(protocol, "-") ? protocol : "");
}

void viewer_close(struct viewer *v, unsigned code, const char *reason)
{
    websocket_close(&v->socket, code, reason);
    websocket_flush(&v->socket);
}

static void end_of(struct viewer *v)
{
    struct attachment *a = v->attachment;
    char reason[160];

    if (v->told_end || !a->has_end)
        return;
    v->told_end = true;
    end_describe(&a->end, reason, sizeof(reason));
    v->kind->ended(v, &a->end);
    websocket_close(&v->socket, WEBSOCKET_NORMAL, *reason ? reason : "exit code 0");
}

/* A bounded number of pieces, so that one viewer does not keep the loop from others. */
static int send_pieces(struct viewer *v, struct cove_err *e)
{
    int rc = 1;

    for (int i = 0; i < TURN_PIECES && rc == 1 && websocket_has_room(&v->socket); i++) {
        rc = v->kind->more(v, e);
        viewer_account(v, rc == 1);
        if (v->socket.pulling)
            websocket_flush(&v->socket); /* makes room for the next */
    }
    return rc;
}

static int try_pump(struct viewer *v, struct cove_err *e)
{
    struct attachment *a = v->attachment;
    int rc;

    if (!v->begun) {
        if (ring_reader_init(&v->at.reader, a->ring, 0, e) < 0 || v->kind->begin(v, e) < 0)
            return -1;
        v->begun = true;
    }
    rc = send_pieces(v, e);
    websocket_want_room(&v->socket, rc == 1);
    v->caught_up = rc == 0;
    if (rc == 0 && a->drained)
        end_of(v);
    return rc;
}

/* Bytes count for the sandbox. A ping counts as bytes, not as activity. */
void viewer_account(struct viewer *v, bool active)
{
    struct box_traffic *u = v->relay->usage;

    if (active)
        v->relay->moved_ms = clock_boot_ms();
    if (!u)
        return;
    u->bytes_in += v->socket.bytes_in - v->counted_in;
    u->bytes_out += v->socket.bytes_out - v->counted_out;
    v->counted_in = v->socket.bytes_in;
    v->counted_out = v->socket.bytes_out;
}

void viewer_pump(struct viewer *v)
{
    struct cove_err e = { 0 };
    int rc;

    if (v->socket.closing || v->socket.broken || v->attachment->ring < 0)
        return;
    rc = try_pump(v, &e);
    if (rc < 0)
        websocket_close(&v->socket, WEBSOCKET_INTERNAL, e.msg);
    websocket_flush(&v->socket);
    viewer_account(v, false); /* after the flush: only what has left is counted */
    if (rc != 1 || websocket_has_room(&v->socket))
        v->blocked_ms = 0;
    else if (!v->blocked_ms)
        v->blocked_ms = clock_boot_ms();
}

void viewer_room(struct websocket *ws)
{
    struct viewer *v = container_of(ws, struct viewer, socket);

    v->blocked_ms = 0;
    viewer_pump(v);
    attachment_progress(v->attachment);
}

void viewer_gone(struct websocket *ws)
{
    relay_close(container_of(ws, struct viewer, socket)->relay);
}
