/* Background processes: started here, kept by the sandbox's init, so they and their logs outlive
 * every worker. */
#include <signal.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/core.h"

/* How long init may take to tell of the end of a process that has ended or was killed. */
enum { REPORT_MS = 2000 };

int core_spawn(struct core_session *s, const struct core_spawn *args, struct box_spawned *ret,
               struct cove_err *e)
{
    AUTO_FREE const char **argv = NULL;
    struct spawn_args spawn = {
        .user = args->user ? args->user : core_default_user(s),
        .cwd = args->cwd ? args->cwd : core_workdir(s),
        .label = args->label,
        .note = args->note,
        .env = args->env,
        .base_env = core_base_env(s),
        .common_env = s->core->config->environment,
        .flags = SPAWN_LOG | SPAWN_RECORD | (args->keep_stdin ? SPAWN_STDIN : 0) |
                 (args->pty ? SPAWN_PTY : 0) | (args->whole ? SPAWN_HOLD : 0) |
                 (args->filter->exec_time ? SPAWN_NOTIFY : 0),
        .rows = args->rows,
        .cols = args->cols,
        .context = args->dialect,
        .timeout_ms = args->timeout_ms,
        .stdin_fd = -1,
        .stdout_fd = -1,
        .stderr_fd = -1,
        .filter_fd = args->filter->fd,
        .log_bytes = s->limits.log_max_bytes,
        .max_open_files = s->limits.open_files_max,
        .max_file_bytes = s->limits.file_max_bytes,
    };

    if (caller_may_spawn(s->core, s->tenant, e) < 0)
        return -1;
    spawn.argv = core_argv(s, args->argv, &argv);
    if (box_spawn(&s->conn, &spawn, ret, NULL, e) < 0)
        return -1;
    core_count(s->core, COUNT_SPAWNS, 1);
    return 0;
}

/* Waits until init reports the end of `proc`. Other events of this conversation are ignored. */
static int await_end(struct core_session *s, uint32_t proc, struct cove_end *ret,
                     struct cove_err *e)
{
    uint64_t until = clock_boot_ms() + REPORT_MS, now;

    while ((now = clock_boot_ms()) < until) {
        struct box_event event;
        int n = box_next_event(&s->conn, (int)(until - now), &event, e);

        if (n < 0)
            return -1;
        if (n > 0 && event.kind == BOX_EVENT_EXITED && event.exited.proc == proc) {
            *ret = event.exited.end;
            return 0;
        }
    }
    s->conn.unanswered = true;
    return cove_fail(e, COVE_GONE, "the sandbox does not answer");
}

int core_proc_find(struct core_session *s, const char *label, struct core_proc *ret,
                   struct cove_err *e)
{
    struct box_log_opened opened;
    struct core_proc p;
    int ring;

    if (!*label)
        return cove_fail(e, COVE_NOT_FOUND, "there is no process ''");
    /* The log is asked for because every background process has one, and init finds it by the label. */
    if (box_log(&s->conn, 0, label, &opened, &ring, e) < 0)
        return -1;
    cove_close(ring);
    p = (struct core_proc){ .proc = opened.proc, .running = opened.running };
    if (!p.running &&
        (box_wait(&s->conn, p.proc, NULL, e) < 0 || await_end(s, p.proc, &p.end, e) < 0))
        return -1;
    *ret = p;
    return 0;
}

int core_proc_kill(struct core_session *s, struct core_proc *p, struct cove_err *e)
{
    struct box_signal order = {
        .proc = p->proc,
        .scope = SIGNAL_TREE,
        .signo = SIGKILL,
        .cause = END_KILLED,
    };

    if (box_wait(&s->conn, p->proc, NULL, e) < 0 || box_signal(&s->conn, &order, NULL, e) < 0)
        return -1;
    if (await_end(s, p->proc, &p->end, e) < 0)
        return -1;
    p->running = false;
    return 0;
}

int core_proc_signal(struct core_session *s, const struct core_proc *p, int signo,
                     struct cove_err *e)
{
    struct box_signal order = { .proc = p->proc, .scope = SIGNAL_GROUP, .signo = signo };

    return box_signal(&s->conn, &order, NULL, e);
}

/* Processes that it left running are killed with it, because no client could name them any more. */
int core_proc_forget(struct core_session *s, const struct core_proc *p, struct cove_err *e)
{
    struct box_signal order = { .proc = p->proc, .scope = SIGNAL_TREE, .signo = SIGKILL };

    if (box_forget(&s->conn, p->proc, NULL, e) < 0)
        return -1;
    /* init knows the process's tree also when its record is gone */
    box_signal(&s->conn, &order, NULL, NULL);
    return 0;
}
