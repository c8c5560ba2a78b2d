/*
 * The loop of core_follow(): the ring that init writes the output into, what init says of the process,
 * whether the client is still there, and the time. For a client that reads slowly nothing is read
 * until it has caught up; the process waits for it only if the follower asked for that.
 */
#include "fcgi/core_follow.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/ring.h"
#include "cove/text.h"
#include "fcgi/http.h"
#include "fcgi/stream.h"

enum { SETTLE_MS = 2000 }; /* init has this long to say that there is no more output */

struct follow {
    struct core_session *session;
    const struct core_follow *args;
    struct ring_reader reader;
    char *bytes;    /* of one record */
    size_t at, len; /* the part of it that was not sent yet: a client may be behind */
    enum run_stream now;
    bool armed;        /* init will tell of more output */
    uint64_t armed_ms; /* since when */
    bool over;         /* init has reported the end */
    bool final;        /* init was asked, after the end, how much output there is */
    bool settled;      /* the answer has come: */
    uint64_t stop_at;  /* the ring's position behind all output */
    bool left;         /* the client has left */
    char told[512];    /* the last denial, so that a search along PATH is told once */
    struct cove_end *end;
};

static bool is_leaving(const struct follow *f)
{
    const atomic_bool *leaving = f->session->core->leaving;

    return leaving && atomic_load(leaving);
}

/* ------------------------------------------------------------------ output */

static void tell_piece(struct follow *f)
{
    size_t n = f->len < f->args->chunk_bytes ? f->len : f->args->chunk_bytes;

    f->args->output(f->args->arg, f->now, f->bytes + f->at, n);
    f->left = stream_send(f->args->stream) != 0;
    f->at += n;
    f->len -= n;
}

/* Sends all output that there is, as far as the client keeps up. 1: there may be more; 0: that was all. */
static int tell_output(struct follow *f, struct cove_err *e)
{
    struct ring_rec rec;
    uint64_t gap;
    int n;

    while (!f->left && stream_backlog(f->args->stream) != STREAM_FULL) {
        if (f->len > 0) {
            tell_piece(f);
            continue;
        }
        if (f->settled && f->reader.pos >= f->stop_at)
            return 0; /* the rest was written by processes that this one left behind */
        n = ring_read(&f->reader, &rec, f->bytes, &gap, e);
        if (n <= 0)
            return n;
        f->now = rec.stream == RING_STDOUT ? RUN_STDOUT : RUN_STDERR;
        f->at = 0;
        f->len = rec.len;
    }
    return 1;
}

/* ------------------------------------------------------------------ waiting */

/* A refused execve is told where its caller would look for it: among the errors. */
static void tell_denial(struct follow *f, const char *text)
{
    char line[600];
    int len = snprintf(line, sizeof(line), "%s\n", text);

    if (strcmp(f->told, text) == 0 || len <= 0 || (size_t)len >= sizeof(line))
        return;
    text_copy(f->told, sizeof(f->told), text);
    f->args->output(f->args->arg, RUN_STDERR, line, (size_t)len);
    f->left = stream_send(f->args->stream) != 0;
}

static int take_event(struct follow *f, struct cove_err *e)
{
    struct box_event event;
    int n = box_next_event(&f->session->conn, 0, &event, e);

    if (n <= 0)
        return n;
    if (event.kind == BOX_EVENT_TICK) {
        f->armed = false;
        f->settled = f->final;
        f->stop_at = event.tick.end;
    }
    if (event.kind == BOX_EVENT_DENIED)
        tell_denial(f, event.text);
    if (event.kind == BOX_EVENT_EXITED && event.exited.proc == f->args->proc) {
        *f->end = event.exited.end;
        f->over = true;
    }
    return 0;
}

/* Asks init for a tick. A tick that is asked for after the process has ended tells how much output there is in all. */
static int arm(struct follow *f, struct cove_err *e)
{
    if (f->armed || f->settled)
        return 0;
    f->armed = true;
    f->final = f->over;
    f->armed_ms = clock_boot_ms();
    return box_log_arm(&f->session->conn, f->args->proc, f->reader.pos,
                       f->args->whole ? LOG_ARM_HOLD : 0, e);
}

/* Init was asked and has not answered yet. */
static bool is_settling(const struct follow *f)
{
    return f->final && f->armed;
}

static int wait_ms(const struct follow *f)
{
    uint64_t now = clock_boot_ms(), until = f->armed_ms + SETTLE_MS;

    if (!is_settling(f))
        return stream_wait_ms(f->args->stream);
    return now < until ? (int)(until - now) : 0;
}

static void on_time(struct follow *f)
{
    if (is_settling(f) && clock_boot_ms() >= f->armed_ms + SETTLE_MS)
        f->settled = true; /* init does not answer: what was read is all there is */
    else
        f->left = stream_tick(f->args->stream) != 0;
}

static int wait_once(struct follow *f, struct cove_err *e)
{
    struct stream *stream = f->args->stream;
    enum stream_backlog behind = stream_backlog(stream);
    struct pollfd fds[] = {
        { .fd = f->session->conn.sock, .events = POLLIN },
        { .fd = stream->req->client_fd, .events = (short)(POLLRDHUP | (behind ? POLLOUT : 0)) },
    };
    int n;

    if (behind != STREAM_FULL && arm(f, e) < 0)
        return -1;
    n = run_poll(fds, ARRAY_SIZE(fds), wait_ms(f));
    if (n == 0)
        on_time(f);
    if (n <= 0)
        return 0;
    if (fds[1].revents & (POLLRDHUP | POLLHUP | POLLERR))
        f->left = stream_lost(stream) != 0;
    else if (fds[1].revents & POLLOUT)
        f->left = stream_send(stream) != 0;
    return fds[0].revents ? take_event(f, e) : 0;
}

/* ------------------------------------------------------------------ all of it */

static int follow(struct follow *f, enum core_follow_end *ret, struct cove_err *e)
{
    for (;;) {
        int more = tell_output(f, e);

        if (more < 0)
            return -1;
        if (f->left || is_leaving(f)) {
            *ret = f->left ? FOLLOW_LEFT : FOLLOW_SERVER;
            return 0;
        }
        if (f->settled && !more) {
            *ret = FOLLOW_ENDED;
            return 0;
        }
        if (wait_once(f, e) < 0)
            return -1;
    }
}

int core_follow(struct core_session *s, const struct core_follow *args,
                enum core_follow_end *ret_how, struct cove_end *ret_end, struct cove_err *e)
{
    struct follow f = {
        .session = s,
        .args = args,
        .end = ret_end,
    };
    struct box_log_opened opened;
    AUTO_FREE char *bytes = f.bytes = malloc(RING_REC_MAX);
    AUTO_CLOSE int ring = -1;

    if (!bytes)
        return cove_fail(e, COVE_BUSY, "out of memory");
    if (box_log(&s->conn, args->proc, NULL, &opened, &ring, e) < 0 ||
        ring_reader_init(&f.reader, ring, 0, e) < 0 ||
        (args->only_new && ring_reader_skip(&f.reader, e) < 0) ||
        /* An end that was reported while box_log() waited for its answer is lost: ask for it. */
        box_wait(&s->conn, args->proc, NULL, e) < 0 || arm(&f, e) < 0)
        return -1;
    return follow(&f, ret_how, e);
}
