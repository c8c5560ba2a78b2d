/* Processes of a sandbox: the table of them, how they end, and what can be asked of them. */
#include "config.h" /* _GNU_SOURCE */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

/* --------------------------------------------------------------- the table */

/* Where the process `number` is in the table, or would be. */
static size_t position(const struct init *in, uint32_t number)
{
    size_t low = 0, high = in->proc_count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (in->procs[mid]->number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct proc *proc_by_number(struct init *in, uint32_t number)
{
    size_t at = position(in, number);

    return at < in->proc_count && in->procs[at]->number == number ? in->procs[at] : NULL;
}

int proc_find(struct init *in, uint32_t number, const char *label, struct proc **ret,
              struct cove_err *e)
{
    if (number) {
        *ret = proc_by_number(in, number);
        return *ret ? 0 : cove_fail(e, COVE_NOT_FOUND, "process %u", number);
    }
    for (size_t i = in->proc_count; *label && i > 0; i--)
        if (strcmp(in->procs[i - 1]->label, label) == 0) {
            *ret = in->procs[i - 1];
            return 0;
        }
    return cove_fail(e, COVE_NOT_FOUND, "process '%.100s'", label);
}

int proc_add(struct init *in, struct proc *p, struct cove_err *e)
{
    if (in->proc_count >= MAX_PROCS)
        return cove_fail(e, COVE_LIMIT, "%d processes in this sandbox already", MAX_PROCS);
    if (in->proc_count == in->proc_room) {
        size_t room = in->proc_room ? 2 * in->proc_room : 64;
        struct proc **more = reallocarray(in->procs, room, sizeof(*more));

        if (!more)
            return cove_fail(e, COVE_LIMIT, "out of memory");
        in->procs = more;
        in->proc_room = room;
    }
    p->number = ++in->last_number;
    in->procs[in->proc_count++] = p;
    TAILQ_INSERT_TAIL(&in->running, p, link);
    return 0;
}

static void unlink_from_table(struct init *in, struct proc *p)
{
    size_t at = position(in, p->number);

    if (at == in->proc_count || in->procs[at] != p)
        return;
    memmove(&in->procs[at], &in->procs[at + 1], (--in->proc_count - at) * sizeof(*in->procs));
    if (p->running || !(p->flags & SPAWN_RECORD)) {
        TAILQ_REMOVE(&in->running, p, link);
    } else {
        TAILQ_REMOVE(&in->finished, p, link);
        in->finished_count--;
        in->finished_ring_bytes -= p->kept_bytes;
    }
}

void proc_free(struct init *in, struct proc *p)
{
    struct want *w;

    if (!p)
        return;
    unlink_from_table(in, p);
    timer_stop(&p->deadline);
    while ((w = TAILQ_FIRST(&p->wants)))
        want_free(w);
    log_free(in, p);
    cove_close(p->stdin_fd);
    cove_close(p->pty);
    free(p->label);
    free(p->note);
    free(p->command);
    free(p);
}

/* --------------------------------------------------------------- the end of one */

static bool ended_by(const struct cove_end *end, int signo)
{
    return end->signal == signo || (!end->signal && end->exit_code == 128 + signo);
}

enum { DISK_FULL_BYTES = 256 * 1024 }; /* less than this is left only when something was refused */

static bool is_full(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

/* Overlays of older kernels have no files without a name: then it has one for a moment. */
static int open_scratch(void)
{
    char name[] = "/.cove-XXXXXX";
    int fd = open("/", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || is_full(errno))
        return fd;
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

/* A quota that statfs() does not show is tried out. */
static bool quota_is_full(void)
{
    int fd = open_scratch();
    bool full;

    if (fd < 0)
        return is_full(errno);
    full = fallocate(fd, 0, 0, DISK_FULL_BYTES) < 0 && is_full(errno);
    close(fd);
    return full;
}

static bool disk_is_full(uint64_t *ret_limit)
{
    const char *told = getenv(INIT_DISK_ENV);
    uint64_t limit = told ? strtoull(told, NULL, 10) : 0;
    struct statfs fs;

    if (limit) {
        *ret_limit = limit;
        return quota_is_full();
    }
    if (statfs("/", &fs) < 0 || fs.f_blocks == 0 ||
        (fs.f_bavail * (uint64_t)fs.f_bsize >= DISK_FULL_BYTES && fs.f_ffree > 0))
        return false;
    *ret_limit = fs.f_blocks * (uint64_t)fs.f_bsize;
    return true;
}

static void tell_cause(struct init *in, struct proc *p)
{
    struct cove_end *end = &p->end;

    if (p->kill_cause && ended_by(end, p->kill_signo)) {
        end->cause = p->kill_cause;
        end->limit = p->kill_limit;
    } else if (ended_by(end, SIGKILL) && cgroup_oom_kills(in) > p->oom_before) {
        end->cause = END_MEMORY;
        end->limit = cgroup_memory_limit(in);
    } else if ((end->signal || end->exit_code) && cgroup_pids_refused(in) > p->pids_before) {
        end->cause = END_PIDS;
        end->limit = cgroup_pids_limit();
    } else if ((end->signal || end->exit_code) && disk_is_full(&end->limit)) {
        end->cause = END_DISK;
    }
}

static void tell_waiting(struct proc *p)
{
    struct box_exited msg = { .proc = p->number, .pid = (uint32_t)p->pid, .end = p->end };
    struct want *w = TAILQ_FIRST(&p->wants);

    while (w) {
        struct want *next = TAILQ_NEXT(w, by_proc);

        if (w->kind == WANT_EXIT) {
            conn_send(w->conn, BOX_EXITED, w->tag, &msg, sizeof(msg));
            want_free(w);
        }
        w = next;
    }
}

static void keep_record(struct init *in, struct proc *p)
{
    TAILQ_REMOVE(&in->running, p, link);
    TAILQ_INSERT_TAIL(&in->finished, p, link);
    in->finished_count++;
    p->kept_bytes = log_bytes(p);
    in->finished_ring_bytes += p->kept_bytes;
    log_settle(p);
    while (in->finished_count > MAX_FINISHED ||
           (in->finished_ring_bytes > MAX_FINISHED_RING_BYTES && in->finished_count > 1))
        proc_free(in, TAILQ_FIRST(&in->finished));
}

/* Without SPAWN_RECORD nothing of a process stays, except a log that somebody may still write to or
   read from. */
void proc_drop_if_done(struct init *in, struct proc *p)
{
    if (!p->running && !(p->flags & SPAWN_RECORD) && !log_is_open(p))
        proc_free(in, p);
}

void proc_ended(struct init *in, struct proc *p, int wait_status)
{
    p->end.signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    p->end.exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
    p->end.ended_unix_ms = clock_unix_ms();
    timer_stop(&p->deadline);
    tell_cause(in, p);
    p->stdin_fd = cove_close(p->stdin_fd);
    if (p->log)
        log_drain(p);
    p->pty = cove_close(p->pty);
    p->running = false;
    free(p->note);
    p->note = NULL;
    if (p->flags & SPAWN_RECORD)
        keep_record(in, p);
    if (p->log)
        log_tick(in, p);
    tell_waiting(p); /* what follows is tidying up: nobody should wait for it */
    if (p->has_cgroup && (p->flags & SPAWN_RECORD))
        p->cpu_us = cgroup_cpu_us(in, p->number);
    if (p->has_cgroup)
        cgroup_leave(in, p->number);
    spare_soon(in);
    proc_drop_if_done(in, p);
}

/* --------------------------------------------------------------- deadlines */

static void on_deadline(struct timer *t)
{
    struct init *in = container_of(t->loop, struct init, loop);
    struct proc *p = container_of(t, struct proc, deadline);

    p->kill_cause = END_DEADLINE;
    p->kill_signo = SIGKILL;
    p->kill_limit = p->timeout_ms;
    proc_kill_tree(in, p);
}

void proc_set_deadline(struct init *in, struct proc *p, uint32_t timeout_ms)
{
    p->timeout_ms = timeout_ms;
    if (timeout_ms)
        timer_start(&in->loop, &p->deadline, timeout_ms, on_deadline);
}

static struct proc *running_by_pid(struct init *in, pid_t pid)
{
    struct proc *p;

    for (p = TAILQ_FIRST(&in->running); p; p = TAILQ_NEXT(p, link))
        if (p->pid == pid && p->running)
            return p;
    return NULL;
}

void proc_reap(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    struct signalfd_siginfo si;
    int status;
    pid_t pid;

    (void)events;
    while (read(w->fd, &si, sizeof(si)) > 0)
        ;
    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
        struct proc *p = running_by_pid(in, pid);

        if (!p && spare_reaped(in, pid))
            continue;
        if (p && p->start)
            start_proc_ended(in, p, status); /* it never got to its execve */
        else if (p)
            proc_ended(in, p, status);
    }
    cgroup_sweep(in);
}

/* --------------------------------------------------------------- killing */

/*
 * Without cgroups all we know is the session that the command started in: kill those who are still
 * in it. What called setsid() itself escapes this; it is the fallback of tests and of hosts without
 * cgroup v2, not what is promised.
 */
static void kill_session(pid_t session)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    while (proc && (entry = readdir(proc))) {
        pid_t pid = (pid_t)atoi(entry->d_name);

        if (pid > 1 && getsid(pid) == session)
            kill(pid, SIGKILL);
    }
    if (proc)
        closedir(proc);
}

void proc_kill_tree(struct init *in, struct proc *p)
{
    if (p->has_cgroup && (cgroup_kill(in, p->number) == 0 || !p->running))
        return;
    if (p->running)
        kill(-p->pid, SIGKILL);
    if (p->running ||
        !running_by_pid(in, p->pid)) /* once it is reaped, its number may be another's */
        kill_session(p->pid);
}

/* A tree may outlive both its first process and our record of that process: the name of the
   process's cgroup is enough to kill the tree. */
static int kill_leftover_tree(struct init *in, uint32_t number, struct cove_err *e)
{
    if (number > in->last_number || cgroup_kill(in, number) < 0)
        return cove_fail(e, COVE_NOT_FOUND, "process %u", number);
    return 0;
}

static int send_signal(struct init *in, struct proc *p, const struct box_signal *args,
                       struct cove_err *e)
{
    if (args->scope == SIGNAL_TREE) {
        proc_kill_tree(in, p);
        return 0;
    }
    if (!p->running)
        return cove_fail(e, COVE_GONE, "process %u has ended", p->number);
    if (kill(args->scope == SIGNAL_GROUP ? -p->pid : p->pid, args->signo) < 0)
        return cove_fail_errno(e, COVE_GONE, "process %u", p->number);
    return 0;
}

/* Safe: only processes that this init started, by numbers it gave out itself, can be named. */
int on_signal(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_signal *args = m->body;
    const char *label;
    struct proc *p;

    if (tail_strings(m, sizeof(*args), &label, 1) < 0 || args->scope > SIGNAL_TREE)
        return CUT_OFF;
    if (args->signo < 1 || args->signo > SIGRTMAX)
        return cove_fail(e, COVE_INVALID, "signal %d", args->signo);
    if (args->scope == SIGNAL_TREE && args->signo != SIGKILL)
        return cove_fail(e, COVE_INVALID, "a whole tree takes SIGKILL only");
    if (args->cause >= END_CAUSE_COUNT)
        return cove_fail(e, COVE_INVALID, "cause %u", args->cause);
    if (args->scope == SIGNAL_TREE && args->proc && !proc_by_number(in, args->proc)) {
        if (kill_leftover_tree(in, args->proc, e) < 0)
            return -1;
    } else {
        if (proc_find(in, args->proc, label, &p, e) < 0)
            return -1;
        if (p->running && args->cause) {
            p->kill_cause = args->cause;
            p->kill_limit = args->limit;
            p->kill_signo = args->signo;
        }
        if (send_signal(in, p, args, e) < 0)
            return -1;
    }
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}

/* --------------------------------------------------------------- asking */

static int find_ref(struct init *in, const struct msg *m, struct proc **ret, struct cove_err *e)
{
    const struct box_proc_ref *ref = m->body;
    const char *label;

    if (tail_strings(m, sizeof(*ref), &label, 1) < 0)
        return CUT_OFF;
    return proc_find(in, ref->proc, label, ret, e);
}

int on_wait(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    struct box_exited msg;
    struct proc *p;
    int r = find_ref(in, m, &p, e);

    if (r < 0)
        return r;
    if (p->running)
        return want_new(c, p, WANT_EXIT, m->head.tag, e) ? 0 : -1;
    msg = (struct box_exited){ .proc = p->number, .pid = (uint32_t)p->pid, .end = p->end };
    conn_send(c, BOX_EXITED, m->head.tag, &msg, sizeof(msg));
    return 0;
}

int on_forget(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    struct proc *p;
    int r = find_ref(in, m, &p, e);

    if (r < 0)
        return r;
    if (p->running)
        return cove_fail(e, COVE_CONFLICT, "process %u is running", p->number);
    proc_free(in, p);
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}

/* A terminal that nobody reads is full at some time: writing to it must not keep us waiting. */
static ssize_t write_at_once(int fd, const void *bytes, size_t len)
{
    int flags = fcntl(fd, F_GETFL);
    ssize_t n;

    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    n = write(fd, bytes, len);
    fcntl(fd, F_SETFL, flags); /* whoever else has a copy of it may count on waiting */
    return n;
}

/* The write end goes out as a copy; end of file is when the last copy is closed, ours included. */
int on_stdin(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_stdin *args = m->body;
    const char *label;
    struct proc *p;
    int fd;

    if (tail_strings(m, sizeof(*args), &label, 1) < 0)
        return CUT_OFF;
    if (proc_find(in, args->proc, label, &p, e) < 0)
        return -1;
    fd = p->pty >= 0 ? p->pty : p->stdin_fd;
    if (fd < 0)
        return cove_fail(e, COVE_CONFLICT, "the standard input of process %u is closed", p->number);
    if (!args->close) {
        conn_send_fd(c, MSG_DONE, m->head.tag, NULL, 0, fd);
        return 0;
    }
    if (p->pty >= 0) { /* a terminal's end of file is a character */
        if (write_at_once(p->pty, "\004", 1) < 0)
            return cove_fail_errno(e, COVE_BUSY, "process %u does not read", p->number);
    } else {
        p->stdin_fd = cove_close(p->stdin_fd);
    }
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}

/* Safe: one write that never waits, and what has no room stays with whoever sent it. */
int on_input(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_input *args = m->body;
    struct box_taken answer = { 0 };
    struct proc *p;
    ssize_t n;
    int fd;

    if (proc_find(in, args->proc, "", &p, e) < 0)
        return -1;
    fd = p->pty >= 0 ? p->pty : p->stdin_fd;
    if (fd < 0)
        return cove_fail(e, COVE_CONFLICT, "the standard input of process %u is closed", p->number);
    n = write_at_once(fd, args + 1, m->body_len - sizeof(*args));
    if (n < 0 && errno != EAGAIN)
        return cove_fail_errno(e, COVE_CONFLICT, "process %u does not read", p->number);
    answer = (struct box_taken){ .proc = p->number, .bytes = n > 0 ? (uint32_t)n : 0 };
    conn_send(c, BOX_TAKEN, m->head.tag, &answer, sizeof(answer));
    return 0;
}

int on_resize(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_resize *args = m->body;
    struct winsize size = { .ws_row = args->rows, .ws_col = args->cols };
    const char *label;
    struct proc *p;

    if (tail_strings(m, sizeof(*args), &label, 1) < 0)
        return CUT_OFF;
    if (proc_find(in, args->proc, label, &p, e) < 0)
        return -1;
    if (p->pty < 0)
        return cove_fail(e, COVE_CONFLICT, "process %u has no terminal", p->number);
    if (ioctl(p->pty, TIOCSWINSZ, &size) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "resizing a terminal");
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}

/* Safe: what a worker said of the process when it started it. */
int on_note(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    struct proc *p;
    int r = find_ref(in, m, &p, e);
    const char *note;

    if (r < 0)
        return r;
    note = p->note ? p->note : "";
    conn_send_tail(c, BOX_NOTED, m->head.tag, NULL, 0, note, strlen(note) + 1);
    return 0;
}

/* --------------------------------------------------------------- listing */

static uint64_t resident_bytes(pid_t pid)
{
    char path[32], text[64];
    AUTO_CLOSE int fd = -1;
    unsigned long pages = 0;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n > 0) {
        const char *second;

        text[n] = '\0';
        second = strchr(text, ' ');
        pages = second ? strtoul(second, NULL, 10) : 0;
    }
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Append one entry; false when it does not fit any more. */
static bool add_entry(struct init *in, const struct proc *p, char *page, size_t *len)
{
    size_t label = strlen(p->label) + 1, command = strlen(p->command) + 1;
    size_t size = (sizeof(struct box_proc) + label + command + 7) & ~(size_t)7;
    struct box_proc entry = { .size = (uint32_t)size,
                              .proc = p->number,
                              .pid = (uint32_t)p->pid,
                              .running = p->running,
                              .flags = p->flags,
                              .cpu_us = p->cpu_us,
                              .end = p->end };

    if (size > PAGE_BYTES - *len)
        return false;
    if (p->running) {
        entry.cpu_us = p->has_cgroup ? cgroup_cpu_us(in, p->number) : 0;
        entry.memory_bytes = resident_bytes(p->pid);
    }
    memset(page + *len, 0, size);
    memcpy(page + *len, &entry, sizeof(entry));
    memcpy(page + *len + sizeof(entry), p->label, label);
    memcpy(page + *len + sizeof(entry) + label, p->command, command);
    *len += size;
    return true;
}

/* Safe: one page of a bounded table. */
int on_procs(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    static char page[PAGE_BYTES];
    const struct box_procs *args = m->body;
    struct box_page head = { 0 };
    size_t len = 0;

    (void)e;
    if (args->after == UINT32_MAX)
        return CUT_OFF;
    for (size_t i = position(in, args->after + 1); i < in->proc_count; i++) {
        const struct proc *p = in->procs[i];

        if (!p->running && !(p->flags & SPAWN_RECORD))
            continue; /* only its log is still open */
        if (!add_entry(in, p, page, &len)) {
            head.more = 1;
            break;
        }
        head.count++;
        head.next = p->number;
    }
    conn_send_tail(c, BOX_PROC_LIST, m->head.tag, &head, sizeof(head), page, len);
    return 0;
}
