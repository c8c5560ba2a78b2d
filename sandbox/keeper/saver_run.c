/*
 * Processes of the saver: one for each piece of work on the files of one sandbox. The keeper starts
 * it with its order, hears of its end through a pidfd, and reads what it said before. It never waits
 * for one.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

struct saver_run {
    struct watch exit; /* its pidfd */
    int sock;
    pid_t pid;
    uint32_t box;
    saver_done done; /* NULL: nobody wants to know */
};

/* What it says are bytes of a process that read hostile files: numbers, and a digest that must look
 * like one. */
static int hear(int sock, struct saver_report *ret, struct cove_err *e)
{
    static const struct msg_rule rules[] = {
        { SAVER_REPORT, sizeof(struct saver_report), 0, 0, 0 },
        { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
        { 0 },
    };
    char buf[sizeof(struct msg_head) + sizeof(struct saver_report) + sizeof(struct cove_err)];
    struct msg m;

    if (msg_recv(sock, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, NULL) != 1)
        return cove_fail(e, COVE_INTERNAL, "the saver ended without a word");
    if (m.head.type == MSG_ERROR) {
        memcpy(e, m.body, sizeof(*e));
        cove_err_sanitize(e);
        return -1;
    }
    memcpy(ret, m.body, sizeof(*ret));
    ret->digest[SAVED_DIGEST_TEXT - 1] = '\0';
    if (strspn(ret->digest, "0123456789abcdef") != SAVED_DIGEST_TEXT - 1)
        return cove_fail(e, COVE_INTERNAL, "the saver told a digest that is none");
    return 0;
}

static void on_exit_of(struct watch *w, uint32_t events)
{
    struct saver_run *run = container_of(w, struct saver_run, exit);
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    saver_done done = run->done;
    uint32_t box = run->box;
    struct saver_report report;
    struct cove_err err = { 0 };
    int rc = hear(run->sock, &report, &err);

    (void)events;
    watch_close(&run->exit);
    waitpid(run->pid, NULL, 0);
    close(run->sock);
    free(run);
    if (done)
        done(k, box, rc == 0 ? &report : NULL, &err);
}

int saver_run_start(struct keeper *k, const struct saver_task *task, struct saver_run **ret,
                    struct cove_err *e)
{
    struct saver_order order = task->order;
    struct saver_run *run = calloc(1, sizeof(*run));
    struct boxed_args args = {
        .exe = k->saver_exe,
        .title = "cove: saver",
        .ids = task->ids,
        .in = task->in,
        .out = task->out,
        .files = task->files,
        .read_only = order.work == SAVER_PACK_TREE,
        .order_type = SAVER_ORDER,
        .order = &order,
        .order_size = sizeof(order),
        .ret_attach = &order.attach,
    };
    struct boxed b;

    if (!run)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    if (boxed_start(&args, &b, e) < 0) {
        free(run);
        return cove_context(e, "starting the saver");
    }
    *run = (struct saver_run){ .sock = b.sock, .pid = b.pid, .box = task->box, .done = task->done };
    if (watch_start(&k->loop, &run->exit, b.pidfd, EPOLLIN, on_exit_of) < 0) {
        pidfd_send_signal(b.pidfd, SIGKILL, NULL, 0);
        waitpid(b.pid, NULL, 0);
        close(b.pidfd);
        close(b.sock);
        free(run);
        return cove_fail_errno(e, COVE_INTERNAL, "watching the saver");
    }
    *ret = run;
    return 0;
}

void saver_run_abandon(struct saver_run *run)
{
    if (!run)
        return;
    run->done = NULL;
    pidfd_send_signal(run->exit.fd, SIGKILL, NULL, 0);
}
