/* What clients ask of processes: signals, waiting, input, terminals, the list. */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

/* --------------------------------------------------------------- signals */

/* A tree may outlive both its first process and our record of that process: its cgroup is enough to kill
   the tree. */
static int kill_leftover_tree(struct init *in, uint32_t number, struct cove_err *e)
{
    if (number > in->last_number || cgroup_kill(in, number) < 0)
        return cove_fail(e, COVE_NOT_FOUND, "there is no process %u", number);
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
    if (!p->pid)
        return cove_fail(e, COVE_BUSY, "process %u has not begun yet", p->number);
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
        return cove_fail(e, COVE_INVALID, "there is no signal %d", args->signo);
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

/* A terminal that no process reads becomes full: writing to it must not make init wait. */
static ssize_t write_at_once(int fd, const void *bytes, size_t len)
{
    int flags = fcntl(fd, F_GETFL);
    ssize_t n;

    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    n = write(fd, bytes, len);
    fcntl(fd, F_SETFL,
          flags); /* others have copies of this descriptor and may rely on writes that wait */
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

/* Safe: one write that never waits. What has no room is not taken, and the sender keeps it. */
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

/* Safe: the answer is what a worker gave with the spawn. */
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
static bool add_entry(const struct init *in, const struct proc *p, char *page, size_t *len)
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
        entry.cpu_us = cgroup_cpu_us(in, &p->cgroup);
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
    const struct box_procs *args = m->body;
    struct box_page head = { 0 };
    size_t len = 0;

    (void)e;
    if (args->after == UINT32_MAX)
        return CUT_OFF;
    for (size_t i = proc_position(in, args->after + 1); i < in->proc_count; i++) {
        const struct proc *p = in->procs[i];

        if (!p->running && !(p->flags & SPAWN_RECORD))
            continue; /* only its log is still open */
        if (!add_entry(in, p, init_page, &len)) {
            head.more = 1;
            break;
        }
        head.count++;
        head.next = p->number;
    }
    conn_send_tail(c, BOX_PROC_LIST, m->head.tag, &head, sizeof(head), init_page, len);
    return 0;
}
