/* The conversation with init about one process: see attach.h. Nothing in here waits. */
#include "helpers/gate/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cove/box_wire.h"
#include "cove/mem.h"
#include "cove/text.h"

enum {
    TAG_LOG = 1,
    TAG_WAIT,
    TAG_ARM,
    TAG_INPUT,
    TAG_RESIZE,
    INPUT_MAX = 2 << 20, /* room for INPUT_ROOM and one message of the greatest length */
    INPUT_ROOM = 64 * 1024,
    RETRY_MS = 20,
    HOLD_STEP = 8 * 1024, /* init hears how far all have read after this many bytes */
    ARMED_MAX = 16,
    BLOCKED_MAX_MS =
        30000, /* a process waits no longer than this for a viewer that does not read */
};

/* ------------------------------------------------------------------ one life */

static void attachment_free(struct attachment *a)
{
    timer_stop(&a->timer);
    watch_close(&a->talk);
    cove_close(a->ring);
    buf_done(&a->input);
    LIST_REMOVE(a, link);
    free(a);
}

/* Nothing more will be heard of the process: all of its viewers are told why. Each viewer ends by itself, and
 * the attachment is freed with the last one. */
static void lose(struct attachment *a, unsigned code, const char *reason)
{
    struct viewer *v;

    timer_stop(&a->timer);
    watch_close(&a->talk);
    LIST_FOREACH(v, &a->viewers, link)
    viewer_close(v, code, reason);
}

static int say(struct attachment *a, struct box_request *request, uint32_t tag)
{
    struct cove_err e = { 0 };
    int rc = box_request_send(request, a->talk.fd, tag, &e);

    box_request_done(request);
    if (rc < 0)
        lose(a, WEBSOCKET_SANDBOX_ENDED, "the sandbox cannot be reached");
    return rc;
}

/* ------------------------------------------------------------------ the process's output */

static uint64_t slowest(const struct attachment *a)
{
    uint64_t pos = a->end_pos;
    struct viewer *v;

    LIST_FOREACH(v, &a->viewers, link)
    if (v->begun && v->kind->holds && !v->socket.closing && v->at.reader.pos < pos)
        pos = v->at.reader.pos;
    return pos;
}

static bool someone_holds(const struct attachment *a)
{
    struct viewer *v;

    LIST_FOREACH(v, &a->viewers, link)
    if (v->kind->holds && !v->socket.closing)
        return true;
    return false;
}

/* Is it time to tell init how far all viewers have read? Every so many bytes, and at once when a viewer came
 * late and wants earlier output. */
static bool must_tell(const struct attachment *a, uint64_t pos)
{
    return !a->holding || pos < a->held_pos || pos - a->held_pos >= HOLD_STEP;
}

static bool all_caught_up(const struct attachment *a)
{
    struct viewer *v;

    LIST_FOREACH(v, &a->viewers, link)
    if (!v->caught_up && !v->socket.closing)
        return false;
    return true;
}

/* Asks init for one message (a tick) when the log grows beyond a->end_pos, and tells init which output it must
 * keep. */
static void arm(struct attachment *a)
{
    bool holds = someone_holds(a);
    struct box_log_arm body = { .proc = a->proc,
                                .flags = holds || a->holding ? LOG_ARM_HOLD : 0,
                                .pos = a->end_pos,
                                .held = slowest(a) };
    struct box_request r = box_request(BOX_LOG_ARM, BOX_LOG_TICK, &body, sizeof(body));

    if (a->ring < 0 || a->drained || !watch_is_on(&a->talk) || a->armed >= ARMED_MAX ||
        (a->armed && !(holds && must_tell(a, body.held))))
        return;
    if (!a->running && !all_caught_up(a) && !must_tell(a, body.held))
        return; /* the tick would come at once, with nothing new */
    a->held_pos = body.held;
    a->caught_up = all_caught_up(a);
    a->holding = a->holding || holds; /* from now on every tick tells init how far all have read */
    if (say(a, &r, TAG_ARM) == 0)
        a->armed++;
}

void attachment_progress(struct attachment *a)
{
    arm(a);
}

static void pump_all(struct attachment *a)
{
    struct viewer *v;

    LIST_FOREACH(v, &a->viewers, link)
    viewer_pump(v);
    arm(a);
}

/* ------------------------------------------------------------------ the process's input */

static void send_input(struct attachment *a);

static void timer_fired(struct timer *t)
{
    struct attachment *a = container_of(t, struct attachment, timer);

    if (a->ring < 0)
        lose(a, WEBSOCKET_INTERNAL, "the sandbox does not answer");
    else
        send_input(a);
}

static void send_input(struct attachment *a)
{
    struct box_input body = { .proc = a->proc };
    struct box_request r = box_request(BOX_INPUT, BOX_TAKEN, &body, sizeof(body));

    if (a->asked || a->input.len == 0 || a->ring < 0 || !watch_is_on(&a->talk))
        return;
    a->asked = a->input.len < BOX_INPUT_MAX ? a->input.len : BOX_INPUT_MAX;
    buf_add(&r.tail, a->input.data, a->asked);
    say(a, &r, TAG_INPUT);
}

static bool attachment_has_room(const struct attachment *a)
{
    return a->input.len < INPUT_ROOM;
}

/* While there is no room for input, nothing is read from viewers that write. */
static void pause_writers(struct attachment *a)
{
    bool full = !attachment_has_room(a);
    struct viewer *v;

    LIST_FOREACH(v, &a->viewers, link)
    {
        if (v->socket.paused == full)
            continue;
        websocket_pause(&v->socket, full);
        websocket_flush(&v->socket);
    }
}

void attachment_input(struct attachment *a, const char *bytes, size_t len, const char *more,
                      size_t more_len)
{
    if (buf_add(&a->input, bytes, len) < 0 || buf_add(&a->input, more, more_len) < 0)
        lose(a, WEBSOCKET_BUSY, "no memory for the input");
    send_input(a);
    pause_writers(a);
}

static void on_taken(struct attachment *a, const struct msg *m)
{
    struct box_taken taken;

    memcpy(&taken, m->body, sizeof(taken));
    if (taken.bytes > a->asked)
        taken.bytes = (uint32_t)a->asked; /* init cannot have taken more than it was given */
    a->asked = 0;
    buf_drop(&a->input, taken.bytes);
    if (a->input.len == 0)
        buf_done(&a->input); /* an idle process keeps no memory here */
    if (taken.bytes)
        send_input(a);
    else
        timer_start(&a->gate->loop, &a->timer, RETRY_MS, timer_fired);
    pause_writers(a);
}

/* Only one resize is under way at a time: a client that resizes all the time waits for its sandbox. */
static void send_size(struct attachment *a)
{
    struct box_resize body = { .proc = a->proc, .rows = a->rows, .cols = a->cols };
    struct box_request r = box_request(BOX_RESIZE, MSG_DONE, &body, sizeof(body));

    if (a->resizing || a->ring < 0 || !watch_is_on(&a->talk) ||
        (a->rows == a->rows_asked && a->cols == a->cols_asked))
        return;
    a->rows_asked = a->rows;
    a->cols_asked = a->cols;
    box_request_add(&r, NULL);
    a->resizing = say(a, &r, TAG_RESIZE) == 0;
}

void attachment_resize(struct attachment *a, uint16_t rows, uint16_t cols)
{
    a->rows = rows;
    a->cols = cols;
    send_size(a);
}

/* ------------------------------------------------------------------ what init says */

static void on_opened(struct attachment *a, struct msg *m)
{
    struct box_proc_ref body = { .proc = a->proc };
    struct box_request r = box_request(BOX_WAIT, BOX_EXITED, &body, sizeof(body));
    struct cove_err e = { 0 };

    box_request_add(&r, NULL);
    if (a->ring >= 0 || box_answer_fd(m, S_IFREG, "a log", &a->ring, &e) < 0) {
        box_request_done(&r);
        lose(a, WEBSOCKET_INTERNAL, a->ring >= 0 ? "the sandbox answers twice" : e.msg);
        return;
    }
    timer_stop(&a->timer);
    a->running = true; /* until a tick says otherwise */
    if (say(a, &r, TAG_WAIT) < 0)
        return;
    send_size(a);
    pump_all(a);
    /* Last: before the process gets input and answers it, init must have been told to keep the output. */
    send_input(a);
}

/* When the process ends, some of its output may have had no room in the ring: init adds it when we have read
 * on. Nothing is left when init was asked after everything had been read and adds nothing. The answer to an
 * earlier question proves nothing: init may have had no room then. */
static bool nothing_is_left(const struct attachment *a, const struct box_log_tick *tick)
{
    return !tick->running &&
           (!a->holding || (a->armed == 0 && a->caught_up && tick->end <= a->end_pos));
}

static void on_tick(struct attachment *a, const struct msg *m)
{
    struct box_log_tick tick;

    memcpy(&tick, m->body, sizeof(tick));
    if (a->armed)
        a->armed--;
    a->running = tick.running;
    a->drained = nothing_is_left(a, &tick);
    a->end_pos = tick.end > a->end_pos ? tick.end : a->end_pos;
    pump_all(a);
}

static void on_exited(struct attachment *a, const struct msg *m)
{
    struct box_exited exited;

    memcpy(&exited, m->body, sizeof(exited));
    end_sanitize(&exited.end);
    a->end = exited.end;
    a->has_end = true;
    pump_all(a);
}

static void on_error(struct attachment *a, const struct msg *m)
{
    struct cove_err e;

    msg_raise(m, &e);
    if (m->head.tag == TAG_LOG) {
        lose(a, WEBSOCKET_NO_PROCESS, e.msg);
    } else if (m->head.tag == TAG_INPUT) { /* the output goes on, for viewers that only listen */
        a->asked = 0;
        buf_clear(&a->input);
        if (a->writer && a->running && !a->has_end)
            viewer_close(a->writer, WEBSOCKET_NO_INPUT, e.msg);
        pause_writers(a);
    } else if (m->head.tag == TAG_RESIZE) {
        a->resizing = false;
    }
}

static void hear(struct attachment *a, struct msg *m)
{
    switch (m->head.type) {
    case BOX_LOG_OPENED:
        on_opened(a, m);
        break;
    case BOX_LOG_TICK:
        on_tick(a, m);
        break;
    case BOX_EXITED:
        on_exited(a, m);
        break;
    case BOX_TAKEN:
        on_taken(a, m);
        break;
    case MSG_ERROR:
        on_error(a, m);
        break;
    case MSG_DONE: /* of a resize */
        a->resizing = false;
        send_size(a);
        break;
    }
    msg_close_fds(m);
}

static void talk_ready(struct watch *w, uint32_t events)
{
    static _Alignas(8) char buf[8192];
    struct attachment *a = container_of(w, struct attachment, talk);
    struct cove_err e = { 0 };
    struct msg m;

    (void)events;
    if (box_answer_receive(w->fd, buf, sizeof(buf), &m, &e) == 0)
        hear(a, &m);
    else if (e.code != COVE_BUSY)
        lose(a, WEBSOCKET_SANDBOX_ENDED, "the sandbox ended");
}

/* ------------------------------------------------------------------ coming and going */

static struct attachment *find(const struct gate *g, const char *id, uint32_t proc)
{
    struct attachment *a;

    LIST_FOREACH(a, &g->attachments, link)
    if (a->proc == proc && strcmp(a->id, id) == 0 && watch_is_on(&a->talk))
        return a;
    return NULL;
}

static struct attachment *open_talk(struct gate *g, const char *id, uint32_t proc,
                                    struct budget *bytes, struct cove_err *e)
{
    struct box_proc_ref body = { .proc = proc };
    struct box_request r = box_request(BOX_LOG, BOX_LOG_OPENED, &body, sizeof(body));
    struct attachment *a = calloc(1, sizeof(*a));
    int sock = -1;

    box_request_add(&r, NULL);
    if (!a || box_connect_now(g->config.run_dir, id, &sock, e) < 0 ||
        box_request_send(&r, sock, TAG_LOG, e) < 0 ||
        watch_start(&g->loop, &a->talk, sock, EPOLLIN, talk_ready) < 0) {
        cove_close(sock);
        free(a);
        box_request_done(&r);
        return NULL;
    }
    box_request_done(&r);
    a->gate = g;
    a->proc = proc;
    a->ring = -1;
    buf_init_within(&a->input, INPUT_MAX, bytes);
    text_copy(a->id, sizeof(a->id), id);
    LIST_INIT(&a->viewers);
    LIST_INSERT_HEAD(&g->attachments, a, link);
    timer_start(&g->loop, &a->timer, CONNECT_MS, timer_fired);
    return a;
}

void attach(struct relay *r, const struct viewer_kind *kind, uint32_t proc,
            const struct viewer_options *options)
{
    struct attachment *a = find(r->gate, r->target.id, proc);
    struct cove_err e = { 0 };
    struct viewer *v;

    if (!a)
        a = open_talk(r->gate, r->target.id, proc, &r->usage->share->socket_bytes, &e);
    v = a ? viewer_new(r, kind, options) : NULL;
    if (!v) {
        if (a && LIST_EMPTY(&a->viewers))
            attachment_free(a);
        relay_close(r);
        return;
    }
    v->attachment = a;
    r->usage->connections++;
    LIST_INSERT_HEAD(&a->viewers, v, link);
    if (viewer_greet(v) < 0) {
        relay_close(r);
        return;
    }
    websocket_pause(&v->socket, !attachment_has_room(a));
    viewer_pump(v);
    websocket_flush(&v->socket);
}

void viewer_free(struct viewer *v)
{
    struct attachment *a = v->attachment;

    viewer_account(v, false);
    websocket_done(&v->socket);
    if (a) {
        LIST_REMOVE(v, link);
        if (a->writer == v)
            a->writer = NULL;
        if (LIST_EMPTY(&a->viewers))
            attachment_free(a);
        else
            attachment_progress(a); /* the process may have waited for this viewer */
    }
    free(v);
}

void attachments_check(struct gate *g)
{
    uint64_t now = clock_boot_ms();
    struct attachment *a;
    struct viewer *v;

    LIST_FOREACH(a, &g->attachments, link)
    LIST_FOREACH(v, &a->viewers, link)
    if (v->kind->holds && v->blocked_ms && now - v->blocked_ms > BLOCKED_MAX_MS) {
        websocket_close_now(&v->socket, WEBSOCKET_TOO_SLOW,
                            "the process waited too long for this client to read");
        websocket_flush(&v->socket);
        attachment_progress(a);
    }
}
