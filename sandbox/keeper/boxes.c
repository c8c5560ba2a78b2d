/* The life of sandboxes: claim, pool, expiry, death. The arrows between states are drawn in
 * README.md. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

enum { POOL_RETRY_MS = 1000, POOL_PAUSE_MS = 150, REMOVE_RETRY_MS = 20, IDLE_TICK_MS = 1000 };

static void save(struct keeper *k, uint32_t i)
{
    state_box_write(k->state, i, &k->boxes[i].info);
}

static void set_state(struct keeper *k, uint32_t i, enum box_state state)
{
    k->boxes[i].info.state = state;
    save(k, i);
}

/* ------------------------------------------------------------------ waiters */

static void add_waiter(struct box *b, const struct waiter *w)
{
    struct waiter *copy = malloc(sizeof(*copy));

    if (!copy)
        return; /* the client runs into its own deadline */
    *copy = *w;
    copy->next = b->waiters;
    b->waiters = copy;
}

/* Answer all who wait for this box, and forget them. err NULL: with the box (or with "done" once it
 * dies). */
static void answer_waiters(struct keeper *k, uint32_t i, uint32_t type, const void *body,
                           size_t len, const struct cove_err *err)
{
    struct box *b = &k->boxes[i];

    while (b->waiters) {
        struct waiter *w = b->waiters;

        b->waiters = w->next;
        if (err)
            keeper_answer_error(k, w, err);
        else
            keeper_answer(k, w, type, body, len);
        free(w);
    }
}

void boxes_forget_client(struct keeper *k, uint32_t client)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct waiter **at = &k->boxes[i].waiters;

        while (*at) {
            struct waiter *w = *at;

            if (w->client == client) {
                *at = w->next;
                free(w);
            } else {
                at = &w->next;
            }
        }
    }
}

static void answer_box(struct keeper *k, uint32_t i, bool created)
{
    const struct box_info *info = &k->boxes[i].info;
    struct keeper_box reply = { .index = i, .generation = info->generation, .created = created };

    text_copy(reply.id, sizeof(reply.id), info->id);
    answer_waiters(k, i, KEEPER_BOX, &reply, sizeof(reply), NULL);
}

/* ------------------------------------------------------------------ building */

static bool ids_free(const struct keeper *k, uint32_t base, uint32_t count)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        const struct box_info *o = &k->boxes[i].info;

        if (o->state != BOX_EMPTY && o->id_base < base + count && base < o->id_base + count)
            return false;
    }
    return true;
}

/* The next one round the table, so that what the kernel takes away of a sandbox in the background
 * (its interface above all) is gone when the slot's turn comes again: waiting for that costs more
 * than all the rest. A slot whose id range nobody has: its own, unless id_base was changed under
 * living sandboxes. */
static int find_slot(struct keeper *k, uint32_t *ret, struct id_range *ret_ids)
{
    const struct cove_config *c = &k->config;
    uint32_t count = state_box_count(k->state);

    if (count > c->max_sandboxes)
        count = (uint32_t)c->max_sandboxes;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = (k->next_slot + n) % count;
        struct id_range ids = { (uint32_t)(c->id_base + i * c->id_count), (uint32_t)c->id_count };

        if (k->boxes[i].info.state != BOX_EMPTY || !ids_free(k, ids.base, ids.count))
            continue;
        *ret = i;
        *ret_ids = ids;
        k->next_slot = i + 1;
        return 0;
    }
    return -1;
}

static int attach_network(const void *net, uint32_t slot, pid_t pid, struct cove_err *e)
{
    return net_attach(net, slot, pid, e);
}

static int enter_network(const void *net, uint32_t slot, struct cove_err *e)
{
    return net_enter(net, slot, e);
}

static int start_build(struct keeper *k, uint32_t i, const struct id_range *ids,
                       const char *template_name, struct cove_err *e)
{
    struct box *b = &k->boxes[i];
    struct template template = { -1, -1 };
    struct cgroup_limits limits = allot_cgroup(&b->limits);
    struct build_args args = {
        .cgroups = &k->cgroups,
        .limits = &limits,
        .template = &template,
        .id = b->info.id,
        .run_dir = k->config.run_dir,
        .boxes_dir = k->boxes_dir,
        .init_exe = k->init_exe,
        .worker_gid = k->worker_gid,
        .ids = *ids,
        .disk = &k->disk,
        .disk_size = { b->limits.disk_max_bytes, b->limits.inodes_max },
        .network = { &k->net, attach_network, enter_network },
        .slot = i,
        .cpus = allot_cpus(&b->limits),
    };
    int rc;

    if (template_open(k->state_dir, template_name, &template, e) < 0)
        return -1;
    rc = build_start(&args, &b->build, e);
    template_close(&template);
    return rc;
}

static int watch_build(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct build *build = &k->boxes[i].build;

    if (keeper_watch(k, build->pidfd, SRC_BOX_PID, i, e) < 0)
        return -1;
    return keeper_watch(k, build->ready, SRC_BOX_READY, i, e);
}

/* Begin a new box in a free slot. On failure the slot is swept and free again in time. */
static int begin_box(struct keeper *k, const char *template_name, const struct limits *limits,
                     uint32_t *ret, struct cove_err *e)
{
    struct id_range ids;
    struct box *b;
    uint32_t i, generation;

    if (find_slot(k, &i, &ids) < 0)
        return cove_fail(e, COVE_BUSY, "all %llu sandboxes are in use",
                         (unsigned long long)k->config.max_sandboxes);
    b = &k->boxes[i];
    generation = b->info.generation + 1;
    *b = (struct box){ .build = { -1, -1, -1 }, .child = true, .limits = *limits };
    b->info = (struct box_info){
        .state = BOX_BUILDING,
        .generation = generation,
        .id_base = ids.base,
    };
    text_new_id(b->info.id);
    text_copy(b->info.template, sizeof(b->info.template), template_name);
    b->build_began_ms = clock_boot_ms();
    save(k, i);
    if (start_build(k, i, &ids, template_name, e) < 0 || watch_build(k, i, e) < 0) {
        boxes_destroy(k, i);
        return -1;
    }
    b->info.init_pid = (uint32_t)b->build.pid;
    b->info.init_start = process_start_time(b->build.pid);
    save(k, i);
    *ret = i;
    return 0;
}

/* ------------------------------------------------------------------ claims */

static bool belongs_to(const struct box_info *b, const char *tenant, const char *project)
{
    return strcmp(b->tenant, tenant) == 0 && strcmp(b->project, project) == 0;
}

/* The project's current box: live, frozen, or promised and still being built. */
static int find_current(const struct keeper *k, const char *tenant, const char *project,
                        uint32_t *ret)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        const struct box *b = &k->boxes[i];
        bool current = b->info.state == BOX_LIVE || b->info.state == BOX_FROZEN ||
                       (b->info.state == BOX_BUILDING && b->promised);

        if (current && !b->dead && belongs_to(&b->info, tenant, project)) {
            *ret = i;
            return 0;
        }
    }
    return -1;
}

/* One that nobody has, ready or at least begun, and that can be brought to these limits. */
static int find_spare(const struct keeper *k, enum box_state state, const char *template_name,
                      const struct limits *limits, uint32_t *ret)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        const struct box *b = &k->boxes[i];

        if (b->info.state == state && !b->promised && !b->dead &&
            strcmp(b->info.template, template_name) == 0 && allot_fits(&b->limits, limits)) {
            *ret = i;
            return 0;
        }
    }
    return -1;
}

/* A box becomes a project's. While it is being built this is a promise; its time begins when it is
 * live. */
static void give_to(struct keeper *k, uint32_t i, const struct keeper_claim *args,
                    const struct limits *limits)
{
    struct box *b = &k->boxes[i];

    text_copy(b->info.tenant, sizeof(b->info.tenant), args->tenant);
    text_copy(b->info.project, sizeof(b->info.project), args->project);
    b->lifetime_ms = args->lifetime_ms ? args->lifetime_ms : k->config.lifetime_ms;
    b->reuse_ms = args->reuse_ms ? args->reuse_ms : k->config.reuse_ms;
    b->wanted = *limits;
    b->promised = true;
}

/* Its claimant's limits, before the first command. */
static int take_limits(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];

    if (allot_apply(k, b, &b->wanted, e) == 0 && network_allot(k, i, e) == 0)
        return 0;
    log_error("sandbox not given out", e, LOG_S("sandbox", b->info.id));
    answer_waiters(k, i, 0, NULL, 0, e);
    boxes_destroy(k, i);
    return -1;
}

static void go_live(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    uint64_t now = clock_boot_ms();
    struct cove_err err = { 0 };

    if (take_limits(k, i, &err) < 0)
        return;
    k->pool_pause_ms = now + POOL_PAUSE_MS;
    b->info.created_unix_ms = clock_unix_ms();
    b->info.created_ms = now;
    b->info.reuse_until_ms = now + b->reuse_ms;
    b->info.dies_at_ms = now + b->lifetime_ms;
    set_state(k, i, BOX_LIVE);
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_CLAIMED, 1);
    log_event(LOG_LEVEL_INFO, "sandbox claimed", LOG_S("sandbox", b->info.id),
              LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
    answer_box(k, i, true);
}

/* Freeze or thaw; what stands still half-way is set going again. */
static int set_frozen(struct keeper *k, uint32_t i, bool freeze, struct cove_err *e)
{
    const char *id = k->boxes[i].info.id;

    if (cgroup_freeze_box(&k->cgroups, id, freeze, e) < 0) {
        cgroup_freeze_box(&k->cgroups, id, !freeze, NULL);
        return -1;
    }
    set_state(k, i, freeze ? BOX_FROZEN : BOX_LIVE);
    return 0;
}

/* Whoever uses a paused sandbox sets it going again. */
static int thaw(struct keeper *k, uint32_t i, struct cove_err *e)
{
    return k->boxes[i].info.state == BOX_FROZEN ? set_frozen(k, i, false, e) : 0;
}

static bool still_reusable(const struct box *b)
{
    return b->info.state == BOX_FROZEN || clock_boot_ms() < b->info.reuse_until_ms;
}

static void supersede(struct keeper *k, uint32_t i)
{
    log_event(LOG_LEVEL_INFO, "sandbox ageing", LOG_S("sandbox", k->boxes[i].info.id));
    set_state(k, i, BOX_AGEING);
}

void boxes_claim(struct keeper *k, const struct keeper_claim *args, const struct waiter *w)
{
    const char *template_name = args->template[0] ? args->template : k->config.template;
    struct cove_err err = { 0 };
    struct limits limits;
    bool outlived = false;
    uint32_t i, old = 0;

    if (find_current(k, args->tenant, args->project, &i) == 0) {
        bool building = k->boxes[i].info.state == BOX_BUILDING;

        if (building || (still_reusable(&k->boxes[i]) && !(args->flags & CLAIM_FRESH))) {
            if (thaw(k, i, &err) < 0) {
                keeper_answer_error(k, w, &err);
                return;
            }
            add_waiter(&k->boxes[i], w);
            if (!building)
                answer_box(k, i, false);
            return;
        }
        outlived = true;
        old = i;
    }
    if (quota_check_claim(k, args, &err) < 0) {
        keeper_answer_error(k, w, &err);
        return;
    }
    if (outlived)
        supersede(k, old);
    allot_resolve(k, template_name, args->tenant, &limits);
    if (find_spare(k, BOX_WARM, template_name, &limits, &i) == 0) {
        give_to(k, i, args, &limits);
        add_waiter(&k->boxes[i], w);
        go_live(k, i);
        return;
    }
    if (find_spare(k, BOX_BUILDING, template_name, &limits, &i) < 0 &&
        begin_box(k, template_name, &limits, &i, &err) < 0) {
        log_error("sandbox not created", &err, LOG_S("tenant", args->tenant),
                  LOG_S("project", args->project));
        keeper_answer_error(k, w, &err);
        return;
    }
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_CLAIMED_COLD, 1);
    give_to(k, i, args, &limits);
    add_waiter(&k->boxes[i], w);
}

/* A spare one of another size than spares have now is of no use to most. */
static void review_one(struct keeper *k, uint32_t i)
{
    const struct box *b = &k->boxes[i];
    struct limits limits;

    if (b->info.state != BOX_WARM)
        return;
    allot_resolve(k, b->info.template, "", &limits);
    if (!allot_fits(&b->limits, &limits))
        boxes_destroy(k, i);
}

void boxes_review_warm(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        review_one(k, i);
}

void boxes_on_ready(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct cove_err err = { 0 };

    keeper_unwatch(k, b->build.ready);
    if (build_finish(&b->build, &err) < 0) {
        log_error("sandbox not created", &err, LOG_S("sandbox", b->info.id));
        answer_waiters(k, i, 0, NULL, 0, &err);
        k->pool_retry_ms = clock_boot_ms() + POOL_RETRY_MS;
        boxes_destroy(k, i);
        return;
    }
    if (b->info.state != BOX_BUILDING)
        return; /* it was told to die meanwhile */
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_BUILT, 1);
    log_event(LOG_LEVEL_DEBUG, "sandbox built", LOG_S("sandbox", b->info.id),
              LOG_N("duration_ms", clock_boot_ms() - b->build_began_ms));
    workers_tell_judge(k, i);
    fdstore_put_box(&k->fdstore, b->info.id, b->build.pidfd);
    names_tell_box(k, i);
    if (b->promised)
        go_live(k, i);
    else
        set_state(k, i, BOX_WARM);
    review_one(k, i);
}

/* ------------------------------------------------------------------ what else workers may ask */

static int find_owned(const struct keeper *k, const char *tenant, const char *id, uint32_t *ret,
                      struct cove_err *e)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        const struct box_info *b = &k->boxes[i].info;
        bool owned = b->state == BOX_LIVE || b->state == BOX_AGEING || b->state == BOX_FROZEN;

        if (owned && strcmp(b->id, id) == 0 && strcmp(b->tenant, tenant) == 0) {
            *ret = i;
            return 0;
        }
    }
    return cove_fail(e, COVE_NOT_FOUND, "no sandbox '%.24s'", id);
}

static bool to_retire(const struct box *b, const struct keeper_retire *args)
{
    if (b->info.state == BOX_EMPTY || strcmp(b->info.tenant, args->tenant) != 0)
        return false;
    if (args->id[0])
        return strcmp(b->info.id, args->id) == 0;
    return b->info.tenant[0] && strcmp(b->info.project, args->project) == 0;
}

/* All that fit die; the answer goes out when the last of them is dead. */
void boxes_retire(struct keeper *k, const struct keeper_retire *args, const struct waiter *w)
{
    struct cove_err gone = { .code = COVE_GONE, .msg = "the sandbox was removed" };
    struct box *last = NULL;

    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct box *b = &k->boxes[i];

        if (!to_retire(b, args) || b->dead)
            continue;
        if (b->info.state != BOX_DYING) {
            answer_waiters(k, i, 0, NULL, 0, &gone);
            log_event(LOG_LEVEL_INFO, "sandbox retired", LOG_S("sandbox", b->info.id),
                      LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
            state_count(k->state, STATE_KEEPER, COUNT_BOXES_RETIRED, 1);
            boxes_destroy(k, i);
        }
        if (!b->dead)
            last = b;
    }
    if (last)
        add_waiter(last, w);
    else
        keeper_answer(k, w, MSG_DONE, NULL, 0);
}

int boxes_extend(struct keeper *k, const struct keeper_extend *args, struct cove_err *e)
{
    uint32_t i;

    if (find_owned(k, args->tenant, args->id, &i, e) < 0)
        return -1;
    if (args->lifetime_ms == 0 || args->lifetime_ms > 365ULL * 86400000)
        return cove_fail(e, COVE_INVALID, "lifetime is not between 1 ms and 365 days");
    k->boxes[i].info.dies_at_ms = clock_boot_ms() + args->lifetime_ms;
    if (k->boxes[i].info.reuse_until_ms > k->boxes[i].info.dies_at_ms)
        k->boxes[i].info.reuse_until_ms = k->boxes[i].info.dies_at_ms;
    save(k, i);
    return 0;
}

int boxes_network(struct keeper *k, const struct keeper_network *args, struct cove_err *e)
{
    uint32_t i;

    if (find_owned(k, args->tenant, args->id, &i, e) < 0)
        return -1;
    return network_set(k, i, &args->rules, e);
}

int boxes_freeze(struct keeper *k, const struct keeper_which *args, bool freeze, struct cove_err *e)
{
    uint32_t i;
    struct box *b;

    if (find_owned(k, args->tenant, args->id, &i, e) < 0)
        return -1;
    b = &k->boxes[i];
    if (b->info.state == (freeze ? BOX_FROZEN : BOX_LIVE))
        return 0;
    if (b->info.state != (freeze ? BOX_LIVE : BOX_FROZEN))
        return cove_fail(e, COVE_CONFLICT, "sandbox '%s' can't be paused: it ages", b->info.id);
    return set_frozen(k, i, freeze, e);
}

/* ------------------------------------------------------------------ death */

/* Begin its end: everything in it gets SIGKILL. What remains happens when the kernel says that init
 * is gone. */
void boxes_destroy(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];

    set_state(k, i, BOX_DYING);
    cgroup_kill_box(&k->cgroups, b->info.id);
    if (b->build.ready >= 0) {
        keeper_unwatch(k, b->build.ready);
        b->build.ready = cove_close(b->build.ready);
    }
    if (b->build.pidfd >= 0)
        pidfd_send_signal(b->build.pidfd, SIGKILL, NULL, 0);
    else
        b->dead = true; /* it never got that far */
}

void boxes_on_death(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct cove_err gone = { .code = COVE_GONE, .msg = "the sandbox ended" };

    keeper_unwatch(k, b->build.pidfd);
    b->build.pidfd = cove_close(b->build.pidfd);
    fdstore_drop_box(&k->fdstore, b->info.id);
    if (b->child)
        waitpid(b->build.pid, NULL, 0);
    if (b->info.state != BOX_DYING) {
        log_event(LOG_LEVEL_WARN, "sandbox lost: its init died", LOG_S("sandbox", b->info.id),
                  LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
        state_count(k->state, STATE_KEEPER, COUNT_BOXES_LOST, 1);
        answer_waiters(k, i, 0, NULL, 0, &gone);
        boxes_destroy(k, i);
    }
    b->dead = true;
    names_tell_gone(k, i);
    network_forget(k, i);
    answer_waiters(k, i, MSG_DONE, NULL, 0, NULL);
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

    b->info = (struct box_info){ .state = BOX_EMPTY, .generation = b->info.generation };
    b->sweeper = 0;
    b->dead = false;
    b->promised = false;
    save(k, i);
}

/* The rest of a dead box, in steps that may each be tried again: socket, cgroup, files. */
static void remove_remains(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct cove_err err = { 0 };

    unlink_control_socket(k, b->info.id);
    cgroup_kill_box(&k->cgroups, b->info.id); /* what was forked in the moment of the first kill */
    if (cgroup_remove_box(&k->cgroups, b->info.id) < 0)
        return;
    b->sweeper = sweep_tree_async(k->boxes_dir, b->info.id, &err);
    if (b->sweeper < 0) {
        log_error("sandbox not swept", &err, LOG_S("sandbox", b->info.id));
        b->sweeper = 0;
    }
}

void boxes_on_sweeper(struct keeper *k, pid_t pid)
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

/* ------------------------------------------------------------------ time */

static void expire(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];

    log_event(LOG_LEVEL_INFO, "sandbox expired", LOG_S("sandbox", b->info.id),
              LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project));
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_EXPIRED, 1);
    boxes_destroy(k, i);
}

static uint64_t earliest(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t tick_box(struct keeper *k, uint32_t i, uint64_t now, uint64_t next)
{
    struct box *b = &k->boxes[i];

    switch (b->info.state) {
    case BOX_LIVE:
    case BOX_AGEING:
    case BOX_FROZEN:
        if (now < b->info.dies_at_ms)
            return earliest(next, b->info.dies_at_ms);
        expire(k, i);
        return next;
    case BOX_DYING:
        if (b->dead && !b->sweeper)
            remove_remains(k, i);
        return b->dead && !b->sweeper ? earliest(next, now + REMOVE_RETRY_MS) : next;
    default:
        return next;
    }
}

/* Disks made ahead make a sandbox that is not from the pool cheaper. As long as there is one, not
 * right after a claim. */
static uint64_t refill_disks(struct keeper *k, uint64_t now, uint64_t next)
{
    struct cove_err err = { 0 };

    if (!disk_wants_more(&k->disk))
        return next;
    if (k->disk.ready_count > 0 && now < k->pool_pause_ms)
        return earliest(next, k->pool_pause_ms);
    if (now < k->pool_retry_ms)
        return earliest(next, k->pool_retry_ms);
    if (disk_make_ahead(&k->disk, &err) < 0) {
        log_error("no disk made ahead", &err);
        k->pool_retry_ms = now + POOL_RETRY_MS;
        return earliest(next, k->pool_retry_ms);
    }
    return now;
}

/*
 * One box per call: a request that came in meanwhile is served before the next one is built. And as
 * long as there is a spare one, not right after a claim: building takes a cpu, and moving a process
 * into v1 cgroups stops every fork on the machine for milliseconds, just when the new sandbox runs
 * its first command.
 */
static uint64_t refill_pool(struct keeper *k, uint64_t now, uint64_t next)
{
    struct cove_err err = { 0 };
    struct limits limits;
    uint64_t spare = 0;
    uint32_t i;

    if (k->stopping)
        return next;
    for (i = 0; i < state_box_count(k->state); i++) {
        const struct box *b = &k->boxes[i];

        if ((b->info.state == BOX_WARM || b->info.state == BOX_BUILDING) && !b->promised)
            spare++;
    }
    if (spare >= k->config.pool)
        return refill_disks(k, now, next);
    if (spare > 0 && now < k->pool_pause_ms)
        return earliest(next, k->pool_pause_ms);
    if (now < k->pool_retry_ms)
        return earliest(next, k->pool_retry_ms);
    allot_resolve(k, k->config.template, "", &limits);
    if (begin_box(k, k->config.template, &limits, &i, &err) < 0) {
        if (err.code != COVE_BUSY)
            log_error("pool not refilled", &err);
        k->pool_retry_ms = now + POOL_RETRY_MS;
        return earliest(next, k->pool_retry_ms);
    }
    return now; /* come again at once, after looking at what else there is */
}

uint64_t boxes_tick(struct keeper *k)
{
    uint64_t now = clock_boot_ms(), next = now + IDLE_TICK_MS;

    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        next = tick_box(k, i, now, next);
    fair_tick(k, now);
    return refill_pool(k, now, next);
}

/* ------------------------------------------------------------------ the end of all */

static bool anything_left(struct keeper *k)
{
    bool left = false;

    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct box *b = &k->boxes[i];
        struct pollfd p = { .fd = b->build.pidfd, .events = POLLIN };

        if (b->info.state == BOX_EMPTY)
            continue;
        left = true;
        if (!b->dead && poll(&p, 1, 0) == 1)
            boxes_on_death(k, i);
        if (b->dead && !b->sweeper)
            remove_remains(k, i);
        if (b->sweeper && waitpid(b->sweeper, NULL, WNOHANG) == b->sweeper)
            boxes_on_sweeper(k, b->sweeper);
    }
    return left;
}

void boxes_destroy_all(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (k->boxes[i].info.state != BOX_EMPTY && k->boxes[i].info.state != BOX_DYING)
            boxes_destroy(k, i);
    for (unsigned tries = 0; anything_left(k) && tries < 6000; tries++)
        poll(NULL, 0, 5);
}
