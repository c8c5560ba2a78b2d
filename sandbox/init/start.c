/*
 * The start of a process, from its clone to its execve. The child has one end of a socket and we
 * have the other. The child sends the seccomp listener if its filter notifies, then an error if
 * something fails; execve closes its end, which tells us that the command runs. The answer to the
 * client waits for that.
 *
 * We never wait for the child itself: it belongs to the sandbox, whose root can stop it at any
 * instruction. After SLOW_MS it is told to go on, again and again. A child that has not come to its execve
 * within START_MS is killed, and the client is told.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

/* Below BOX_ANSWER_MS, after which the client gives up, and above the time that a judge may take
   for its verdict. */
enum { START_MS = 8000, LATE_MS = 200 };

/* A start that takes longer than this was stopped by somebody in the sandbox, or has to wait for a disk. */
enum { SLOW_MS = 100 };

struct start { /* a spawn whose execve has not returned yet */
    LIST_ENTRY(start) link;
    struct watch watch;
    struct conn *conn; /* NULL: the client has gone */
    uint32_t tag;
    struct proc *proc;
    uint64_t deadline_ms;
    bool is_late; /* the deadline has passed once, and the launcher was ended for it */
};

static const struct msg_rule start_rules[] = {
    { MSG_DONE, 0, 0, 1, 1 }, /* the listener */
    { SPARE_READY, sizeof(struct spare_ready), 0, 0, 1 },
    { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
    { 0 },
};

static void start_free(struct start *s)
{
    s->proc->start = NULL;
    watch_close(&s->watch);
    LIST_REMOVE(s, link);
    free(s);
}

static void start_failed(struct init *in, struct start *s, struct cove_err *e)
{
    struct proc *p = s->proc;

    if (p->end.denied && e->errnum == EPERM)
        cove_fail(e, COVE_FORBIDDEN, "command '%.100s' was refused by the policy", p->command);
    if (s->conn)
        conn_send_error(s->conn, s->tag, e);
    start_free(s);
    cgroup_leave(in, p->number, &p->cgroup);
    proc_free(in, p); /* its zombie is reaped as nobody's */
}

static void start_succeeded(struct start *s)
{
    struct box_spawned msg = { .proc = s->proc->number, .pid = (uint32_t)s->proc->pid };

    if (s->conn && s->proc->pty >= 0 && !s->proc->log)
        conn_send_fd(s->conn, BOX_SPAWNED, s->tag, &msg, sizeof(msg), s->proc->pty);
    else if (s->conn)
        conn_send(s->conn, BOX_SPAWNED, s->tag, &msg, sizeof(msg));
    start_free(s);
}

/* A process that the launcher has made. It may have been killed while only its cgroup was known and it was not in
   there yet: then once more. */
static void start_made(struct init *in, struct start *s, struct msg *m)
{
    struct proc *p = s->proc;
    struct spare_ready ready;
    struct cove_err e;

    memcpy(&ready, m->body, sizeof(ready));
    p->pid = (pid_t)ready.pid;
    if (m->fd_count)
        judge_listen(in, p, &m->fds[0], &e);
    if (p->cgroup.killed)
        proc_kill_tree(in, p);
}

static void start_ready(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    struct start *s = container_of(w, struct start, watch);
    _Alignas(8) char buf[sizeof(struct msg_head) + sizeof(struct cove_err)];
    struct cove_err e;
    struct msg m;
    int n = msg_recv(w->fd, buf, sizeof(buf), start_rules, MSG_DONTWAIT, &m, &e);

    (void)events;
    if (n == 0 && s->proc->pid) {
        start_succeeded(s); /* execve has closed the child's end */
    } else if (n == 0) {
        cove_fail(&e, COVE_LIMIT, "command '%.100s' was ended in the sandbox before it began",
                  s->proc->command);
        start_failed(in, s, &e);
    } else if (n > 0 && m.head.type == SPARE_READY) {
        start_made(in, s, &m);
        msg_close_fds(&m);
    } else if (n > 0 && m.head.type == MSG_DONE) {
        judge_listen(in, s->proc, &m.fds[0], &e);
        msg_close_fds(&m);
    } else if (n > 0) {
        memcpy(&e, m.body, sizeof(e));
        start_failed(in, s, &e);
    } else if (e.code != COVE_BUSY) {
        start_failed(in, s, &e);
    }
}

int start_watch(struct init *in, struct conn *c, uint32_t tag, struct proc *p, int sock,
                struct cove_err *e)
{
    struct start *s = calloc(1, sizeof(*s));

    if (!s || init_watch(in, &s->watch, sock, EPOLLIN, start_ready, e) < 0) {
        if (!s)
            cove_fail(e, COVE_LIMIT, "out of memory");
        free(s);
        cove_close(sock);
        return -1;
    }
    s->conn = c;
    s->tag = tag;
    s->proc = p;
    s->deadline_ms = clock_boot_ms() + START_MS;
    p->start = s;
    LIST_INSERT_HEAD(&in->starts, s, link);
    return 0;
}

/*
 * The process ended before we saw its socket close: by its own error, or killed, or very quickly.
 * All that the socket can still hold is a listener, an error and the end, so three looks are
 * enough.
 */
void start_proc_ended(struct init *in, struct proc *p, int wait_status)
{
    uint32_t number = p->number;

    for (int i = 0; i < 3 && p && p->start; i++) {
        start_ready(&p->start->watch, EPOLLIN);
        p = proc_by_number(in, number);
    }
    if (p && p->start)
        start_succeeded(p->start);
    if (p)
        proc_ended(in, p, wait_status);
}

/* A process was reaped that nobody knows: one of those that were to tell their pid? */
void starts_learn_pids(struct init *in)
{
    struct start *s = LIST_FIRST(&in->starts);

    while (s) {
        struct start *next = LIST_NEXT(s, link);

        if (!s->proc->pid)
            start_ready(&s->watch, EPOLLIN);
        s = next;
    }
}

void start_conn_closed(struct init *in, struct conn *c)
{
    struct start *s;

    for (s = LIST_FIRST(&in->starts); s; s = LIST_NEXT(s, link))
        if (s->conn == c)
            s->conn = NULL;
}

/* Whoever was stopped goes on: the process itself, or the launcher that has to make it. It harms nobody else. */
static void start_continue(struct init *in, const struct start *s)
{
    if (s->proc->pid)
        kill(s->proc->pid, SIGCONT);
    spare_continue(in);
}

/* A launcher that was stopped holds the child's end of the socket open, also after the execve. Without the
   launcher the socket tells whether the command runs. */
static bool give_time(struct init *in, struct start *s, uint64_t now_ms)
{
    if (s->is_late)
        return false;
    s->is_late = true;
    s->deadline_ms = now_ms + LATE_MS;
    spare_distrust(in);
    return true;
}

void starts_expire(struct init *in, uint64_t now_ms)
{
    struct start *s = LIST_FIRST(&in->starts);

    while (s) {
        struct start *next = LIST_NEXT(s, link);
        struct cove_err e;

        if (s->deadline_ms < now_ms + START_MS - SLOW_MS)
            start_continue(in, s);
        if (s->deadline_ms <= now_ms && !give_time(in, s, now_ms)) {
            cove_fail(&e, COVE_LIMIT, "command '%.100s' was held up in the sandbox before it began",
                      s->proc->command);
            if (s->proc->pid) /* a child that leads no session yet is not reached by its group */
                kill(s->proc->pid, SIGKILL);
            proc_kill_tree(in, s->proc);
            start_failed(in, s, &e);
        }
        s = next;
    }
}
