/*
 * Following a process's log: what the ring holds, then what is written from then on. Readers cost the process
 * nothing: the writer overtakes a slow one, which is told how much it lost.
 *
 * A place in a log is two numbers, how many bytes of stdout and of stderr have been told in whole
 * lines. A ring position would not do: a line may begin in one record and end in another, with the
 * other stream's lines in between.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/ring.h"
#include "cove/text.h"
#include "fcgi/core.h"
#include "fcgi/lines.h"
#include "fcgi/stream.h"

#define NEVER UINT64_MAX

struct follower {
    struct core_session *session;
    const struct log_follow *args;
    uint32_t proc;
    struct ring_reader reader;
    char *bytes; /* of one record */
    struct lines lines[2];
    /* the offset that the next record of each stream should have; NEVER: any offset is fine */
    uint64_t expected[2];
    uint64_t began_ns[2]; /* when the line that is being gathered began */
    uint64_t skip;        /* how many older lines are left out */
    enum run_stream now;  /* whose record is being told */
    bool over;            /* the process has ended */
};

/* ------------------------------------------------------------------ places */

void log_place_format(const struct log_place *p, char out[LOG_PLACE_TEXT])
{
    snprintf(out, LOG_PLACE_TEXT, "%" PRIu64 "-%" PRIu64, p->offset[0], p->offset[1]);
}

int log_place_parse(const char *text, struct log_place *ret, struct cove_err *e)
{
    struct log_place p = { { 0, 0 } };
    char first[24];
    size_t len = strcspn(text, "-");

    if (len >= sizeof(first))
        return cove_fail(e, COVE_INVALID, "'%.60s' is not an event id of this log", text);
    memcpy(first, text, len);
    first[len] = '\0';
    if (text_parse_u64(first, &p.offset[0], e) < 0 ||
        (text[len] && text_parse_u64(text + len + 1, &p.offset[1], e) < 0))
        return cove_fail(e, COVE_INVALID, "'%.60s' is not an event id of this log", text);
    *ret = p;
    return 0;
}

/* ------------------------------------------------------------------ one record */

/* Frames leave as they are made; a client that is far behind is waited for, and the writer of the log
 * overtakes it meanwhile. */
static int send_frames(struct follower *f)
{
    struct stream *stream = f->args->stream;

    return stream_backlog(stream) == STREAM_FULL ? stream_drain(stream) : 0;
}

static int tell_line(void *arg, const char *text, size_t len, bool goes_on)
{
    struct follower *f = arg;
    struct log_line line = {
        .stream = f->now,
        .unix_ms = f->began_ns[f->now] / 1000000,
        .text = text,
        .len = len,
        .goes_on = goes_on,
        .place = { { f->lines[0].offset, f->lines[1].offset } },
    };

    if (f->skip > 0) {
        f->skip -= !goes_on;
        return 0;
    }
    f->args->line(f->args->arg, &line);
    return send_frames(f);
}

static int tell_bytes(struct follower *f, uint64_t unix_ns, uint64_t offset, const char *bytes,
                      size_t len)
{
    f->lines[f->now].offset = offset + len;
    f->args->bytes(f->args->arg, &(struct log_bytes){
                                     .stream = f->now,
                                     .offset = offset,
                                     .unix_ms = unix_ns / 1000000,
                                     .bytes = bytes,
                                     .len = len,
                                 });
    return send_frames(f);
}

/* The writer has overtaken us: the part of a line that was read is told, then how many bytes are missing. */
static int tell_gap(struct follower *f, uint64_t lost, uint64_t offset)
{
    struct log_place place;

    if (lines_end(&f->lines[f->now], tell_line, f) != 0)
        return -1;
    f->lines[f->now].offset = offset;
    place = (struct log_place){ { f->lines[0].offset, f->lines[1].offset } };
    f->args->gap(f->args->arg, f->now, lost, &place);
    return send_frames(f);
}

static int tell_record(struct follower *f, const struct ring_rec *rec)
{
    uint64_t offset = rec->offset, end = rec->offset + rec->len;
    uint64_t expected = f->expected[rec->stream - 1];
    const char *bytes = f->bytes;

    f->now = rec->stream == RING_STDOUT ? RUN_STDOUT : RUN_STDERR;
    if (expected != NEVER && end <= expected)
        return 0; /* the client has this record already */
    if (expected != NEVER && offset < expected) {
        bytes += expected - offset;
        offset = expected;
    }
    if (expected == NEVER)
        f->lines[f->now].offset = offset;
    else if (offset > expected && tell_gap(f, offset - expected, offset) != 0)
        return -1;
    f->expected[f->now] = end;
    if (f->args->bytes)
        return tell_bytes(f, rec->unix_ns, offset, bytes, (size_t)(end - offset));
    if (f->lines[f->now].held.len == 0)
        f->began_ns[f->now] = rec->unix_ns;
    if (lines_feed(&f->lines[f->now], bytes, (size_t)(end - offset), tell_line, f) != 0)
        return -1;
    f->began_ns[f->now] = f->lines[f->now].held.len ? f->began_ns[f->now] : rec->unix_ns;
    return 0;
}

/* ------------------------------------------------------------------ all there is */

enum told { TOLD_ALL, TOLD_NONSENSE, TOLD_CLIENT_GONE };

static enum told tell_all(struct follower *f, struct cove_err *e)
{
    struct ring_rec rec;
    uint64_t gap;
    int n;

    while ((n = ring_read(&f->reader, &rec, f->bytes, &gap, e)) > 0)
        if (tell_record(f, &rec) != 0)
            return TOLD_CLIENT_GONE;
    return n < 0 ? TOLD_NONSENSE : TOLD_ALL;
}

static int count_lines(const struct follower *f, uint64_t *ret, uint64_t *ret_lost,
                       struct cove_err *e)
{
    struct ring_reader reader = f->reader;
    uint64_t lines = 0, bytes = 0, lost = 0, gap = 0;
    struct ring_rec rec;
    int n = 0;

    /* No more than the ring holds: a fast writer would keep us counting for ever. */
    while (bytes < reader.capacity && (n = ring_read(&reader, &rec, f->bytes, &gap, e)) > 0) {
        for (const char *at = f->bytes, *end = at + rec.len;
             (at = memchr(at, '\n', (size_t)(end - at))); at++)
            lines++;
        bytes += rec.len;
        lost += gap;
    }
    *ret = lines;
    *ret_lost = lost;
    return n < 0 ? -1 : 0;
}

static int find_start(struct follower *f, struct cove_err *e)
{
    uint64_t lines, lost;

    if (f->args->since) {
        for (int i = 0; i < 2; i++)
            f->expected[i] = f->lines[i].offset = f->args->since->offset[i];
        return 0;
    }
    if (count_lines(f, &lines, &lost, e) < 0)
        return -1;
    /* Older lines are left out without notice, as documented; losses from now on are reported. */
    f->expected[0] = f->expected[1] = lost ? NEVER : 0;
    f->skip = lines > f->args->lines_max ? lines - f->args->lines_max : 0;
    return 0;
}

/* ------------------------------------------------------------------ what comes */

/* A record may have been dropped while nobody looked; then no tick ever comes. */
static void check_still_there(struct follower *f)
{
    struct box_log_opened opened;
    struct cove_err e;
    int ring;

    if (box_log(&f->session->conn, f->proc, NULL, &opened, &ring, &e) < 0) {
        f->over = f->over || e.code == COVE_NOT_FOUND;
        return;
    }
    cove_close(ring);
    f->over = !opened.running;
}

static bool is_leaving(const struct follower *f)
{
    const atomic_bool *leaving = f->session->core->leaving;

    return leaving && atomic_load(leaving);
}

/* Waits until there may be more output. 1: the client is gone. */
static int await_more(struct follower *f, struct cove_err *e)
{
    struct stream *stream = f->args->stream;
    struct box_event event;
    int n;

    if (box_log_arm(&f->session->conn, f->proc, f->reader.pos, 0, e) < 0)
        return -1;
    for (;;) {
        short behind = stream_backlog(stream) == STREAM_CLEAR ? 0 : POLLOUT;
        struct pollfd fds[] = {
            { .fd = f->session->conn.sock, .events = POLLIN },
            { .fd = stream->gone ? -1 : f->args->client_fd, .events = (short)(POLLRDHUP | behind) },
        };

        n = run_poll(fds, ARRAY_SIZE(fds), stream_wait_ms(stream));
        if (is_leaving(f))
            return cove_fail(e, COVE_BUSY, "the server restarts: continue from this event's id");
        if (n == 0) {
            check_still_there(f);
            return stream_tick(stream) != 0;
        }
        if (n > 0 && (fds[1].revents & (POLLRDHUP | POLLHUP | POLLERR)) && stream_lost(stream) != 0)
            return 1;
        if (n > 0 && (fds[1].revents & POLLOUT) && stream_send(stream) != 0)
            return 1;
        if (n < 0 || !fds[0].revents)
            continue;
        n = box_next_event(&f->session->conn, 0, &event, e);
        if (n < 0)
            return -1;
        if (n > 0 && event.kind == BOX_EVENT_TICK) {
            f->over = f->over || !event.tick.running;
            return 0;
        }
    }
}

static int tell_rest(struct follower *f)
{
    for (int i = 0; i < 2; i++) {
        f->now = i;
        if (lines_end(&f->lines[i], tell_line, f) != 0)
            return 1;
    }
    return 0;
}

static int follow(struct follower *f, struct cove_err *e)
{
    int rc = find_start(f, e);

    while (rc == 0) {
        /* read before the ring is: output that came before the end is then in the ring */
        bool last = f->over;
        enum told told = tell_all(f, e);

        if (told != TOLD_ALL)
            return told == TOLD_NONSENSE ? -1 : 1;
        if (last)
            return tell_rest(f);
        if (stream_send(f->args->stream) != 0)
            return 1;
        rc = await_more(f, e);
    }
    return rc;
}

static int open_and_follow(struct follower *f, struct cove_err *e)
{
    struct box_log_opened opened;
    AUTO_CLOSE int ring = -1;

    if (box_log(&f->session->conn, 0, f->args->label, &opened, &ring, e) < 0 ||
        ring_reader_init(&f->reader, ring, 0, e) < 0)
        return -1;
    f->proc = opened.proc;
    f->over = !opened.running;
    return follow(f, e);
}

int core_log_follow(struct core_session *s, const struct log_follow *args, struct cove_err *e)
{
    struct follower f = { .session = s, .args = args, .bytes = malloc(RING_REC_MAX) };
    int rc;

    lines_init(&f.lines[0]);
    lines_init(&f.lines[1]);
    rc = f.bytes ? open_and_follow(&f, e) : cove_fail(e, COVE_BUSY, "out of memory");
    lines_done(&f.lines[0]);
    lines_done(&f.lines[1]);
    free(f.bytes);
    return rc;
}
