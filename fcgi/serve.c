/* Serves one request: decides who answers it (the router, or the code for nginx's auth_request), sends the reply,
 * counts, logs. */
#include "fcgi/serve.h"

#include <assert.h>
#include <fcgiapp.h>
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/log.h"
#include "cove/meters.h"
#include "cove/text.h"
#include "fcgi/attach.h"
#include "fcgi/auth.h"
#include "fcgi/caller.h"
#include "fcgi/port_access.h"
#include "fcgi/port_links.h"
#include "fcgi/stream.h"

/* JSON may take six bytes for one of output (\u0001), and an error repeats a command. */
static size_t body_ceiling(const struct cove_config *config, uint64_t output_max_bytes)
{
    return 6 * (output_max_bytes + 2 * config->command_max_bytes) + 64 * 1024;
}

/* An auth subrequest is no request of a client's: it is counted in time, not as one. */
static void count_reply(struct core *core, const struct request *req, const struct reply *rep)
{
    int status = rep->status;

    if (core->meters && req->dialect)
        meters_request(core->meters, dialect_number(req->dialect), status,
                       clock_boot_ms() - req->started_ms);
    core_count(core, COUNT_BYTES_IN, req->body.len);
    core_count(core, COUNT_BYTES_OUT, rep->body.len);
    core_count(core, COUNT_REQUESTS, 1);
    if (status >= 500)
        core_count(core, COUNT_REPLIES_5XX, 1);
    else if (status >= 400)
        core_count(core, COUNT_REPLIES_4XX, 1);
    else
        core_count(core, COUNT_REPLIES_2XX, 1);
}

/* Probes and sign-ins that went well arrive every second: log them at debug level only. */
static enum log_level level_of(const struct request *req, int status)
{
    const char *op = req->note.operation ? req->note.operation : "";

    if (status < 400 &&
        (strcmp(op, "auth") == 0 || strcmp(op, "port") == 0 || strcmp(op, "health") == 0))
        return LOG_LEVEL_DEBUG;
    return LOG_LEVEL_INFO;
}

static void log_request(const struct request *req, int status)
{
    const struct request_note *n = &req->note;

    log_event(level_of(req, status), "request", LOG_S("request_id", req->request_id),
              LOG_S("tenant", req->tenant), LOG_S("operation", n->operation),
              LOG_S("method", req->method_name), LOG_S("path", req->path),
              LOG_S("project", n->project), LOG_S("sandbox", n->sandbox), LOG_N("status", status),
              LOG_N("duration_ms", clock_boot_ms() - req->started_ms), LOG_S("cause", n->cause));
}

static void serve_api(struct router *router, struct callers *callers, struct request *req,
                      struct reply *rep, const char *key)
{
    struct caller caller;
    struct cove_err e;

    if (caller_begin(&caller, callers, req->core, req->tenant, key, &e) < 0) {
        router_refuse(router, req, rep, &e);
    } else {
        rep->body.max =
            body_ceiling(req->core->config, caller_output_ceiling(req->core, req->tenant));
        router_serve(router, req, rep);
    }
    req->core->caller = NULL;
    caller_end(&caller);
}

/* A WebSocket on a process: sign-in and the request itself are one request here, not two as elsewhere, because
 * nginx asks only once before it passes the connection on. */
static void serve_attach(struct router *router, struct callers *callers, struct request *req,
                         struct reply *rep)
{
    struct cove_err e = { 0 };
    struct auth_who who = { 0 };
    int rc = auth_socket(router->dialects, &callers->keys, router->cors_origins, req, &who, &e);

    if (req->host_box && (!port_is_ours(router->dialects, req) ||
                          (rc == 0 && auth_is_foreign(router->dialects, req, who.tenant)))) {
        slots_withdraw(&router->slots, &req->promised);
        rep->status = 403; /* nginx sends the request on to the port itself */
        reply_header(rep, "X-Cove-Traffic", "1");
        return;
    }
    if (rc < 0) {
        router_refuse(router, req, rep, &e);
    } else {
        req->tenant = who.tenant;
        req->until_s = who.until_s;
        serve_api(router, callers, req, rep, who.key);
    }
    if (rep->status != 204)
        attach_refused(req, rep, req->failure ? req->failure : "the request was refused");
}

static void route(struct router *router, struct callers *callers, struct request *req,
                  struct reply *rep, const struct cove_err *refused)
{
    if (strcmp(request_param(req, "COVE_ROLE"), "auth") == 0) { /* whatever the path */
        slots_withdraw(&router->slots, &req->promised);
        auth_serve(router->dialects, &callers->keys, req, rep);
        cors_apply(router, req, rep, 0); /* nginx repeats it on its own 401 */
    } else if (strcmp(request_param(req, "COVE_ROLE"), "port") == 0) {
        slots_withdraw(&router->slots, &req->promised);
        port_access_serve(router->dialects, &callers->keys, req, rep);
    } else if (strcmp(request_param(req, "COVE_ROLE"), "attach") == 0 && !refused) {
        serve_attach(router, callers, req, rep);
    } else if (refused) {
        router_refuse(router, req, rep, refused);
    } else if (strcmp(request_param(req, "COVE_ROLE"), "open") == 0) {
        slots_withdraw(&router->slots, &req->promised);
        port_link_serve(req, rep);
    } else {
        serve_api(router, callers, req, rep, request_param(req, "COVE_KEY"));
    }
}

/* ------------------------------------------------------------------ replies that are large */

enum {
    WHOLE_BYTES = 64 * 1024, /* a reply up to this size is built whole and has a length */
    NAMES_BYTES = 8 * 1024,  /* names, numbers and short strings between two long ones */
};
/* A buffer of this many bytes has room for twice as many (buf.c), paid from the tenant's budget before the
 * head of the reply is sent. That must do until the reply's end: later there is no status to refuse with. */
static_assert(WHOLE_BYTES + 6 * JSON_PIECE_BYTES + NAMES_BYTES <= 2 * WHOLE_BYTES,
              "a reply that has begun could run out of memory");

struct large_reply {
    struct request *req;
    struct reply *rep;
    struct stream stream;
};

/* The JSON has grown too large to be sent whole: from here on it is sent while it is written. */
static int send_json(void *arg)
{
    struct large_reply *l = arg;

    if (!l->rep->streamed) {
        l->rep->collected = true;
        reply_header(l->rep, "Content-Type", "application/json");
        stream_init(&l->stream, l->req, l->rep, &framing_bytes);
        stream_begin(&l->stream);
    }
    return stream_drain(&l->stream);
}

static void send_while_written(struct large_reply *l, struct request *req, struct reply *rep)
{
    *l = (struct large_reply){ .req = req, .rep = rep };
    rep->json.drain = send_json;
    rep->json.drain_arg = l;
    rep->json.drain_at = WHOLE_BYTES;
}

/* JSON ends with a line feed, for people who read it on a terminal. */
static void end_line(struct reply *rep)
{
    if (rep->body.len > 0 && !rep->content_type && (!rep->streamed || rep->collected))
        buf_add_char(&rep->body, '\n');
}

static void send_rest(struct large_reply *l, FCGX_Stream *out)
{
    end_line(l->rep);
    if (!l->rep->streamed)
        reply_send(l->rep, l->req, out);
    else if (l->rep->collected && !l->rep->failed)
        stream_end(&l->stream);
    stream_cut_unended(l->req, l->rep);
}

/*
 * libfcgi shuts a connection down for writing and waits until the other side has closed it, because a TCP connection
 * that is closed with unread bytes loses the reply. On a unix socket the reply is with nginx as soon as it is written. With
 * the request's body read to its end nginx has nothing left to send either, so the thread need not wait for it.
 */
static void close_at_once(FCGX_Request *fcgi)
{
    if (FCGX_HasSeenEOF(fcgi->in) == EOF)
        fcgi->detached = 1;
}

void serve_request(struct core *core, struct router *router, struct callers *callers,
                   FCGX_Request *fcgi, bool promised)
{
    struct large_reply large;
    struct request req;
    struct reply rep;
    struct cove_err e;
    bool refused = request_init(&req, fcgi->envp, &e) < 0;

    req.core = core;
    req.in = fcgi->in;
    req.out = fcgi->out;
    req.client_fd = core->client_fd = fcgi->ipcFd;
    req.fcgi_id = fcgi->requestId;
    req.promised = promised;
    reply_init(&rep, body_ceiling(core->config, core->config->output_max_bytes));
    send_while_written(&large, &req, &rep);
    core_task_begin(core, req.request_id, req.method_name);
    route(router, callers, &req, &rep, refused ? &e : NULL);
    /* the router did not serve the request, or refused it */
    slots_withdraw(&router->slots, &req.promised);
    send_rest(&large, fcgi->out);
    close_at_once(fcgi);
    FCGX_Finish_r(fcgi); /* the client has its reply and does not wait for what follows */
    core_task_end(core);
    count_reply(core, &req, &rep);
    log_request(&req, rep.status);
    reply_done(&rep);
    request_release(&req);
    core_request_end(core); /* before request_done() frees req.tenant */
    request_done(&req);
}
