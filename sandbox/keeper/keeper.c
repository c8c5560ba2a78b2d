/*
 * The keeper.
 *
 * privilege  root
 * does       namespaces, mounts, cgroups, time to live, warm pool, supervision, reload
 * never      parses HTTP or JSON of clients; opens a path that a sandbox has made
 *
 * Theory of operation. One thread, one epoll loop. Workers ask over SEQPACKET connections to
 * <run_dir>/keeper.sock (calls.c: everything a worker can make root do). Each box is watched
 * through a pidfd, each one being built through its ready pipe as well. What the keeper knows of
 * boxes is written through to shared memory, where workers read it without asking; commands in an
 * existing sandbox do not pass here at all. When the keeper dies nothing else does: a new one reads
 * the shared memory, opens pidfds anew and goes on (adopt.c).
 *
 * Signals: SIGTERM, SIGINT stop everything, sandboxes included; SIGQUIT stops keeper and workers
 * and leaves the sandboxes to a successor; SIGHUP reads configuration, policy and keys again.
 */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/publish.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

/* ------------------------------------------------------------------ signals */

/* Settings that cannot change while the keeper runs keep their values. The others apply to whatever is made
 * from now on. */
static void keep_fixed_settings(struct cove_config *next, const struct cove_config *now)
{
    memcpy(next->run_dir, now->run_dir, sizeof(next->run_dir));
    memcpy(next->state_dir, now->state_dir, sizeof(next->state_dir));
    memcpy(next->cgroup, now->cgroup, sizeof(next->cgroup));
    memcpy(next->worker_user, now->worker_user, sizeof(next->worker_user));
    memcpy(next->socket_group, now->socket_group, sizeof(next->socket_group));
    next->max_sandboxes = now->max_sandboxes;
    next->max_saved = now->max_saved;
    next->threads = now->threads;
    next->id_base = now->id_base;
    next->id_count = now->id_count;
}

/* Reading policies and firewall rules leaves megabytes of freed memory in the heap. Each clone() for
 * a sandbox would copy the page tables of that memory and each execve() take them down again. */
void keeper_trim_memory(void)
{
    malloc_trim(0);
}

static void reload(struct keeper *k)
{
    struct cove_config next, old = k->config;
    struct cove_err err = { 0 };

    notify_reloading(&k->notify);
    if (keeper_load_config(k, &next, &err) < 0) {
        log_error("configuration refused, the old one stays", &err);
        notify_tell(&k->notify,
                    "READY=1\nSTATUS=configuration refused at the last reload, the old one holds");
        return;
    }
    keep_fixed_settings(&next, &k->config);
    k->config = next;
    keeper_apply_log_level(&k->config);
    if (publish_all(k, &err) < 0)
        log_error("policy or keys refused, the old ones stay", &err);
    if (audit_log_open(k, &err) < 0)
        log_error("the audit log could not be opened", &err);
    keeper_setup_disk(k);
    network_setup(k);
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        k->boxes[i].save_at_ms = 0; /* save_frozen_after may have changed */
    pool_review(k);
    supervisor_reload(k, &old);
    /* The old workers finish their requests; new workers read the new configuration. */
    workers_drain_all(k);
    supervisor_start(k);
    keeper_trim_memory();
    notify_tell(&k->notify, "READY=1\nSTATUS=");
    log_event(LOG_LEVEL_INFO, "configuration reloaded");
}

static void reap_sweepers(struct keeper *k)
{
    death_reap(k);
    snapshots_reap(k);
}

void keeper_on_signal(struct watch *w, uint32_t events)
{
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    struct signalfd_siginfo info;

    (void)events;
    while (read(w->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            reap_sweepers(k);
        else if (info.ssi_signo == SIGHUP)
            reload(k);
        else
            k->end_signal = (int)info.ssi_signo;
    }
}

/* ------------------------------------------------------------------ the loop */

/* Starts our own helpers. After that the workers that an earlier keeper left may end. */
static void start_serving(struct keeper *k)
{
    supervisor_start(k);
    workers_drain_old(k);
    keeper_trim_memory();
    log_event(LOG_LEVEL_INFO, "keeper started", LOG_S("version", COVE_VERSION),
              LOG_S("run_dir", k->config.run_dir));
    notify_tell(&k->notify, "READY=1");
}

/* The moment at which something is due even if no event comes. */
static uint64_t next_due(const struct keeper *k, uint64_t next)
{
    if (k->publish_at_ms)
        next = earliest_ms(next, k->publish_at_ms);
    if (clock_boot_ms() < k->supervisor_retry_ms)
        next = earliest_ms(next, k->supervisor_retry_ms);
    return next;
}

int keeper_run(struct keeper *k)
{
    start_serving(k);
    while (!k->end_signal) {
        uint64_t next = next_due(k, expiry_tick(k)), now = clock_boot_ms();

        loop_turn(&k->loop, next > now ? (int)(next - now) : 0);
        publish_tick(k);
        if (disk_tick(&k->disk, clock_boot_ms()))
            publish_disk(k);
        network_tick(k);
        audit_log_tick(k, clock_boot_ms());
        resolver_tick(k);
        supervisor_start(k);
        notify_alive(&k->notify);
    }
    return k->end_signal;
}

/* ------------------------------------------------------------------ the end */

static void remove_run_files(const struct keeper *k)
{
    static const char *const names[] = { "keeper.sock",
                                         "fcgi.sock",
                                         "state",
                                         "state.workers",
                                         "policy",
                                         "keys",
                                         "keys.gate",
                                         "tenants",
                                         "tenants.gate",
                                         "templates",
                                         "manifests",
                                         "meters",
                                         "auth.sock",
                                         "coved.pid",
                                         "network",
                                         "disk",
                                         TOKEN_SECRET_FILE,
                                         "samples",
                                         "state" STATE_SAVED_SUFFIX,
                                         "state" STATE_SAVED_SUFFIX ".workers",
                                         "state" STATE_ENDED_SUFFIX,
                                         "state" STATE_ENDED_SUFFIX ".workers" };
    char path[256];
    int dir;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", k->config.run_dir, names[i]);
        unlink(path);
    }
    if ((dir = open(k->config.run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0) {
        sweep_tree(dir, "boxes", NULL);
        sweep_tree(dir, ATTRIBUTES_DIR, NULL);
        sweep_tree(dir, HELPERS_DIR, NULL);
        sweep_tree(dir, "profiles", NULL);
        sweep_tree(dir, "net", NULL);
        close(dir);
    }
}

void keeper_stop(struct keeper *k, int signo)
{
    k->stopping = true;
    notify_tell(&k->notify, "STOPPING=1");
    log_event(LOG_LEVEL_INFO, "keeper stopping", LOG_N("signal", signo));
    if (signo != SIGQUIT) {
        helper_signal(&k->helpers[HELPER_GATE],
                      SIGTERM); /* closes WebSockets before sandboxes end */
        saving_before_stop(k);
        death_of_all(k);
    }
    saver_run_stop(k);
    supervisor_stop(k, signo == SIGQUIT);
    snapshots_done(k, signo != SIGQUIT);
    disk_done(&k->disk, signo != SIGQUIT);
    audit_close(k->audit);
    k->audit = NULL;
    if (signo != SIGQUIT) {
        net_done(&k->net);
        cgroup_remove_all(&k->cgroups, k->config.cgroup);
        remove_run_files(k);
        fdstore_drop(&k->fdstore, "keeper");
        fdstore_drop(&k->fdstore, "fcgi-own");
    }
    boxes_done(k);
    loop_done(&k->loop);
    log_event(LOG_LEVEL_INFO, "keeper stopped");
}
