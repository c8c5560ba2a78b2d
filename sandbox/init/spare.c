/*
 * A process made ahead, the spare. Starting a command under a filter costs a clone into a cgroup and the kernel's
 * reading of the filter, several times what execve costs. So once a command has run, init keeps a launcher
 * (launcher.c), which has the filter that was used last and makes processes cheaply. When a command has ended and
 * its client has its reply, init has the next command's process made in advance: in its own cgroup, waiting on a
 * socket for what it is to become. A spawn under the same filter takes the spare, or has one made at once, and sends it
 * the rest (argv, environment, user, stdio); any other spawn starts in the ordinary way. Both have
 * init's rights, so what runs in the sandbox can kill or stop them, but not look into them or steer
 * them. A spare or a launcher that is gone costs time, or, if it was killed with a command in its hands, that command,
 * whose client is told.
 *
 * When no command comes for a while both are ended: they take a quarter of the memory of an idle sandbox, and
 * what the kernel does with every process of the machine takes longer with more of them. A moment later init gives back what
 * it does not need itself (idle.c).
 */
#include "config.h" /* _GNU_SOURCE */

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "cove/text.h"
#include "cove/weak.h"
#include "sandbox/init/init_private.h"

/* How long after a command's start or end the next process is made: meanwhile the command, or the
   worker and nginx with its reply, have the cpu to themselves. After a sandbox's first command it takes
   longer: many sandboxes run no second one, and many may be made at the same time. */
enum {
    MAKE_AFTER_US = 20000,
    MAKE_AFTER_END_US = 500,
    MAKE_AFTER_FIRST_US = 1000000,
    KEEP_US = 20000000,
    REST_AFTER_US = 500000, /* when both have been reaped, and their cgroup is gone */
};

/* --------------------------------------------------------------- what the next command may need */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void spare_drop(struct init *in);
static void launcher_drop(struct init *in);

static bool is_there(const struct spare *s)
{
    return s->watch.loop != NULL;
}

static bool is_remembered(const struct spare *s, const struct stat *file)
{
    return s->filter.len > 0 && same_file(&s->file, file);
}

void spare_remember(struct init *in, const struct stat *file, const struct sock_fprog *filter,
                    bool notify)
{
    static LARGE struct sock_filter kept[BPF_MAXINSNS];
    struct spare *s = &in->spare;

    if (is_there(s) && s->notify != notify)
        spare_drop(in);
    s->notify = notify;
    if (is_remembered(s, file))
        return;
    spare_drop(in);
    launcher_drop(in);
    memcpy(kept, filter->filter, filter->len * sizeof(*kept));
    s->filter = (struct sock_fprog){ filter->len, kept };
    s->file = *file;
}

/* Below a millisecond, which is what timers of the loop have: hence a timerfd. */
static void set_timer(struct spare *s, int due, uint32_t us)
{
    const struct itimerspec when = { .it_value = { .tv_sec = us / 1000000,
                                                   .tv_nsec = us % 1000000 * 1000L } };

    if (timerfd_settime(s->timer.fd, 0, &when, NULL) == 0)
        s->due = due;
}

static bool is_first(const struct init *in)
{
    return in->last_number < 2;
}

void spare_soon(struct init *in)
{
    if (!is_there(&in->spare))
        set_timer(&in->spare, DUE_MAKE, is_first(in) ? MAKE_AFTER_FIRST_US : MAKE_AFTER_US);
}

void spare_after_end(struct init *in)
{
    if (!is_there(&in->spare))
        set_timer(&in->spare, DUE_MAKE, is_first(in) ? MAKE_AFTER_FIRST_US : MAKE_AFTER_END_US);
}

/* A client that started no command has filled buffers, too. */
void spare_client_gone(struct init *in)
{
    if (in->spare.due == DUE_NOTHING)
        set_timer(&in->spare, DUE_REST, KEEP_US);
}

/* --------------------------------------------------------------- the launcher */

static void launcher_forget(struct spare *s)
{
    s->launcher_fd = cove_close(s->launcher_fd);
    s->launcher = 0;
}

static void launcher_drop(struct init *in)
{
    struct spare *s = &in->spare;

    if (!s->launcher)
        return;
    kill(s->launcher, SIGKILL);
    launcher_forget(s);
}

void spare_distrust(struct init *in)
{
    spare_drop(in);
    launcher_drop(in);
}

void spare_continue(struct init *in)
{
    if (in->spare.launcher)
        kill(in->spare.launcher, SIGCONT);
}

static void launcher_make(struct spare *s)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return;
    s->launcher = launcher_start(&s->filter, fds[1]);
    s->launcher_fd = fds[0];
    cove_close(fds[1]);
    if (s->launcher < 0)
        launcher_forget(s);
}

struct made { /* a process that the launcher was told to make */
    int sock; /* our end of its socket */
    struct command_cgroup cgroup;
};

static int order(struct init *in, bool notify, struct made *ret)
{
    AUTO_CLOSE int ours = -1, theirs = -1;
    const uint32_t body = notify;
    int fds[2], cgroup_fd;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -1;
    ours = fds[0];
    theirs = fds[1];
    msg_prepare_socket(ours);
    if (cgroup_make(in, &ret->cgroup, &cgroup_fd, NULL) < 0)
        return -1;
    fds[0] = theirs;
    fds[1] = cgroup_fd;
    if (cgroup_fd < 0 ||
        msg_send(in->spare.launcher_fd,
                 &(struct msg_out){ SPARE_ORDER, MSG_BODY(body), .fds = fds, .fd_count = 2 },
                 MSG_DONTWAIT, NULL) < 0) {
        cgroup_leave(in, 0, &ret->cgroup);
        launcher_drop(in);
        return -1;
    }
    ret->sock = take_fd(&ours);
    return 0;
}

/* --------------------------------------------------------------- the spare's life */

static void spare_forget(struct init *in)
{
    struct spare *s = &in->spare;

    watch_close(&s->watch);
    s->listener = cove_close(s->listener);
    s->pid = 0;
}

/* Without its socket a spare ends by itself, also one whose pid we do not know yet. */
static void spare_drop(struct init *in)
{
    struct spare *s = &in->spare;

    if (!is_there(s))
        return;
    if (s->pid)
        kill(s->pid, SIGKILL);
    spare_forget(in);
    cgroup_leave(in, 0, &s->cgroup);
}

bool spare_reaped(struct init *in, pid_t pid)
{
    struct spare *s = &in->spare;

    if (!pid || (pid != s->pid && pid != s->launcher))
        return false;
    if (pid == s->launcher)
        launcher_forget(s);
    spare_drop(in);
    return true;
}

/* A spare says one thing only: who it is, with the listener if its filter notifies. */
static void spare_ready(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    static const struct msg_rule taken[] = { { SPARE_READY, sizeof(struct spare_ready), 0, 0, 1 },
                                             { 0 } };
    _Alignas(8) char buf[64];
    struct spare_ready ready;
    struct msg m;

    (void)events;
    if (msg_recv(w->fd, buf, sizeof(buf), taken, MSG_DONTWAIT, &m, NULL) != 1) {
        spare_drop(in); /* its set-up failed; the next start in the ordinary way will tell why */
        return;
    }
    memcpy(&ready, m.body, sizeof(ready));
    in->spare.pid = (pid_t)ready.pid;
    if (m.fd_count)
        in->spare.listener = take_fd(&m.fds[0]);
}

static void spare_make(struct init *in)
{
    struct spare *s = &in->spare;
    struct made made = { 0 };

    if (!s->launcher)
        launcher_make(s);
    if (!s->launcher || order(in, s->notify, &made) < 0)
        return;
    s->pid = 0;
    s->listener = -1;
    s->cgroup = made.cgroup;
    if (init_watch(in, &s->watch, made.sock, EPOLLIN, spare_ready, NULL) < 0) {
        cove_close(made.sock);
        cgroup_leave(in, 0, &s->cgroup);
    }
}

static void make_ahead(struct init *in)
{
    if (in->spare.filter.len > 0 && !is_there(&in->spare) && in->has_cgroup && !weak("seccomp"))
        spare_make(in);
    else
        cgroup_prepare(in);
}

static void end_all(struct init *in)
{
    spare_drop(in);
    launcher_drop(in);
    cgroup_tidy(in);
}

/* The next command will tell its filter again. */
void spare_rest(struct init *in)
{
    end_all(in);
    in->spare.filter.len = 0;
}

static void spare_due(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    struct spare *s = &in->spare;
    int due = s->due;
    uint64_t times;

    (void)events;
    if (read(w->fd, &times, sizeof(times)) != sizeof(times))
        return; /* it was set anew meanwhile */
    s->due = DUE_NOTHING;
    if (due == DUE_MAKE) {
        make_ahead(in);
        set_timer(s, DUE_END, KEEP_US);
    } else if (due == DUE_END) {
        end_all(in);
        set_timer(s, DUE_REST, REST_AFTER_US);
    } else {
        idle_rest(in);
    }
}

int spare_setup(struct init *in, struct cove_err *e)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

    if (fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "timer");
    return init_watch(in, &in->spare.timer, fd, EPOLLIN, spare_due, e);
}

/* --------------------------------------------------------------- taking it */

static int send_job(int sock, const struct exec_job *job)
{
    struct spare_job body = {
        .uid = job->user.uid,
        .gid = job->user.gid,
        .group_count = (uint32_t)job->user.group_count,
        .cwd_is_home = job->cwd_is_home,
        .pty = job->pty,
        .max_open_files = job->max_open_files,
        .max_file_bytes = job->max_file_bytes,
    };
    static LARGE char tail[MSG_MAX_BYTES];
    size_t len = 0, fd_count = 0;
    char **const vectors[] = { job->argv, job->env };
    uint32_t *const counts[] = { &body.argc, &body.envc };
    int fds[3];

    memcpy(body.groups, job->user.groups, job->user.group_count * sizeof(gid_t));
    text_copy(body.user, sizeof(body.user), job->user.name);
    len = strlen(job->cwd) + 1;
    memcpy(tail, job->cwd, len);
    for (int v = 0; v < 2; v++) {
        for (char **at = vectors[v]; *at; at++, (*counts[v])++) {
            size_t n = strlen(*at) + 1;

            if (n > sizeof(tail) - len)
                return -1;
            memcpy(tail + len, *at, n);
            len += n;
        }
    }
    for (int fd = 0; fd < 3; fd++) {
        if (job->stdio[fd] == fd)
            continue; /* /dev/null, which it has */
        body.stdio |= 1U << fd;
        fds[fd_count++] = job->stdio[fd];
    }
    return msg_send(sock,
                    &(struct msg_out){ SPARE_JOB, MSG_BODY(body), .tail = tail, .tail_len = len,
                                       .fds = fds, .fd_count = fd_count },
                    MSG_DONTWAIT, NULL);
}

/* The spare if there is one that fits, or one that is made now. */
static int take_or_make(struct init *in, bool notify, struct proc *p, struct made *ret)
{
    struct spare *s = &in->spare;
    struct cove_err e;

    if (!is_there(s) || s->notify != notify) {
        spare_drop(in);
        return order(in, notify, ret);
    }
    if (s->listener >= 0 && judge_listen(in, p, &s->listener, &e) < 0) {
        spare_drop(in);
        return -1;
    }
    p->pid = s->pid;
    ret->cgroup = s->cgroup;
    ret->sock = watch_take(&s->watch);
    s->cgroup.name = 0;
    spare_forget(in);
    return 0;
}

int spare_take(struct init *in, const struct exec_job *job, const struct stat *filter_file,
               struct proc *p, int *ret_sock)
{
    struct spare *s = &in->spare;
    struct made made = { 0 };

    if (!s->launcher || !is_remembered(s, filter_file) ||
        take_or_make(in, job->notify, p, &made) < 0)
        return -1;
    if (send_job(made.sock, job) < 0) { /* it was killed, or the job is too long for it */
        if (p->pid)
            kill(p->pid, SIGKILL);
        p->pid = 0;
        cove_close(made.sock);
        cgroup_leave(in, 0, &made.cgroup);
        return -1;
    }
    s->notify = job->notify;
    p->cgroup = made.cgroup;
    *ret_sock = made.sock;
    return 0;
}
