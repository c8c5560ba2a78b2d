/* The end of a sandbox: its processes are killed, then control socket, cgroup and files are removed. */
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

void death_begin(struct keeper *k, uint32_t i, enum end_cause cause, uint64_t limit)
{
    struct box *b = &k->boxes[i];

    if (b->info.state != BOX_DYING) {
        b->info.end_cause = cause;
        b->info.end_limit = limit;
        if (b->info.state != BOX_BUILDING)
            ended_put(k, &b->info, cause);
    }
    boxes_set_state(k, i, BOX_DYING);
    waking_on_death(k, i);
    cgroup_kill_box(&k->cgroups, b->info.id);
    capture_kill(k, i);
    if (b->build.ready >= 0) {
        watch_take(&b->ready);
        b->build.ready = cove_close(b->build.ready);
    }
    if (b->build.pidfd >= 0)
        pidfd_send_signal(b->build.pidfd, SIGKILL, NULL, 0);
    else
        b->dead = true; /* init was never started */
    boxes_file(k, i);
}

void death_on_exit(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct cove_err gone = { .code = COVE_GONE, .msg = "the sandbox ended" };

    watch_take(&b->exit);
    b->build.pidfd = cove_close(b->build.pidfd);
    fdstore_drop_box(&k->fdstore, b->info.id);
    if (b->child)
        waitpid(b->build.pid, NULL, 0);
    if (b->info.state != BOX_DYING && saving_survives(k, i)) {
        death_begin(k, i, END_SAVED, 0);
    } else if (b->info.state != BOX_DYING && !waking_lost_init(k, i)) {
        log_event(LOG_LEVEL_WARN, "sandbox lost: its init died", LOG_S("sandbox", b->info.id),
                  LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
        state_count(k->state, STATE_KEEPER, COUNT_BOXES_LOST, 1);
        waiters_fail(k, i, &gone);
        death_begin(k, i, END_GONE, 0);
    }
    b->dead = true;
    boxes_file(k, i);
    resolver_tell_gone(k, i);
    network_forget(k, i);
    if (!b->saving)
        waiters_answer(k, i, MSG_DONE, NULL, 0);
}

static void unlink_control_socket(const struct keeper *k, const char *id)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/boxes/%s", k->config.run_dir, id);
    unlink(path);
}

static void free_slot(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];

    assert(b->info.state == BOX_DYING && b->dead && !b->saving && !b->capture);
    b->info = (struct box_info){
        .state = BOX_EMPTY,
        .generation = b->info.generation,
        .end_cause = b->info.end_cause, /* workers look these two up after the sandbox has gone */
        .end_limit = b->info.end_limit,
    };
    b->sweeper = 0;
    b->dead = false;
    b->promised = false;
    boxes_save(k, i);
    k->wakes_due = true;
}

/* The first steps of removing a dead sandbox. Each of them may be repeated. False: it is too early, and the
 * next tick tries again. */
static bool prepare_sweep(struct keeper *k, struct box *b)
{
    if (b->capture || b->saving)
        return false; /* its files are still being read */
    b->build.files = cove_close(b->build.files);
    unlink_control_socket(k, b->info.id);
    if (!saved_knows(k, b->info.id) && !ended_knows(k, b->info.id))
        attributes_remove(k, b->info.id);
    cgroup_kill_box(&k->cgroups, b->info.id); /* processes that were forked during the first kill */
    return cgroup_remove_box(&k->cgroups, b->info.id) == 0;
}

/* Dead sandboxes whose cgroups are gone, as many as one child process takes. */
static unsigned collect(struct keeper *k, struct box *batch[SWEEP_BATCH])
{
    struct box *b = TAILQ_FIRST(&k->found.places[PLACE_DEAD]);
    unsigned count = 0;

    for (; b && count < SWEEP_BATCH; b = TAILQ_NEXT(b, in_place))
        if (prepare_sweep(k, b))
            batch[count++] = b;
    return count;
}

static pid_t *free_sweeper(struct keeper *k)
{
    for (size_t i = 0; i < SWEEPERS_MAX; i++)
        if (k->sweepers[i] == 0)
            return &k->sweepers[i];
    return NULL;
}

/* Sandboxes that die together are swept by one child process: with thousands of them the forks would cost
 * most. */
void death_remove_remains(struct keeper *k)
{
    struct box *batch[SWEEP_BATCH];
    const char *ids[SWEEP_BATCH];
    struct cove_err err = { 0 };
    pid_t *sweeper = free_sweeper(k), pid;
    unsigned count = sweeper ? collect(k, batch) : 0;

    if (count == 0)
        return;
    for (unsigned i = 0; i < count; i++)
        ids[i] = batch[i]->info.id;
    pid = disk_sweep_async(&k->disk, ids, count, &err);
    if (pid < 0) {
        log_error("sandboxes not swept", &err, LOG_N("count", count));
        return;
    }
    *sweeper = pid;
    for (unsigned i = 0; i < count; i++) {
        batch[i]->sweeper = pid;
        boxes_file(k, (uint32_t)(batch[i] - k->boxes));
    }
}

static void on_swept(struct keeper *k, pid_t pid)
{
    struct box *b = TAILQ_FIRST(&k->found.places[PLACE_DYING]), *next;

    for (; b; b = next) {
        next = TAILQ_NEXT(b, in_place);
        if (b->sweeper != pid)
            continue;
        b->sweeper = 0;
        if (faccessat(k->boxes_dir, b->info.id, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
            free_slot(k, (uint32_t)(b - k->boxes));
            continue;
        }
        log_event(LOG_LEVEL_WARN, "sandbox not swept yet", LOG_S("sandbox", b->info.id));
        boxes_file(k, (uint32_t)(b - k->boxes)); /* the next tick tries again */
    }
}

void death_reap(struct keeper *k)
{
    for (size_t i = 0; i < SWEEPERS_MAX; i++) {
        pid_t pid = k->sweepers[i];

        if (pid > 0 && waitpid(pid, NULL, WNOHANG) == pid) {
            k->sweepers[i] = 0;
            on_swept(k, pid);
        }
    }
}

/* ------------------------------------------------------------------ the end of all */

static void look_for_exits(struct keeper *k)
{
    struct box *b = TAILQ_FIRST(&k->found.places[PLACE_DYING]), *next;

    for (; b; b = next) {
        struct pollfd p = { .fd = b->build.pidfd, .events = POLLIN };

        next = TAILQ_NEXT(b, in_place);
        capture_poll(k, (uint32_t)(b - k->boxes));
        if (!b->dead && poll(&p, 1, 0) == 1)
            death_on_exit(k, (uint32_t)(b - k->boxes));
    }
}

static bool anything_left(struct keeper *k)
{
    look_for_exits(k);
    death_remove_remains(k);
    death_reap(k);
    return k->found.counts[PLACE_FREE] < state_box_count(k->state);
}

void death_of_all(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (k->boxes[i].info.state != BOX_EMPTY && k->boxes[i].info.state != BOX_DYING)
            death_begin(k, i, END_SERVER, 0);
    for (unsigned tries = 0; anything_left(k) && tries < 6000; tries++)
        poll(NULL, 0, 5);
}
