/*
 * Running a command: one poll loop over what it writes, what init says of it, whether the client is
 * still there, and the time. Each of them can end it; the loop is left when init has reported the
 * end, or when init is given up.
 *
 * Init is inside the sandbox, so nothing here may wait for it without a limit, and the far ends of
 * the pipes are in hostile hands: a process can open its own stdout for reading and steal bytes
 * that poll() has promised us. That is why our ends do not block.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/core.h"
#include "fcgi/stream.h"

enum {
    READ_BYTES = 64 * 1024, /* the size of a pipe */
    LEAVE_MS = 7000,        /* a worker that leaves is killed after ten seconds */
    KILL_ANSWER_MS = 2000,  /* init has this long to report the end of what it was told to kill */
};

struct run {
    struct box_conn *conn;
    const struct run_args *args;
    uint32_t proc;
    int out[2];         /* our ends of the pipes, by enum run_stream; -1 after end of file */
    uint64_t offset[2]; /* of the next byte of each */
    int client_fd;      /* -1 once it has left */
    uint64_t room;      /* what is left of the output limit */
    uint64_t until_ms;  /* the deadline, or how long init may take to report; UINT64_MAX = no end */
    uint32_t kill_cause; /* enum end_cause; END_OWN while it has not been killed */
    uint64_t kill_limit;
    uint64_t started_unix_ms;
    bool leaving; /* until_ms is when the worker cannot wait any more */
    bool over;
    char told[512]; /* the last denial, so that a search along PATH is told once */
    struct run_result *result;
};

/* ------------------------------------------------------------------ ways to end */

static void give_up(struct run *r, bool distrust)
{
    r->result->end = (struct cove_end){
        .signal = SIGKILL,
        .cause = END_GONE,
        .started_unix_ms = r->started_unix_ms,
        .ended_unix_ms = clock_unix_ms(),
    };
    r->result->distrust = distrust;
    r->over = true;
}

static void kill_tree(struct run *r, enum end_cause cause, uint64_t limit)
{
    struct box_signal order = {
        .proc = r->proc,
        .scope = SIGNAL_TREE,
        .signo = SIGKILL,
        .cause = cause,
        .limit = limit,
    };

    if (r->kill_cause != END_OWN)
        return;
    r->kill_cause = cause;
    r->kill_limit = limit;
    if (r->over)
        return; /* it has ended already, the last of its output is being read */
    r->until_ms = clock_boot_ms() + KILL_ANSWER_MS;
    if (box_signal(r->conn, &order, NULL, NULL) < 0)
        give_up(r, false);
}

/* The cause is our own kill, unless the command ended by itself before it and all of its output was read. */
static void settle_cause(const struct run *r, struct cove_end *end)
{
    if (r->kill_cause == END_OWN || (end->signal == 0 && r->kill_cause == END_DEADLINE))
        return;
    end->cause = r->kill_cause;
    end->limit = r->kill_limit;
    if (end->signal == 0 && r->kill_cause == END_OUTPUT)
        end->signal =
            SIGKILL; /* an exit code of 0 would tell of success although output is missing */
}

/* ------------------------------------------------------------------ what poll() can bring */

/* Passes on as much as the limit of output allows; more output than that ends the command. */
static void deliver(struct run *r, enum run_stream stream, const char *bytes, size_t len)
{
    size_t fits = len < r->room ? len : (size_t)r->room;

    if (fits > 0 && r->args->sink(r->args->sink_arg, stream, r->offset[stream], bytes, fits) != 0)
        kill_tree(r, END_CLIENT, 0);
    r->offset[stream] += fits;
    r->room -= fits;
    r->result->output_bytes += fits;
    if (fits < len)
        kill_tree(r, END_OUTPUT, r->args->output_max_bytes);
}

/* Reads once, at most `max` bytes; 0 when there is nothing more to read now. */
static size_t read_some(struct run *r, enum run_stream stream, size_t max)
{
    char bytes[READ_BYTES];
    size_t fits = r->args->sink_bytes ? r->args->sink_bytes : sizeof(bytes);
    ssize_t n = read(r->out[stream], bytes, max < fits ? max : fits);

    if (n > 0) {
        deliver(r, stream, bytes, (size_t)n);
        return (size_t)n;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        r->out[stream] = cove_close(r->out[stream]);
    return 0;
}

/* POLLHUP alone is no proof of an empty pipe: poll() looks for bytes first and for writers then, so a last write and the close
 * after it may both come between these looks. */
static void on_output(struct run *r, enum run_stream stream, short revents)
{
    if (revents)
        read_some(r, stream, READ_BYTES);
}

/* Has init gone, or is it there and breaks the protocol? */
static bool has_closed(int sock)
{
    char byte;
    ssize_t n = recv(sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* A refused execve is told where its caller would look for it: among the errors. */
static void tell_denial(struct run *r, const char *text)
{
    char line[600];
    int len = snprintf(line, sizeof(line), "%s\n", text);

    if (strcmp(r->told, text) == 0)
        return;
    text_copy(r->told, sizeof(r->told), text);
    if (!r->over && len > 0)
        deliver(r, RUN_STDERR, line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1);
}

static void on_box(struct run *r)
{
    struct box_event event;
    struct cove_err e;
    int n = box_next_event(r->conn, 0, &event, &e);

    if (n < 0) {
        give_up(r, !has_closed(r->conn->sock));
    } else if (n > 0 && event.kind == BOX_EVENT_EXITED && event.exited.proc == r->proc) {
        r->result->end = event.exited.end;
        settle_cause(r, &r->result->end);
        r->over = true;
    } else if (n > 0 && event.kind == BOX_EVENT_DENIED) {
        tell_denial(r, event.text);
    }
}

static void on_client_left(struct run *r)
{
    r->client_fd = -1;
    if (!r->args->stream || stream_lost(r->args->stream) != 0)
        kill_tree(r, END_CLIENT, 0);
}

static enum stream_backlog backlog(const struct run *r)
{
    return r->args->stream ? stream_backlog(r->args->stream) : STREAM_CLEAR;
}

static void end_unless_wanted(struct run *r, int nobody)
{
    if (nobody)
        kill_tree(r, END_CLIENT, 0);
}

/* If the worker was asked to stop, the command ends now, so that its client is told while the connection is still
 * there. */
static void look_for_leaving(struct run *r)
{
    uint64_t latest = clock_boot_ms() + LEAVE_MS;

    if (r->leaving || !r->args->leaving || !atomic_load(r->args->leaving) ||
        r->kill_cause != END_OWN || latest >= r->until_ms)
        return;
    r->leaving = true;
    r->until_ms = latest;
}

static void on_time(struct run *r)
{
    if (r->kill_cause == END_OWN && r->leaving)
        kill_tree(r, END_SERVER, 0);
    else if (r->kill_cause == END_OWN)
        kill_tree(r, END_DEADLINE, r->args->timeout_ms);
    else
        give_up(r, true); /* init was told to kill the command and has not reported its end */
}

/* ------------------------------------------------------------------ the loop */

static int time_left(const struct run *r)
{
    uint64_t now;

    if (r->until_ms == UINT64_MAX)
        return -1;
    now = clock_boot_ms();
    if (now >= r->until_ms)
        return 0;
    return r->until_ms - now > 1000000 ? 1000000 : (int)(r->until_ms - now);
}

/* The shorter of two times for poll(), where -1 is for ever. */
static int shorter(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

int run_poll(struct pollfd *fds, size_t count, int timeout_ms)
{
    struct timespec ts = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L };
    sigset_t mask;

    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    sigdelset(&mask, SIGUSR1);
    return ppoll(fds, count, timeout_ms < 0 ? NULL : &ts, &mask);
}

static void wait_once(struct run *r)
{
    bool killed = r->kill_cause != END_OWN;
    struct stream *stream = killed ? NULL : r->args->stream;
    enum stream_backlog behind = backlog(r);
    struct pollfd fds[] = {
        { .fd = behind == STREAM_FULL ? -1 : r->out[RUN_STDOUT], .events = POLLIN },
        { .fd = behind == STREAM_FULL ? -1 : r->out[RUN_STDERR], .events = POLLIN },
        { .fd = r->conn->sock, .events = POLLIN },
        { .fd = killed ? -1 : r->client_fd, .events = (short)(POLLRDHUP | (behind ? POLLOUT : 0)) },
    };
    int left, ready;

    look_for_leaving(r);
    left = time_left(r);
    if (left == 0) {
        on_time(r);
        return;
    }
    ready = run_poll(fds, ARRAY_SIZE(fds), shorter(left, stream ? stream_wait_ms(stream) : -1));
    if (stream)
        end_unless_wanted(r, stream_tick(stream));
    if (ready <= 0)
        return;
    on_output(r, RUN_STDOUT, fds[0].revents);
    on_output(r, RUN_STDERR, fds[1].revents);
    if (fds[3].revents & (POLLRDHUP | POLLHUP | POLLERR))
        on_client_left(r);
    else if (fds[3].revents & POLLOUT)
        end_unless_wanted(r, stream_send(r->args->stream));
    if (fds[2].revents && !r->over)
        on_box(r);
}

/*
 * The shell has ended; what it wrote is in the pipes, and a child it left behind may hold them open
 * and go on writing. So read what is there now, not until end of file.
 */
static void drain(struct run *r, enum run_stream stream)
{
    int there = 0;

    if (r->out[stream] < 0 || ioctl(r->out[stream], FIONREAD, &there) < 0)
        return;
    while (there > 0 && r->out[stream] >= 0) {
        size_t n = read_some(r, stream, (size_t)there);

        if (n == 0)
            return;
        there -= (int)n;
        /* nothing runs any more that would have to wait for the client */
        if (backlog(r) == STREAM_FULL)
            end_unless_wanted(r, stream_drain(r->args->stream));
    }
}

static void drain_all(struct run *r)
{
    uint32_t before = r->kill_cause;

    drain(r, RUN_STDOUT);
    drain(r, RUN_STDERR);
    if (r->kill_cause != before && r->result->end.cause == END_OWN)
        settle_cause(r, &r->result->end);
}

/* Processes that still hold a pipe open live on in the background, and would die of SIGPIPE: init reads on
 * in our place. */
static void leave_pipes(struct run *r)
{
    int left[2];
    size_t count = 0;

    for (int i = 0; i < 2; i++) {
        struct pollfd p = { .fd = r->out[i], .events = POLLIN };

        if (r->out[i] >= 0 && poll(&p, 1, 0) >= 0 && !(p.revents & POLLHUP))
            left[count++] = r->out[i];
    }
    if (count > 0 && r->result->end.cause != END_GONE && r->kill_cause == END_OWN)
        box_drain(r->conn, left, count, NULL);
}

/* ------------------------------------------------------------------ the start */

static int make_pipe(int *ret_ours, int *ret_theirs, struct cove_err *e)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_BUSY, "pipe");
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *ret_ours = ends[0];
    *ret_theirs = ends[1];
    return 0;
}

static int spawn(struct run *r, struct cove_err *e)
{
    const struct run_args *a = r->args;
    AUTO_CLOSE int out = -1;
    AUTO_CLOSE int err = -1;
    struct box_spawned spawned;

    if (make_pipe(&r->out[RUN_STDOUT], &out, e) < 0 || make_pipe(&r->out[RUN_STDERR], &err, e) < 0)
        return -1;
    struct spawn_args args = {
        .user = a->user,
        .cwd = a->cwd,
        .argv = a->argv,
        .env = a->env,
        .base_env = a->base_env,
        .common_env = a->common_env,
        .flags = SPAWN_TIED | (a->exec_time ? SPAWN_NOTIFY : 0),
        .context = a->dialect,
        .stdin_fd = -1,
        .stdout_fd = out,
        .stderr_fd = err,
        .filter_fd = a->filter_fd,
        .max_open_files = a->max_open_files,
        .max_file_bytes = a->max_file_bytes,
    };

    if (box_spawn(r->conn, &args, &spawned, NULL, e) < 0) {
        if (e->code == COVE_GONE)
            r->result->distrust = !has_closed(r->conn->sock);
        return -1;
    }
    r->proc = spawned.proc;
    return 0; /* our copies of the far ends close here: only the command holds them now */
}

int run_command(struct box_conn *conn, const struct run_args *args, struct run_result *ret,
                struct cove_err *e)
{
    struct run r = {
        .conn = conn,
        .args = args,
        .out = { -1, -1 },
        .client_fd = args->client_fd,
        .room = args->output_max_bytes > args->output_used
                    ? args->output_max_bytes - args->output_used
                    : 0,
        .until_ms = args->timeout_ms ? clock_boot_ms() + args->timeout_ms : UINT64_MAX,
        .started_unix_ms = clock_unix_ms(),
        .result = ret,
    };
    bool was_settled = box_is_settled(conn);
    int rc;

    *ret = (struct run_result){ 0 };
    rc = spawn(&r, e);
    if (rc == 0) {
        while (!r.over)
            wait_once(&r);
        drain_all(&r);
        /* the end of a command that was not killed is the last that init says of it */
        if (was_settled && r.kill_cause == END_OWN && ret->end.cause != END_GONE)
            conn->settled = conn->tag;
        leave_pipes(&r);
    }
    cove_close(r.out[RUN_STDOUT]);
    cove_close(r.out[RUN_STDERR]);
    return rc;
}
