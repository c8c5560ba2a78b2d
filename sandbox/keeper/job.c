/*
 * A child process of the keeper that carries out one order and ends: a saver, age, cove-bucket, a sync, an
 * operator's command. The keeper sees its end through a pidfd, tells whoever began it, and never waits for it.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/keeper/job.h"
#include "sandbox/keeper/keeper_private.h"

static void on_exit_of(struct watch *w, uint32_t events)
{
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    struct job *j = container_of(w, struct job, exit);
    int status = -1;

    (void)events;
    watch_take(&j->news);
    watch_close(&j->exit);
    waitpid(j->pid, &status, 0);
    if (j->ended)
        j->ended(k, j, status);
    cove_close(j->sock);
    free(j);
}

static void on_news(struct watch *w, uint32_t events)
{
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    struct job *j = container_of(w, struct job, news);

    (void)events;
    if (!j->said(k, j))
        watch_take(&j->news); /* on_exit_of() comes next */
}

int job_watch(struct keeper *k, struct job *j, const struct boxed *b, struct cove_err *e)
{
    j->pid = b->pid;
    j->sock = b->sock;
    if ((!j->said || watch_start(&k->loop, &j->news, b->sock, EPOLLIN, on_news) == 0) &&
        watch_start(&k->loop, &j->exit, b->pidfd, EPOLLIN, on_exit_of) == 0)
        return 0;
    cove_fail_errno(e, COVE_INTERNAL, "watching a job");
    watch_take(&j->news);
    pidfd_send_signal(b->pidfd, SIGKILL, NULL, 0);
    waitpid(b->pid, NULL, 0);
    close(b->pidfd);
    cove_close(b->sock);
    return -1;
}

void job_abandon(struct job *j)
{
    if (!j)
        return;
    j->ended = NULL;
    watch_take(&j->news);
    pidfd_send_signal(j->exit.fd, SIGKILL, NULL, 0);
}

/* ------------------------------------------------------------------ a function in a forked child */

struct forked {
    struct job job;
    uint32_t index;
    job_done done;
};

static void on_forked_ended(struct keeper *k, struct job *j, int status)
{
    const struct forked *f = container_of(j, struct forked, job);

    f->done(k, f->index, status);
}

static int fork_child(const struct keeper *k, const struct job_child *c, struct boxed *b,
                      struct cove_err *e)
{
    b->pid = fork();
    if (b->pid == 0) {
        c->run(k, c->arg);
        _exit(127);
    }
    b->pidfd = b->pid > 0 ? pidfd_open(b->pid, 0) : -1;
    if (b->pidfd >= 0)
        return 0;
    cove_fail_errno(e, COVE_INTERNAL, "starting %s", c->name);
    if (b->pid > 0 && kill(b->pid, SIGKILL) == 0)
        waitpid(b->pid, NULL, 0);
    return -1;
}

int job_fork(struct keeper *k, const struct job_child *c, struct job **ret, struct cove_err *e)
{
    AUTO_FREE struct forked *f = calloc(1, sizeof(*f));
    struct boxed b = { .sock = -1 };

    if (!f)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    *f = (struct forked){ .job = { .ended = on_forked_ended }, .index = c->index, .done = c->done };
    if (fork_child(k, c, &b, e) < 0 || job_watch(k, &f->job, &b, e) < 0)
        return -1;
    *ret = &f->job;
    take_ptr(f);
    return 0;
}
