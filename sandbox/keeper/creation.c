/* The first part of a sandbox's life: a free slot, its range of user ids, its build, and what
 * happens when the build is ready. */
#include <poll.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

enum {
    POOL_RETRY_MS = 1000,
    BUILD_MOST_MS = 30000, /* a build takes milliseconds, and seconds on an overloaded machine */
};

/* Is this range of user ids free? Each slot has a range of its own, but living sandboxes may have others if
 * id_base or id_count was changed. */
static bool ids_free(const struct keeper *k, uint32_t base, uint32_t count)
{
    if (k->found.moved_ids == 0)
        return true;
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        const struct box *o = &k->boxes[i];
        uint64_t first = o->info.id_base;

        if (o->info.state != BOX_EMPTY && first < (uint64_t)base + count &&
            base < first + o->id_count)
            return false;
    }
    return true;
}

/* Takes the slot that has been free longest. The kernel removes some things of a sandbox in the background
 * (above all its network interface), and waiting for that would cost more than all other steps of the build. */
static int find_slot(struct keeper *k, uint32_t *ret, struct id_range *ret_ids)
{
    const struct cove_config *c = &k->config;
    const struct box *b;

    TAILQ_FOREACH(b, &k->found.places[PLACE_FREE], in_place)
    {
        uint32_t i = (uint32_t)(b - k->boxes);
        struct id_range ids = { (uint32_t)config_first_id(c, i), (uint32_t)c->id_count };

        if (i >= c->max_sandboxes || !ids_free(k, ids.base, ids.count))
            continue;
        *ret = i;
        *ret_ids = ids;
        return 0;
    }
    return -1;
}

/* Empties a slot for a new sandbox. The slot keeps its place in the list of free slots until boxes_save()
 * files it again. */
static void renew(struct box *b, const struct limits *limits)
{
    const struct box old = *b;

    *b = (struct box){ .build = NO_BUILD, .child = true, .limits = *limits };
    b->in_place = old.in_place;
    b->place = old.place;
}

static int attach_network(const void *net, uint32_t slot, pid_t pid, struct buf *inside,
                          struct cove_err *e)
{
    return net_attach(net, slot, pid, inside, e);
}

static struct build_args build_args_of(struct keeper *k, uint32_t i, const struct template *t,
                                       const struct cgroup_limits *limits)
{
    struct box *b = &k->boxes[i];

    return (struct build_args){
        .cgroups = &k->cgroups,
        .limits = limits,
        .template = t,
        .id = b->info.id,
        .run_dir = k->config.run_dir,
        .boxes_dir = k->boxes_dir,
        .init_exe = k->init_exe,
        .birthplace = &k->empty_ns,
        .worker_gid = k->worker_gid,
        .ids = { b->info.id_base, b->id_count },
        .disk = &k->disk,
        .disk_size = { b->limits.disk_max_bytes, b->limits.inodes_max },
        .filled = { .dir = -1 },
        .network = { &k->net, attach_network },
        .slot = i,
        .cpus = box_limits_cpus(&b->limits),
    };
}

/* The layers below a sandbox's own files: those of its snapshot, or those of its template. */
static int open_template(struct keeper *k, const struct box_info *b, struct template *ret,
                         struct cove_err *e)
{
    const struct snapshot *snapshot = b->snapshot[0] ? snapshots_of_box(k, b) : NULL;

    if (waking_has_layers(k, b->id))
        return waking_open_template(k, b->id, ret, e);
    if (b->snapshot[0] && !snapshot)
        return cove_fail(e, COVE_NOT_FOUND, "the snapshot that the sandbox stands on is gone");
    return snapshot ? snapshots_open(k, snapshot, ret, e)
                    : template_open(k->state_dir, b->template, ret, e);
}

static int start_build(struct keeper *k, uint32_t i, const struct disk_files *filled,
                       const struct build_ahead *ahead, struct cove_err *e)
{
    struct box *b = &k->boxes[i];
    struct template template = NO_TEMPLATE;
    struct cgroup_limits limits = box_limits_cgroup(&b->limits);
    struct build_args args = build_args_of(k, i, &template, &limits);
    int rc;

    if (open_template(k, &b->info, &template, e) < 0)
        return -1;
    if (filled)
        args.filled = *filled;
    rc = ahead ? build_go_on(&args, &b->build, ahead, e) : build_start(&args, &b->build, e);
    template_close(&template);
    return rc;
}

int creation_make_files(struct keeper *k, uint32_t i, struct disk_files *ret, struct cove_err *e)
{
    struct box *b = &k->boxes[i];
    struct template template = NO_TEMPLATE;
    struct cgroup_limits limits = box_limits_cgroup(&b->limits);
    struct build_args args = build_args_of(k, i, &template, &limits);
    int rc;

    if (open_template(k, &b->info, &template, e) < 0)
        return -1;
    rc = build_make_files(&args, ret, e);
    template_close(&template);
    return rc;
}

int creation_take_slot(struct keeper *k, const char *template_name, const struct snapshot *snapshot,
                       const struct limits *limits, const char *id, uint32_t *ret,
                       struct cove_err *e)
{
    const struct manifest *manifest;
    struct id_range ids;
    struct box *b;
    uint32_t i, generation;

    if (disk_check_room(&k->disk, e) < 0)
        return -1;
    if (find_slot(k, &i, &ids) < 0)
        return cove_fail(e, COVE_BUSY, "all %llu sandboxes are in use",
                         (unsigned long long)k->config.max_sandboxes);
    b = &k->boxes[i];
    generation = b->info.generation + 1;
    renew(b, limits);
    b->id_count = ids.count;
    b->info = (struct box_info){
        .state = BOX_BUILDING,
        .generation = generation,
        .id_base = ids.base,
    };
    text_copy(b->info.id, sizeof(b->info.id), id);
    text_copy(b->info.template, sizeof(b->info.template), template_name);
    if (snapshot)
        text_copy(b->info.snapshot, sizeof(b->info.snapshot), snapshot->info.id);
    manifest = manifests_find(&k->manifests, template_name);
    b->template_version = manifest ? manifest->version : 0;
    b->build_began_ms = clock_boot_ms();
    boxes_save(k, i);
    *ret = i;
    return 0;
}

static int watch_init(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];

    if (boxes_watch_exit(k, i, e) < 0)
        return -1;
    b->info.init_pid = (uint32_t)b->build.pid;
    b->info.init_start = process_start_time(b->build.pid);
    boxes_save(k, i);
    return 0;
}

static int watch_ready(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];

    if (boxes_watch_ready(k, i, e) < 0)
        return -1;
    b->ready_by_ms = clock_boot_ms() + BUILD_MOST_MS;
    if (!k->ready_due_ms)
        k->ready_due_ms = b->ready_by_ms;
    return 0;
}

static int build(struct keeper *k, uint32_t i, struct cove_err *e)
{
    if (start_build(k, i, NULL, NULL, e) == 0 && watch_init(k, i, e) == 0 &&
        watch_ready(k, i, e) == 0)
        return 0;
    death_begin(k, i, END_GONE, 0);
    return -1;
}

int creation_build_ahead(struct keeper *k, uint32_t i, const struct disk_files *files,
                         struct build_ahead *ret, struct cove_err *e)
{
    struct box *b = &k->boxes[i];
    struct cgroup_limits limits = box_limits_cgroup(&b->limits);
    struct build_args args = build_args_of(k, i, NULL, &limits);

    args.filled = *files;
    if (build_start_ahead(&args, &b->build, ret, e) < 0)
        return -1;
    return watch_init(k, i, e);
}

int creation_go_on(struct keeper *k, uint32_t i, const struct disk_files *files,
                   const struct build_ahead *ahead, struct cove_err *e)
{
    if (start_build(k, i, files, ahead, e) < 0)
        return -1;
    return watch_ready(k, i, e);
}

/* Ends set-ups that take too long. A tenant may have made the files of the root, and could make the set-up
 * wait for ever; this way its slot becomes free again. A set-up that was killed counts as failed
 * (creation_on_ready()). */
uint64_t creation_tick(struct keeper *k, uint64_t now, uint64_t next)
{
    uint64_t due = UINT64_MAX;

    if (!k->ready_due_ms || now < k->ready_due_ms)
        return k->ready_due_ms ? earliest_ms(next, k->ready_due_ms) : next;
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct box *b = &k->boxes[i];

        if (b->info.state != BOX_BUILDING || !watch_is_on(&b->ready))
            continue;
        if (now >= b->ready_by_ms) {
            log_event(LOG_LEVEL_WARN, "the set-up of a sandbox takes too long and is ended",
                      LOG_S("sandbox", b->info.id), LOG_S("template", b->info.template));
            cgroup_kill_box(&k->cgroups, b->info.id);
            b->ready_by_ms = now + BUILD_MOST_MS;
        }
        due = earliest_ms(due, b->ready_by_ms);
    }
    k->ready_due_ms = due == UINT64_MAX ? 0 : due;
    return earliest_ms(next, due);
}

/* Begins a new sandbox in a free slot. After a failure the slot is swept and becomes free again. */
int creation_begin(struct keeper *k, const char *template_name, const struct snapshot *snapshot,
                   const struct limits *limits, uint32_t *ret, struct cove_err *e)
{
    char id[COVE_ID_LEN + 1];

    text_new_id(id);
    if (creation_take_slot(k, template_name, snapshot, limits, id, ret, e) < 0)
        return -1;
    return build(k, *ret, e);
}

void creation_on_ready(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct cove_err err = { 0 };

    watch_take(&b->ready);
    if (build_finish(&b->build, &err) < 0) {
        k->pool_retry_ms = clock_boot_ms() + POOL_RETRY_MS;
        if (b->waking) {
            waking_fail(k, i, &err);
            return;
        }
        log_error("sandbox not created", &err, LOG_S("sandbox", b->info.id));
        waiters_fail(k, i, &err);
        death_begin(k, i, END_GONE, 0);
        return;
    }
    if (b->info.state != BOX_BUILDING)
        return; /* the sandbox was retired meanwhile */
    state_count(k->state, STATE_KEEPER, COUNT_BOXES_BUILT, 1);
    log_event(LOG_LEVEL_DEBUG, "sandbox built", LOG_S("sandbox", b->info.id),
              LOG_N("duration_ms", clock_boot_ms() - b->build_began_ms));
    judge_tell(k, i);
    fdstore_put_box(&k->fdstore, b->info.id, b->build.pidfd);
    resolver_tell_box(k, i);
    if (b->waking && waking_prepare(k, i, &err) < 0) /* before anything in it runs */
        waking_fail(k, i, &err);
    else if (!starter_begin(k, i, &err))
        creation_hand_out(k, i);
}

/* Has init ended? It is looked at once more before the sandbox is handed out: nobody is to get a dead
 * sandbox, and a woken one loses its archive in the store when it goes live. */
static bool has_died(const struct box *b)
{
    struct pollfd exit = { .fd = b->build.pidfd, .events = POLLIN };

    return poll(&exit, 1, 0) != 0;
}

void creation_hand_out(struct keeper *k, uint32_t i)
{
    if (has_died(&k->boxes[i]))
        return; /* death_on_exit() is about to be called */
    if (k->boxes[i].promised)
        claim_go_live(k, i);
    else
        boxes_set_state(k, i, BOX_WARM);
    pool_review_one(k, i);
    net_settle(&k->net, i);
}
