/*
 * StreamInput: a stream of input to one process, as long as the client sends. The first message names
 * the process. Each message is written before the next one is read, so a process that does not read
 * slows its client down, up to the limit that holds for every write to a process.
 */
#include "fcgi/dialects/e2b_process.h"

/* A message's memory is freed before the next one is read. */
static int take_one(struct rpc *r, struct e2b_process *p, bool *known, struct cove_err *e)
{
    ProtobufCMessage *m;
    const Process__StreamInputRequest *in;
    int n = rpc_next(r, &process__stream_input_request__descriptor, &m, e);

    if (n <= 0)
        return n;
    in = (const Process__StreamInputRequest *)m;
    switch (in->event_case) {
    case PROCESS__STREAM_INPUT_REQUEST__EVENT_START:
        *known = true;
        return e2b_process_running(r, in->start->process, p, e) < 0 ? -1 : 1;
    case PROCESS__STREAM_INPUT_REQUEST__EVENT_DATA:
        if (!*known)
            return cove_fail(e, COVE_INVALID, "the first message must be start");
        return e2b_process_input(r, p, in->data->input, e) < 0 ? -1 : 1;
    default: /* keepalive */
        return 1;
    }
}

static int stream_input(struct rpc *r, const ProtobufCMessage *none, struct cove_err *e)
{
    Process__Empty empty = PROCESS__EMPTY__INIT;
    struct arena *a = &r->req->arena, before = *a;
    bool known = false;
    struct e2b_process p;
    int n;

    (void)none;
    do {
        *a = (struct arena){ 0 };
        n = take_one(r, &p, &known, e);
        arena_done(a);
    } while (n > 0);
    *a = before;
    if (n < 0)
        return -1;
    if (!known)
        return cove_fail(e, COVE_INVALID, "the first message must be start");
    rpc_begin(r);
    rpc_tell(r, &empty.base);
    return 0;
}

int envd_input(struct request *req, struct reply *rep, struct cove_err *e)
{
    static const struct rpc_method method = {
        .name = "StreamInput",
        .in = &process__stream_input_request__descriptor,
        .handle = stream_input,
        .stream = true,
        .asks = true,
        .conflict = "internal",
    };

    return rpc_serve_method(req, rep, &method, e);
}
