/*
 * Processes of the saver: one for each piece of work on the files of one sandbox. The keeper hears from it by messages, and
 * of its end through a pidfd. It never waits for one.
 *
 * To start one takes longer than to pack a small sandbox. So one is started ahead, a spare: it has its namespaces and
 * libraries and waits for its order. It has no ids of a sandbox before the order comes, and it takes only one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "cove/weak.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/store.h"

enum {
    SPARE_AFTER_MS = 50, /* so that the next spare does not take a cpu from the saver at work */
    SPARE_RETRY_MS = 10000,
};

struct saver_run {
    struct job job;
    uint32_t box;
    saver_done done;     /* NULL: it is the spare */
    saver_synced synced; /* NULL: it ends after its report */
    bool has_reported;
};

/* ------------------------------------------------------------------ what it says */

/* The saver has read hostile files, so its report is checked: numbers, and a digest that must look like one. */
static int check_report(struct saver_report *r, struct cove_err *e)
{
    r->digest[SAVED_DIGEST_TEXT - 1] = '\0';
    if (strspn(r->digest, "0123456789abcdef") != SAVED_DIGEST_TEXT - 1)
        return cove_fail(e, COVE_INTERNAL, "the saver reported something that is no digest");
    return 0;
}

/* 1: a message, which is *ret or, with *ret NULL, the error *err. 0: there is none. */
static int hear(int sock, struct saver_report *report, const struct saver_report **ret,
                struct cove_err *err)
{
    static const struct msg_rule rules[] = {
        { SAVER_REPORT, sizeof(struct saver_report), 0, 0, 0 },
        { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
        { 0 },
    };
    char buf[sizeof(struct msg_head) + sizeof(struct saver_report) + sizeof(struct cove_err)];
    struct msg m;

    *ret = NULL;
    if (msg_recv(sock, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, NULL) != 1)
        return 0;
    if (m.head.type == MSG_ERROR) {
        msg_raise(&m, err);
        return 1;
    }
    memcpy(report, m.body, sizeof(*report));
    if (check_report(report, err) == 0)
        *ret = report;
    return 1;
}

/* The first message is the report on its order. It repeats the report when it has synced something. */
static bool on_said(struct keeper *k, struct job *j)
{
    struct saver_run *run = container_of(j, struct saver_run, job);
    const struct saver_report *said;
    struct saver_report report;
    struct cove_err err = { 0 };

    if (!run->done || !hear(j->sock, &report, &said, &err))
        return false;
    if (!run->has_reported) {
        run->has_reported = true;
        run->done(k, run->box, said, &err);
    } else if (run->synced) {
        run->synced(k, run->box, said ? NULL : &err);
    }
    return true;
}

static void on_ended(struct keeper *k, struct job *j, int status)
{
    struct saver_run *run = container_of(j, struct saver_run, job);
    struct cove_err err = { 0 };

    (void)status;
    if (!run->done) {
        k->spare_saver = NULL;
        k->spare_due_ms = clock_boot_ms() + SPARE_RETRY_MS;
        log_event(LOG_LEVEL_WARN, "the spare saver has ended by itself");
        return;
    }
    while (j->ended && on_said(k, j))
        continue;
    if (!j->ended)
        return; /* whoever began it was told, and does not want to hear more */
    cove_fail(&err, COVE_INTERNAL, "the saver ended without saying why");
    if (!run->has_reported)
        run->done(k, run->box, NULL, &err);
    else if (run->synced)
        run->synced(k, run->box, &err);
}

/* ------------------------------------------------------------------ starting one */

static int start(struct keeper *k, uid_t owner, struct saver_run **ret, struct cove_err *e)
{
    const struct boxed_program program = { k->saver_exe, "cove: spare saver" };
    AUTO_FREE struct saver_run *run = calloc(1, sizeof(*run));
    struct boxed b;

    if (!run)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    run->job = (struct job){ .said = on_said, .ended = on_ended };
    if (boxed_start(&program, owner, &b, e) < 0)
        /* cppcheck-suppress memleak ; run frees itself */
        return -1;
    if (job_watch(k, &run->job, &b, e) < 0)
        return -1;
    *ret = take_ptr(run);
    return 0;
}

static int give_order(struct saver_run *run, const struct saver_task *task, struct cove_err *e)
{
    struct saver_order work = task->order;
    const struct boxed_order order = {
        .ids = task->ids,
        .in = task->in,
        .out = task->out,
        .files = task->files,
        .read_only = work.work == SAVER_PACK_TREE,
        .type = SAVER_ORDER,
        .body = &work,
        .size = sizeof(work),
        .ret_attach = &work.attach,
    };

    work.stays = task->synced != NULL;
    if (boxed_order(run->job.pid, run->job.sock, &order, e) < 0) {
        job_abandon(&run->job);
        return -1;
    }
    run->box = task->box;
    run->done = task->done;
    run->synced = task->synced;
    return 0;
}

static bool has_died(const struct saver_run *run)
{
    struct pollfd exit = { .fd = run->job.exit.fd, .events = POLLIN };

    return poll(&exit, 1, 0) != 0;
}

/* A spare that is dead or does not take its order is given up, and another saver is started. */
int saver_run_start(struct keeper *k, const struct saver_task *task, struct job **ret,
                    struct cove_err *e)
{
    struct saver_run *run = k->spare_saver;

    k->spare_saver = NULL;
    k->spare_due_ms = clock_boot_ms() + SPARE_AFTER_MS;
    if (run && has_died(run)) {
        job_abandon(&run->job);
        run = NULL;
    }
    if ((!run || give_order(run, task, NULL) < 0) &&
        (start(k, task->ids.base, &run, e) < 0 || give_order(run, task, e) < 0))
        return cove_context(e, "starting the saver");
    *ret = &run->job;
    return 0;
}

uint64_t saver_run_tick(struct keeper *k, uint64_t now, uint64_t next)
{
    struct cove_err err = { 0 };

    if (k->spare_saver || k->stopping || saved_places(k) == 0)
        return next;
    if (now < k->spare_due_ms)
        return earliest_ms(next, k->spare_due_ms);
    if (start(k, (uid_t)k->config.id_base, &k->spare_saver, &err) == 0)
        return next;
    log_error("no spare saver", &err);
    k->spare_due_ms = now + SPARE_RETRY_MS;
    return earliest_ms(next, k->spare_due_ms);
}

void saver_run_stop(struct keeper *k)
{
    if (k->spare_saver)
        job_abandon(&k->spare_saver->job);
    k->spare_saver = NULL;
}

/* ------------------------------------------------------------------ syncing */

/* The files of a directory, as far as they exist, and last the directory itself. */
static int open_names(int dir, const char *const *names, int fds[SAVER_SYNC_MAX], size_t *ret,
                      struct cove_err *e)
{
    *ret = 0;
    for (; *names && *ret < SAVER_SYNC_MAX - 1; names++) {
        int fd = openat(dir, *names, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd >= 0)
            fds[(*ret)++] = fd;
        else if (errno != ENOENT)
            return cove_fail_errno(e, COVE_LIMIT, "%s", *names);
    }
    fds[*ret] = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    if (*names || fds[*ret] < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "files to sync");
    (*ret)++;
    return 0;
}

int saver_run_sync(struct job *j, int dir, const char *const *names, struct cove_err *e)
{
    int fds[SAVER_SYNC_MAX];
    size_t count;
    int rc = open_names(dir, names, fds, &count, e);

    if (rc == 0)
        rc = msg_send(j->sock, &(struct msg_out){ SAVER_SYNC, .fds = fds, .fd_count = count },
                      MSG_DONTWAIT, e);
    while (count > 0)
        close(fds[--count]);
    return rc;
}

/* ------------------------------------------------------------------ turns */

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
