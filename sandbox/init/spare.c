/*
 * A process made ahead, the spare. Starting a command under a filter costs a clone into a new cgroup
 * and the kernel's reading of the filter, several times what execve costs. So when a command has
 * ended and its client has gone, init makes the next command's process in advance: in its own
 * cgroup, under the filter that was used last, waiting on a socket for what it is to become. A spawn
 * that fits takes the spare and sends the rest (argv, environment, user, stdio); a spawn that does
 * not fit starts in the ordinary way. The spare has init's rights, so what runs in the sandbox can
 * kill it or stop it, but not look into it or steer it. A spare that is gone costs only time.
 *
 * A spare that nobody wants for a while is ended: it takes a fifth of the memory of an idle sandbox, and
 * what the kernel does with every process of the machine takes longer with twice as many of them.
 */
#include "config.h" /* _GNU_SOURCE */

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

/* How long after a command's start or end the next process is made: meanwhile the command, or the
   worker that tells of its end, has the cpu to itself. When the client hangs up, the rest of the
   time is only what its reply needs to get through nginx. After a sandbox's first command it takes
   longer: many sandboxes run no second one, and many may be made at the same time. */
enum {
    MAKE_AFTER_US = 20000,
    MAKE_AFTER_CLIENT_US = 300,
    MAKE_AFTER_FIRST_US = 1000000,
    KEEP_US = 20000000
};

/* --------------------------------------------------------------- what the next command may need */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void spare_drop(struct init *in);

static bool fits(const struct spare *s, const struct stat *file, bool notify)
{
    return s->filter.len > 0 && s->notify == notify && same_file(&s->file, file);
}

void spare_remember(struct init *in, const struct stat *file, const struct sock_fprog *filter,
                    bool notify)
{
    static LARGE struct sock_filter kept[BPF_MAXINSNS];
    struct spare *s = &in->spare;

    if (!fits(s, file, notify)) {
        spare_drop(in);
        memcpy(kept, filter->filter, filter->len * sizeof(*kept));
        s->filter = (struct sock_fprog){ filter->len, kept };
        s->file = *file;
        s->notify = notify;
    }
}

/* Below a millisecond, which is what timers of the loop have: hence a timerfd. */
static int set_timer(const struct spare *s, uint32_t us)
{
    const struct itimerspec when = { .it_value = { .tv_sec = us / 1000000,
                                                   .tv_nsec = us % 1000000 * 1000L } };

    return timerfd_settime(s->timer.fd, 0, &when, NULL);
}

static void make_after(struct spare *s, uint32_t us)
{
    s->wanted = set_timer(s, us) == 0;
}

static bool is_first(const struct init *in)
{
    return in->last_number < 2;
}

void spare_soon(struct init *in)
{
    if (!in->spare.pid)
        make_after(&in->spare, is_first(in) ? MAKE_AFTER_FIRST_US : MAKE_AFTER_US);
}

void spare_hurry(struct init *in)
{
    if (in->spare.wanted && !is_first(in))
        make_after(&in->spare, MAKE_AFTER_CLIENT_US);
}

/* --------------------------------------------------------------- its life */

static void spare_forget(struct init *in)
{
    struct spare *s = &in->spare;

    watch_close(&s->watch);
    s->listener = cove_close(s->listener);
    s->pid = 0;
}

static void spare_drop(struct init *in)
{
    struct spare *s = &in->spare;

    if (!s->pid)
        return;
    kill(s->pid, SIGKILL);
    spare_forget(in);
    cgroup_leave(in, 0, &s->cgroup);
}

bool spare_reaped(struct init *in, pid_t pid)
{
    if (!in->spare.pid || in->spare.pid != pid)
        return false;
    spare_drop(in);
    return true;
}

/* A spare says one thing only, if its filter notifies: here is the listener. */
static void spare_ready(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    static const struct msg_rule taken[] = { { MSG_DONE, 0, 0, 1, 1 }, { 0 } };
    char buf[64];
    struct msg m;

    (void)events;
    if (msg_recv(w->fd, buf, sizeof(buf), taken, MSG_DONTWAIT, &m, NULL) != 1) {
        spare_drop(in); /* its set-up failed; the next start in the ordinary way will tell why */
        return;
    }
    in->spare.listener = take_fd(&m.fds[0]);
}

static void spare_make(struct init *in)
{
    struct spare *s = &in->spare;
    AUTO_CLOSE int cgroup_fd = -1, theirs = -1;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return;
    theirs = fds[1];
    msg_prepare_socket(fds[0]);
    s->listener = -1;
    if (cgroup_make(in, &s->cgroup, &cgroup_fd, NULL) < 0 || cgroup_fd < 0 ||
        init_watch(in, &s->watch, fds[0], EPOLLIN, spare_ready, NULL) < 0) {
        cove_close(fds[0]);
        cgroup_leave(in, 0, &s->cgroup);
        return;
    }
    s->pid = exec_spare(&s->filter, s->notify, theirs, cgroup_fd);
    if (s->pid < 0) {
        s->pid = 0;
        watch_close(&s->watch);
        cgroup_leave(in, 0, &s->cgroup);
        return;
    }
    set_timer(s, KEEP_US);
}

static void spare_due(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    uint64_t times;

    (void)events;
    if (read(w->fd, &times, sizeof(times)) != sizeof(times))
        return; /* it was set anew meanwhile */
    if (!in->spare.wanted) {
        spare_drop(in);
        cgroup_tidy(in);
        return;
    }
    in->spare.wanted = false;
    if (in->spare.filter.len > 0 && !in->spare.pid && in->has_cgroup)
        spare_make(in);
    else
        cgroup_prepare(in);
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

int spare_take(struct init *in, const struct exec_job *job, const struct stat *filter_file,
               struct proc *p, int *ret_sock)
{
    struct spare *s = &in->spare;
    struct cove_err e;

    if (!s->pid)
        return -1;
    if (!fits(s, filter_file, job->notify) || send_job(s->watch.fd, job) < 0 ||
        (s->listener >= 0 && judge_listen(in, p, &s->listener, &e) < 0)) {
        spare_drop(in);
        return -1;
    }
    p->pid = s->pid;
    p->cgroup = s->cgroup;
    s->cgroup.name = 0;
    *ret_sock = watch_take(&s->watch);
    spare_forget(in);
    return 0;
}
