/* Processes of a sandbox: the table of them, and how they end. */
#include "config.h" /* _GNU_SOURCE */

#include <assert.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

/* --------------------------------------------------------------- the table */

size_t proc_position(const struct init *in, uint32_t number)
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
    size_t at = proc_position(in, number);

    return at < in->proc_count && in->procs[at]->number == number ? in->procs[at] : NULL;
}

int proc_find(struct init *in, uint32_t number, const char *label, struct proc **ret,
              struct cove_err *e)
{
    if (number) {
        *ret = proc_by_number(in, number);
        return *ret ? 0 : cove_fail(e, COVE_NOT_FOUND, "there is no process %u", number);
    }
    for (size_t i = in->proc_count; *label && i > 0; i--)
        if (strcmp(in->procs[i - 1]->label, label) == 0) {
            *ret = in->procs[i - 1];
            return 0;
        }
    return cove_fail(e, COVE_NOT_FOUND, "there is no process '%.100s'", label);
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
    assert(!p->number && p->running);
    p->number = ++in->last_number;
    in->procs[in->proc_count++] = p;
    TAILQ_INSERT_TAIL(&in->running, p, link);
    return 0;
}

void proc_rest(struct init *in)
{
    if (in->proc_count > 0)
        return;
    free(in->procs);
    in->procs = NULL;
    in->proc_room = 0;
}

static void unlink_from_table(struct init *in, struct proc *p)
{
    size_t at = proc_position(in, p->number);

    if (at == in->proc_count || in->procs[at] != p)
        return;
    memmove(&in->procs[at], &in->procs[at + 1], (--in->proc_count - at) * sizeof(*in->procs));
    if (p->running || !(p->flags & SPAWN_RECORD)) {
        TAILQ_REMOVE(&in->running, p, link);
    } else {
        TAILQ_REMOVE(&in->finished, p, link);
        assert(in->finished_count > 0 && in->finished_ring_bytes >= p->kept_bytes);
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
    judge_proc_ended(in, p); /* for a command whose start has failed */
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
    proc_tell_cause(in, p);
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
    tell_waiting(p); /* told before the tidying up that follows, which nobody should wait for */
    if (p->flags & SPAWN_RECORD)
        p->cpu_us = cgroup_cpu_us(in, &p->cgroup);
    judge_proc_ended(in, p);
    cgroup_leave(in, p->number, &p->cgroup);
    spare_after_end(in);
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
        if (!p) {
            starts_learn_pids(in);
            p = running_by_pid(in, pid);
        }
        if (p && p->start)
            start_proc_ended(in, p, status); /* it never got to its execve */
        else if (p)
            proc_ended(in, p, status);
    }
    cgroup_sweep(in);
}

/* --------------------------------------------------------------- killing */

/*
 * Without cgroups all that is known of a tree is the session of its first process: the processes of
 * that session are killed. A process that called setsid() itself escapes this. It is the fallback
 * for tests and for hosts without cgroup v2, not what is promised.
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
    if (p->cgroup.name && (cgroup_kill(in, p->number) == 0 || !p->running))
        return;
    if (!p->pid)
        return; /* as soon as its pid is known it is killed again */
    if (p->running)
        kill(-p->pid, SIGKILL);
    if (p->running ||
        !running_by_pid(in,
                        p->pid)) /* a process that was reaped may have left its pid to another */
        kill_session(p->pid);
}
