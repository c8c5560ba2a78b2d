/*
 * Log rings: what a process writes goes through a pipe (or its pty) into a memfd that readers get a
 * descriptor of. The process is not slowed by readers, except by one that asked for it
 * (LOG_ARM_HOLD): nothing is overwritten that this one has not read. Each connection that wants to hear of new
 * output asks for one tick. While output comes by the hundred kilobytes, the ticks of a ring are held back a
 * few milliseconds, so that most of init's time is spent on reading the pipe.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

enum {
    CHUNK = 64 * 1024,
    PIPE_BYTES = 256 * 1024,
    DRAIN_CHUNKS = 32,     /* more than a pipe can hold, so that what was there at the end is in */
    HOT_BYTES = 64 * 1024, /* bytes within HOLD_MS */
    HOLD_MS = 10,
    HOLD_MIN_ROOM = 1024,
};

struct source { /* one pipe, or the pty */
    struct watch watch;
    struct proc *proc;
    enum ring_stream stream;
};

struct log {
    struct ring ring;
    struct source sources[2];
    size_t source_count;
    uint64_t window_ms, window_pos; /* the ring's end a moment ago: tells how fast it grows */
    bool held;                      /* so fast that ticks wait for the window's end */
    struct conn *holder;            /* reads everything (LOG_ARM_HOLD); NULL: nobody */
    uint64_t holder_pos;            /* how far the holder has read */
};

int log_new(struct init *in, struct proc *p, uint64_t bytes, struct cove_err *e)
{
    struct log *log = calloc(1, sizeof(*log));

    (void)in;
    if (!log)
        return cove_fail(e, COVE_LIMIT, "out of memory");
    if (ring_create(bytes, &log->ring, e) < 0) {
        free(log);
        return -1;
    }
    p->log = log;
    return 0;
}

/* --------------------------------------------------------------- telling those who wait */

static void release(struct init *in, struct log *log)
{
    if (log->held)
        in->held_logs--;
    log->held = false;
}

static struct box_log_tick tick_now(const struct proc *p)
{
    return (struct box_log_tick){ .proc = p->number,
                                  .running = p->running,
                                  .end = ring_end(&p->log->ring) };
}

static bool is_due(const struct box_log_tick *tick, uint64_t pos)
{
    return tick->end > pos || !tick->running;
}

/* A tick may stay unsent while the process runs: its queue holds unread ones, and more output tries
 * again. */
static bool send_tick(struct conn *c, uint32_t tag, const struct box_log_tick *tick)
{
    struct cove_err e;

    if (c->cut)
        return true;
    if (msg_send(c->watch.fd, &(struct msg_out){ BOX_LOG_TICK, .tag = tag, MSG_BODY(*tick) },
                 MSG_DONTWAIT, &e) == 0)
        return true;
    if (e.code == COVE_BUSY && tick->running)
        return false;
    conn_cut(c);
    return true;
}

static void tick_all(struct init *in, struct proc *p)
{
    struct box_log_tick tick = tick_now(p);
    struct want *w = TAILQ_FIRST(&p->wants);

    release(in, p->log);
    while (w) {
        struct want *next = TAILQ_NEXT(w, by_proc);

        if (w->kind == WANT_TICK && is_due(&tick, w->pos) && send_tick(w->conn, w->tag, &tick))
            want_free(w);
        w = next;
    }
}

static void open_window(struct log *log, uint64_t now_ms)
{
    log->window_ms = now_ms;
    log->window_pos = ring_end(&log->ring);
}

void log_tick(struct init *in, struct proc *p)
{
    struct log *log = p->log;
    uint64_t now_ms = clock_boot_ms();

    if (p->running && log->held)
        return;
    if (now_ms - log->window_ms >= HOLD_MS)
        open_window(log, now_ms);
    if (!p->running || ring_end(&p->log->ring) - log->window_pos <= HOT_BYTES) {
        tick_all(in, p);
    } else {
        log->held = true;
        in->held_logs++;
    }
}

void logs_expire(struct init *in, uint64_t now_ms)
{
    struct proc *p;

    if (in->held_logs == 0)
        return;
    for (p = TAILQ_FIRST(&in->running); p; p = TAILQ_NEXT(p, link)) {
        if (!p->log || !p->log->held || now_ms - p->log->window_ms < HOLD_MS)
            continue;
        tick_all(in, p);
        open_window(p->log, now_ms);
    }
}

/* --------------------------------------------------------------- pipes and ptys */

static uint64_t now_unix_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* How much may be read at once without overwriting what the holder has not read: 0, or enough to be
 * worth a record. */
static size_t room_for(const struct log *log)
{
    uint64_t unread, room;

    if (!log->holder)
        return CHUNK;
    unread = ring_end(&log->ring) - log->holder_pos;
    room = unread < log->ring.capacity ? log->ring.capacity - unread : 0;
    if (room < HOLD_MIN_ROOM)
        return 0;
    room -= 2 * (sizeof(struct ring_rec) + 8); /* a chunk may become two records in a small ring */
    return room < CHUNK ? (size_t)room : CHUNK;
}

/* Moves one chunk into the ring. False when there was nothing: for now, or for good (then the source is
 * closed). */
static bool read_chunk(struct source *s)
{
    static LARGE char chunk[CHUNK];
    size_t room = room_for(s->proc->log);
    ssize_t n;

    if (room == 0) {
        watch_want(&s->watch, 0); /* until the holder has read more, or is gone */
        return false;
    }
    do
        n = read(s->watch.fd, chunk, room);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        ring_append(&s->proc->log->ring, s->stream, now_unix_ns(), chunk, (uint32_t)n);
    else if (n == 0 || errno != EAGAIN) /* a pty says EIO when the last slave has closed */
        watch_close(&s->watch);
    return n > 0;
}

static void source_ready(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    struct source *s = container_of(w, struct source, watch);
    struct proc *p = s->proc;

    (void)events;
    if (read_chunk(s))
        log_tick(in, p);
    log_settle(p);
    proc_drop_if_done(in, p);
}

static int add_source(struct init *in, struct proc *p, enum ring_stream stream, int fd,
                      struct cove_err *e)
{
    struct source *s = &p->log->sources[p->log->source_count];

    s->proc = p;
    s->stream = stream;
    if (init_watch(in, &s->watch, fd, EPOLLIN, source_ready, e) < 0)
        return -1;
    p->log->source_count++;
    return 0;
}

/* How large a pipe is made: the larger, the further a process runs ahead of us. What is left in its two pipes when
 * it has ended must fit into the ring, because the reader gets it in one go. */
static int pipe_bytes(const struct log *log)
{
    return log->ring.capacity / 4 < PIPE_BYTES ? (int)(log->ring.capacity / 4) : PIPE_BYTES;
}

int log_add_pipe(struct init *in, struct proc *p, enum ring_stream stream, int *ret_write_end,
                 struct cove_err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "making a pipe");
    fcntl(fds[0], F_SETFL, O_NONBLOCK); /* ours alone: the other end has its own flags */
    fcntl(fds[0], F_SETPIPE_SZ, pipe_bytes(p->log)); /* it may be refused */
    if (add_source(in, p, stream, fds[0], e) < 0) {
        close(fds[0]);
        close(fds[1]);
        return -1;
    }
    *ret_write_end = fds[1];
    return 0;
}

int log_add_pty(struct init *in, struct proc *p, struct cove_err *e)
{
    AUTO_CLOSE int fd = fcntl(p->pty, F_DUPFD_CLOEXEC, 0);

    if (fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "copying a pty");
    if (add_source(in, p, RING_STDOUT, fd, e) < 0)
        return -1;
    take_fd(&fd);
    return 0;
}

void log_drain(struct proc *p)
{
    for (size_t i = 0; i < p->log->source_count; i++)
        for (int n = 0; n < DRAIN_CHUNKS && watch_is_on(&p->log->sources[i].watch); n++)
            if (!read_chunk(&p->log->sources[i]))
                break;
}

bool log_is_open(const struct proc *p)
{
    for (size_t i = 0; p->log && i < p->log->source_count; i++)
        if (watch_is_on(&p->log->sources[i].watch))
            return true;
    return false;
}

/* A sandbox may remember a thousand processes. Their rings are not mapped any more: each mapping
 * would be copied with every process that is made. */
void log_settle(struct proc *p)
{
    if (p->log && !p->running && !log_is_open(p))
        ring_settle(&p->log->ring);
}

uint64_t log_bytes(const struct proc *p)
{
    uint64_t capacity;

    if (!p->log)
        return 0;
    capacity = p->log->ring.capacity;
    return RING_HEAD_BYTES +
           (ring_end(&p->log->ring) < capacity ? ring_end(&p->log->ring) : capacity);
}

void log_free(struct init *in, struct proc *p)
{
    if (!p->log)
        return;
    release(in, p->log);
    for (size_t i = 0; i < p->log->source_count; i++)
        watch_close(&p->log->sources[i].watch);
    ring_done(&p->log->ring);
    free(take_ptr(p->log));
}

/* --------------------------------------------------------------- requests */

/* Safe: the ring is sealed, so a reader cannot write into it, and a slow one costs nothing. */
int on_log(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_proc_ref *ref = m->body;
    struct box_log_opened answer;
    const char *label;
    struct proc *p;

    if (tail_strings(m, sizeof(*ref), &label, 1) < 0)
        return CUT_OFF;
    if (proc_find(in, ref->proc, label, &p, e) < 0)
        return -1;
    if (!p->log)
        return cove_fail(e, COVE_INVALID, "process %u keeps no log", p->number);
    answer = (struct box_log_opened){ .proc = p->number, .running = p->running };
    conn_send_fd(c, BOX_LOG_OPENED, m->head.tag, &answer, sizeof(answer), p->log->ring.fd);
    return 0;
}

static void set_holder(struct proc *p, struct conn *holder, uint64_t pos)
{
    p->log->holder = holder;
    p->log->holder_pos = pos;
    for (size_t i = 0; i < p->log->source_count; i++)
        watch_want(&p->log->sources[i].watch, EPOLLIN);
}

void log_hold(struct proc *p, struct conn *c, uint64_t pos)
{
    c->holds = true;
    set_holder(p, c, pos);
}

void logs_conn_closed(struct init *in, struct conn *c)
{
    if (!c->holds)
        return;
    for (size_t i = 0; i < in->proc_count; i++)
        if (in->procs[i]->log && in->procs[i]->log->holder == c)
            set_holder(in->procs[i], NULL, 0);
}

/* Safe: one tick per request, and a connection may have only so many requests open. Who holds a log
 * slows down only processes of this sandbox. */
int on_log_arm(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_log_arm *arm = m->body;
    struct box_log_tick tick;
    struct want *w;
    struct proc *p;

    if (proc_find(in, arm->proc, "", &p, e) < 0)
        return -1;
    if (!p->log)
        return cove_fail(e, COVE_INVALID, "process %u keeps no log", p->number);
    if ((arm->flags & LOG_ARM_HOLD) && arm->held <= ring_end(&p->log->ring)) {
        log_hold(p, c, arm->held);
        if (!p->running)
            log_drain(p); /* what had no room in the ring when the process ended */
        log_settle(p);
    }
    tick = tick_now(p);
    if (!p->log->held && is_due(&tick, arm->pos) && send_tick(c, m->head.tag, &tick)) {
        proc_drop_if_done(in, p);
        return 0;
    }
    w = want_new(c, p, WANT_TICK, m->head.tag, e);
    if (!w)
        return -1;
    w->pos = arm->pos;
    return 0;
}
