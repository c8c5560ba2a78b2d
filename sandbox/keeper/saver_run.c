/*
 * Processes of the saver: one for each piece of work on the files of one sandbox. The keeper starts
 * it with its order, hears of its end through a pidfd, and reads what it said before. It never waits
 * for one.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "cove/weak.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

struct saver_run {
    struct job job;
    uint32_t box;
    saver_done done;
};

/* The saver has read hostile files, so its report is checked: numbers, and a digest that must look like one. */
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
        return cove_fail(e, COVE_INTERNAL, "the saver ended without saying why");
    if (m.head.type == MSG_ERROR)
        return msg_raise(&m, e);
    memcpy(ret, m.body, sizeof(*ret));
    ret->digest[SAVED_DIGEST_TEXT - 1] = '\0';
    if (strspn(ret->digest, "0123456789abcdef") != SAVED_DIGEST_TEXT - 1)
        return cove_fail(e, COVE_INTERNAL, "the saver reported something that is no digest");
    return 0;
}

static void on_ended(struct keeper *k, struct job *j, int status)
{
    const struct saver_run *run = container_of(j, struct saver_run, job);
    struct saver_report report;
    struct cove_err err = { 0 };
    int rc = hear(j->sock, &report, &err);

    (void)status;
    run->done(k, run->box, rc == 0 ? &report : NULL, &err);
}

int saver_run_start(struct keeper *k, const struct saver_task *task, struct job **ret,
                    struct cove_err *e)
{
    struct saver_order order = task->order;
    AUTO_FREE struct saver_run *run = calloc(1, sizeof(*run));
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
    *run = (struct saver_run){ .job = { .ended = on_ended }, .box = task->box, .done = task->done };
    if (boxed_start(&args, &b, e) < 0)
        /* cppcheck-suppress memleak ; run frees itself */
        return cove_context(e, "starting the saver");
    if (job_watch(k, &run->job, &b, e) < 0)
        return -1;
    *ret = &run->job;
    take_ptr(run);
    return 0;
}

/*
 * A saver keeps a cpu busy: of those that pack and of those that unpack two for each cpu run at a time, half
 * of them for one tenant at most. The rest wait. A tenant that pauses or wakes hundreds of sandboxes at
 * once waits for them, and nobody else does.
 */
bool saver_run_has_place(const struct keeper *k, const char *tenant, saver_has has)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned most = cpus > 0 ? 2 * (unsigned)cpus : 2, all = 0, own = 0;

    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        if (!has(&k->boxes[i]))
            continue;
        all++;
        own += strcmp(k->boxes[i].info.tenant, tenant) == 0;
    }
    return (all < most && own < most / 2) || weak("places");
}
