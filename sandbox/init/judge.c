/*
 * Exec-time policy: a command started with SPAWN_NOTIFY, and all that it starts, stops at each
 * execve until the judge (a connection that sent BOX_JUDGE) has answered. Every such spawn has a
 * seccomp listener of its own, so which tree an execve belongs to is known and cannot be forged. No
 * judge within JUDGE_MS, or no answer within ANSWER_MS: EPERM.
 *
 * This is a guardrail: the memory that argv was read from can be changed by another thread between
 * the verdict and the kernel's own look at it.
 */
#include "config.h" /* _GNU_SOURCE */

#include <assert.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

enum {
    JUDGE_MS = 2000,
    ANSWER_MS = 5000,
    INLINE_BYTES = 8 * 1024, /* longer ones go as a file: the socket's buffer is not large */
    ASKS_IN_FLIGHT = 32, /* questions that the socket's buffer must hold; the others wait here */
};

struct listener {
    LIST_ENTRY(listener) link;
    struct watch watch;
    uint32_t proc, context;
    uint32_t denied; /* execves of this command and all that it started */
    bool
        is_exhausted; /* it was refused so often that it was ended: nobody is asked about it again */
};

struct ask { /* one execve that waits */
    TAILQ_ENTRY(ask) link;
    uint64_t number;
    uint64_t notif_id;
    struct listener *listener;
    uint32_t pid;
    uint64_t file, argv; /* addresses in that process */
    uint64_t deadline_ms;
    bool sent;
};

/* --------------------------------------------------------------- asks */

static void answer_kernel(int listener_fd, uint64_t notif_id, bool allow)
{
    struct seccomp_notif_resp resp = { .id = notif_id };

    if (allow)
        resp.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else
        resp.error = -EPERM;
    ioctl(listener_fd, SECCOMP_IOCTL_NOTIF_SEND, &resp); /* ENOENT: it was killed meanwhile */
}

static void ask_free(struct init *in, struct ask *a)
{
    TAILQ_REMOVE(&in->asks, a, link);
    assert(in->ask_count > 0 && in->asks_sent >= a->sent);
    in->ask_count--;
    in->asks_sent -= a->sent;
    free(a);
}

static void tell_spawner(struct proc *p, const char *reason)
{
    struct box_proc_ref ref = { .proc = p->number };
    struct want *w;

    for (w = TAILQ_FIRST(&p->wants); w; w = TAILQ_NEXT(w, by_proc))
        if (w->spawner)
            conn_send_tail(w->conn, BOX_EXEC_DENIED, w->tag, &ref, sizeof(ref), reason,
                           strlen(reason) + 1);
}

static void refuse(struct init *in, struct listener *l, uint64_t notif_id, const char *reason)
{
    struct proc *p = proc_by_number(in, l->proc);

    answer_kernel(l->watch.fd, notif_id, false);
    l->denied++;
    if (p) {
        p->end.denied++;
        tell_spawner(p, reason);
    }
}

/* A command that goes on trying what is refused is ended with all that it started. If a process of it survives,
 * its further execves are refused without asking the judge. */
static void end_if_exhausted(struct init *in, struct listener *l, uint32_t refusals_max)
{
    struct proc *p = proc_by_number(in, l->proc);

    if (!refusals_max || l->denied < refusals_max || l->is_exhausted)
        return;
    l->is_exhausted = true;
    if (!p) { /* its first process has ended, and what it left behind goes on */
        cgroup_kill(in, l->proc);
        return;
    }
    if (p->running) {
        p->kill_cause = END_POLICY;
        p->kill_limit = refusals_max;
        p->kill_signo = SIGKILL;
    }
    proc_kill_tree(in, p);
}

static void deny(struct init *in, struct ask *a, const char *reason)
{
    refuse(in, a->listener, a->notif_id, reason);
    ask_free(in, a);
}

/*
 * The words are read when they are sent and not when the execve stops: a judge that comes late, or
 * again after the one before it was lost, sees them as they are then. Only the check of the id
 * after reading makes them that process's.
 */
static bool send_words(struct init *in, const struct box_exec_ask *msg, const struct exec_words *w)
{
    AUTO_CLOSE int fd = -1;

    if (w->len <= INLINE_BYTES)
        return conn_send_tail(in->judge, BOX_EXEC_ASK, in->judge_tag, msg, sizeof(*msg), w->bytes,
                              w->len);
    fd = memfd_create("argv", MFD_CLOEXEC);
    if (fd < 0 || write(fd, w->bytes, w->len) != (ssize_t)w->len)
        return false;
    return conn_send_fd(in->judge, BOX_EXEC_ASK, in->judge_tag, msg, sizeof(*msg), fd);
}

static void send_ask(struct init *in, struct ask *a)
{
    struct exec_words words = { 0 };
    struct box_exec_ask msg = {
        .ask = a->number, .proc = a->listener->proc, .pid = a->pid, .context = a->listener->context
    };

    exec_words_read(&words, (pid_t)a->pid, a->file, a->argv);
    if (ioctl(a->listener->watch.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &a->notif_id) < 0) {
        free(words.bytes);
        ask_free(in, a);
        return;
    }
    msg.argc = words.count;
    msg.truncated = words.truncated;
    a->sent = send_words(in, &msg, &words);
    in->asks_sent += a->sent;
    a->deadline_ms = clock_boot_ms() + (a->sent ? ANSWER_MS : JUDGE_MS);
    free(words.bytes);
}

/* Send as many questions as may be under way. Further execves wait here, and in the kernel, in the
   order in which they came. */
static void send_waiting(struct init *in)
{
    struct ask *a = TAILQ_FIRST(&in->asks), *next;

    for (; a && in->judge && !in->judge->cut && in->asks_sent < ASKS_IN_FLIGHT; a = next) {
        next = TAILQ_NEXT(a, link);
        if (!a->sent)
            send_ask(in, a);
    }
}

static void new_ask(struct init *in, struct listener *l, const struct seccomp_notif *req)
{
    bool is_at = req->data.nr == SYS_execveat;
    struct ask *a = NULL;

    if (l->is_exhausted) {
        answer_kernel(l->watch.fd, req->id, false);
        return;
    }
    if (req->data.arch !=
        NATIVE_ARCH) { /* another architecture: its argv has pointers of another size */
        refuse(in, l, req->id,
               "cove: refused by policy (limit): a 32-bit program may not start others here");
        return;
    }
    if (in->ask_count < MAX_ASKS)
        a = calloc(1, sizeof(*a));
    if (!a) {
        refuse(in, l, req->id, "cove: refused by policy (limit): too many execve calls at once");
        return;
    }
    *a = (struct ask){ .number = ++in->last_ask,
                       .notif_id = req->id,
                       .listener = l,
                       .pid = req->pid,
                       .file = req->data.args[is_at ? 1 : 0],
                       .argv = req->data.args[is_at ? 2 : 1],
                       .deadline_ms = clock_boot_ms() + JUDGE_MS };
    if (in->judge)
        a->deadline_ms += ANSWER_MS; /* there is a judge, and it may be busy */
    TAILQ_INSERT_TAIL(&in->asks, a, link);
    in->ask_count++;
    send_waiting(in);
}

/* --------------------------------------------------------------- listeners */

static void listener_free(struct init *in, struct listener *l)
{
    struct ask *a = TAILQ_FIRST(&in->asks);

    while (a) {
        struct ask *next = TAILQ_NEXT(a, link);

        if (a->listener == l)
            ask_free(in, a);
        a = next;
    }
    watch_close(&l->watch);
    LIST_REMOVE(l, link);
    free(l);
}

/*
 * The last process with this filter is ending. Closing the listener makes the kernel free the filter, in a thread of
 * the kernel that would take the cpu from the very process that is ending. If that is the command, whose client waits
 * for its end, the listener stays open until the client has been told.
 */
static void listener_hung_up(struct init *in, struct listener *l)
{
    struct proc *p = proc_by_number(in, l->proc);

    if (p && p->running && !p->hung_up && watch_want(&l->watch, 0) == 0)
        p->hung_up = l;
    else
        listener_free(in, l);
}

void judge_proc_ended(struct init *in, struct proc *p)
{
    if (p->hung_up)
        listener_free(in, p->hung_up);
    p->hung_up = NULL;
}

static void listener_ready(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    struct listener *l = container_of(w, struct listener, watch);
    union { /* room for a kernel whose structure has grown: it writes as much as it has */
        struct seccomp_notif req;
        char space[512];
    } u = { .space = { 0 } };

    if (!(events & EPOLLIN)) {
        listener_hung_up(in, l);
        return;
    }
    if (ioctl(w->fd, SECCOMP_IOCTL_NOTIF_RECV, &u.req) < 0)
        return; /* ENOENT: killed before we came */
    if (u.req.data.nr == SYS_execve || u.req.data.nr == SYS_execveat ||
        u.req.data.arch != NATIVE_ARCH)
        new_ask(in, l, &u.req);
    else
        answer_kernel(w->fd, u.req.id,
                      false); /* a filter that asks about anything else is not ours */
}

int judge_listen(struct init *in, const struct proc *p, int *fd, struct cove_err *e)
{
    struct listener *l = calloc(1, sizeof(*l));

    if (!l || init_watch(in, &l->watch, *fd, EPOLLIN, listener_ready, e) < 0) {
        if (!l)
            cove_fail(e, COVE_LIMIT, "out of memory");
        free(l);
        return -1; /* the caller closes the fd, and every execve fails with ENOSYS */
    }
    take_fd(fd);
    l->proc = p->number;
    l->context = p->context;
    LIST_INSERT_HEAD(&in->listeners, l, link);
    return 0;
}

/* --------------------------------------------------------------- the judge */

void judge_conn_closed(struct init *in, struct conn *c)
{
    struct ask *a;

    if (in->judge != c)
        return;
    in->judge = NULL;
    in->asks_sent = 0;
    for (a = TAILQ_FIRST(&in->asks); a; a = TAILQ_NEXT(a, link)) {
        a->sent = false; /* the next judge is asked again */
        a->deadline_ms = clock_boot_ms() + JUDGE_MS;
    }
}

void judge_expire(struct init *in, uint64_t now_ms)
{
    struct ask *a = TAILQ_FIRST(&in->asks);

    while (a) {
        struct ask *next = TAILQ_NEXT(a, link);

        if (a->deadline_ms <= now_ms)
            deny(in, a,
                 a->sent ? "cove: refused: the policy did not answer in time"
                         : "cove: refused: there is no policy to ask");
        a = next;
    }
}

/* Safe: whoever is connected may run anything here anyway. The judge that came last is asked. */
int on_judge(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    (void)e;
    if (in->judge && in->judge != c) {
        conn_cut(
            in->judge); /* the judge of the keeper before: it ends when its last connection is closed */
        judge_conn_closed(in, in->judge);
    }
    in->judge = c;
    in->judge_tag = m->head.tag;
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    send_waiting(in);
    return 0;
}

int on_exec_answer(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_exec_answer *args = m->body;
    const char *reason;
    struct ask *a;

    (void)e;
    if (tail_strings(m, sizeof(*args), &reason, 1) < 0 || c != in->judge)
        return CUT_OFF;
    for (a = TAILQ_FIRST(&in->asks); a; a = TAILQ_NEXT(a, link))
        if (a->number == args->ask && a->sent)
            break;
    if (!a)
        return 0; /* the process was killed, or the answer came too late */
    if (args->allow) {
        answer_kernel(a->listener->watch.fd, a->notif_id, true);
        ask_free(in, a);
    } else {
        struct listener *l = a->listener;

        deny(in, a, reason);
        end_if_exhausted(in, l, args->refusals_max);
    }
    send_waiting(in);
    return 0;
}
