/* A process that carries out one order and ends: a saver, age, cove-bucket. The keeper hears of its end
 * through a pidfd and never waits for it. */
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

int job_watch(struct keeper *k, struct job *j, const struct boxed *b, watch_fn ended,
              struct cove_err *e)
{
    *j = (struct job){ .pid = b->pid, .sock = b->sock };
    if (watch_start(&k->loop, &j->exit, b->pidfd, EPOLLIN, ended) == 0)
        return 0;
    cove_fail_errno(e, COVE_INTERNAL, "watching a job");
    pidfd_send_signal(b->pidfd, SIGKILL, NULL, 0);
    waitpid(b->pid, NULL, 0);
    close(b->pidfd);
    cove_close(b->sock);
    return -1;
}

int job_reap(struct job *j)
{
    int status = -1;

    watch_close(&j->exit);
    waitpid(j->pid, &status, 0);
    j->sock = cove_close(j->sock);
    return status;
}

void job_kill(struct job *j)
{
    pidfd_send_signal(j->exit.fd, SIGKILL, NULL, 0);
}
