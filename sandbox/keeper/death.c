/* The end of a sandbox: kill, then remove control socket, cgroup and files. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"

void death_begin(struct keeper *k, uint32_t i, enum end_cause cause, uint64_t limit)
{
    struct box *b = &k->boxes[i];

    if (b->info.state != BOX_DYING) {
        b->info.end_cause = cause;
        b->info.end_limit = limit;
    }
    boxes_set_state(k, i, BOX_DYING);
    cgroup_kill_box(&k->cgroups, b->info.id);
    capture_kill(k, i);
    if (b->build.ready >= 0) {
        watch_take(&b->ready);
        b->build.ready = cove_close(b->build.ready);
    }
    if (b->build.pidfd >= 0)
        pidfd_send_signal(b->build.pidfd, SIGKILL, NULL, 0);
    else
        b->dead = true; /* it never got that far */
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
    if (b->info.state != BOX_DYING) {
        log_event(LOG_LEVEL_WARN, "sandbox lost: its init died", LOG_S("sandbox", b->info.id),
                  LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
        state_count(k->state, STATE_KEEPER, COUNT_BOXES_LOST, 1);
        waiters_fail(k, i, &gone);
        death_begin(k, i, END_GONE, 0);
    }
    b->dead = true;
    resolver_tell_gone(k, i);
    network_forget(k, i);
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
}

/* The rest of a dead box, in steps that may each be tried again: socket, cgroup, files. */
void death_remove_remains(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct cove_err err = { 0 };

    if (b->capture)
        return; /* somebody reads its files */
    b->build.files = cove_close(b->build.files);
    unlink_control_socket(k, b->info.id);
    attributes_remove(k, b->info.id);
    cgroup_kill_box(&k->cgroups, b->info.id); /* what was forked in the moment of the first kill */
    if (cgroup_remove_box(&k->cgroups, b->info.id) < 0)
        return;
    b->sweeper = disk_sweep_async(&k->disk, b->info.id, &err);
    if (b->sweeper < 0) {
        log_error("sandbox not swept", &err, LOG_S("sandbox", b->info.id));
        b->sweeper = 0;
    }
}

void death_on_sweeper(struct keeper *k, pid_t pid)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct box *b = &k->boxes[i];

        if (b->sweeper != pid)
            continue;
        if (faccessat(k->boxes_dir, b->info.id, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
            log_event(LOG_LEVEL_WARN, "sandbox not swept yet", LOG_S("sandbox", b->info.id));
            b->sweeper = 0; /* the next tick tries again */
            return;
        }
        free_slot(k, i);
        return;
    }
}

static bool anything_left(struct keeper *k)
{
    bool left = false;

    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct box *b = &k->boxes[i];
        struct pollfd p = { .fd = b->build.pidfd, .events = POLLIN };

        if (b->info.state == BOX_EMPTY)
            continue;
        left = true;
        capture_poll(k, i);
        if (!b->dead && poll(&p, 1, 0) == 1)
            death_on_exit(k, i);
        if (b->dead && !b->sweeper)
            death_remove_remains(k, i);
        if (b->sweeper && waitpid(b->sweeper, NULL, WNOHANG) == b->sweeper)
            death_on_sweeper(k, b->sweeper);
    }
    return left;
}

void death_of_all(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (k->boxes[i].info.state != BOX_EMPTY && k->boxes[i].info.state != BOX_DYING)
            death_begin(k, i, END_SERVER, 0);
    for (unsigned tries = 0; anything_left(k) && tries < 6000; tries++)
        poll(NULL, 0, 5);
}
