/*
 * Waking a saved sandbox. A new one is made under the old id: a slot, a disk, then a saver unpacks the
 * archive into that disk. Meanwhile the sandbox is built as far as it can be without its files; when they are there it
 * is finished like any other. Its record in the store goes in the moment in which the new one is live; until then every failure leaves the saved sandbox
 * as it was, and what was made of the new one is swept.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

struct waking {
    uint64_t lifetime_ms; /* 0: the lifetime that it was claimed with */
    uint64_t created_unix_ms;
    struct disk_files files;
    struct build_ahead ahead; /* the set-up that waits for the files */
    struct job *run;          /* the saver */
    struct job *age;          /* decrypts the archive, if it is encrypted */
    /* The rest is used only if the archive comes from the bucket. */
    struct job *fetch;
    struct cove_err why; /* why the saver failed, while the fetch was still under way */
};

void waking_fail(struct keeper *k, uint32_t i, const struct cove_err *err)
{
    log_error("saved sandbox not woken, it stays saved", err, LOG_S("sandbox", k->boxes[i].info.id),
              LOG_S("tenant", k->boxes[i].info.tenant));
    saved_flag(k, k->boxes[i].info.id, BOX_IS_WAKING, BOX_WAKE_FAILED);
    waiters_fail(k, i, err);
    death_begin(k, i, END_GONE, 0);
}

/* ------------------------------------------------------------------ unpacking */

static void on_unpacked(struct keeper *k, uint32_t i, const struct saver_report *report,
                        struct cove_err *err)
{
    struct box *b = &k->boxes[i];

    job_abandon(b->waking->run); /* it ends by itself now, and need not be waited for */
    b->waking->run = NULL;
    k->wakes_due = true;
    fault_point("wake-unpacked", b);
    if (!report && b->waking->fetch) {
        b->waking->why = *err; /* on_fetched() tells this error, or its own */
    } else if (!report) {
        cove_context(err, "archive of '%s'", b->info.id);
        waking_fail(k, i, err);
    } else if (creation_go_on(k, i, &b->waking->files, &b->waking->ahead, err) < 0) {
        if (err->code == COVE_GONE)
            waking_lost_init(k, i);
        else
            waking_fail(k, i, err);
    }
}

/* When both the fetch and the saver have failed, the client hears of the saver's failure: the fetch failed
 * only because the saver stopped reading. */
static void on_fetched(struct keeper *k, uint32_t i, const struct bucket_report *report,
                       struct cove_err *err)
{
    struct waking *w = k->boxes[i].waking;
    bool unpack_failed = w->why.code != COVE_OK;

    w->fetch = NULL;
    if (report && !unpack_failed)
        return; /* the saver's result decides what is told */
    if (unpack_failed && (report || err->errnum == EPIPE)) {
        *err = w->why;
        cove_context(err, "archive of '%s'", k->boxes[i].info.id);
    }
    waking_fail(k, i, err);
}

static int fetch(struct keeper *k, uint32_t i, int *ret_archive, struct cove_err *e)
{
    struct bucket_task task = { .index = i, .in = -1, .done = on_fetched };
    uint32_t saved;
    int ends[2], rc = -1;

    if (!saved_find_id(k, k->boxes[i].info.tenant, k->boxes[i].info.id, &saved) ||
        pipe2(ends, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "pipe");
    task.out = ends[1];
    rc = bucket_fetch(k, saved, &task, &k->boxes[i].waking->fetch, e);
    close(ends[1]);
    *ret_archive = ends[0];
    return rc;
}

static int open_archive(struct keeper *k, uint32_t i, const struct saved_info *s, int *ret,
                        struct cove_err *e)
{
    AUTO_CLOSE int dir = -1;

    if (saved_open_dir(k, s->box.id, &dir, e) < 0)
        return -1;
    if (saved_place_of(dir) >= SAVED_IS_OURS)
        return fetch(k, i, ret, e);
    *ret = openat(dir, saved_archive_name(s), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_NOT_FOUND, "archive of '%s'", s->box.id) : 0;
}

static void on_age_ended(struct keeper *k, uint32_t i, int status)
{
    (void)status; /* the saver checks the digest, so it knows whether the whole archive came */
    k->boxes[i].waking->age = NULL;
}

/* Puts a process of age between the archive and the saver. */
static int decrypt(struct keeper *k, uint32_t i, int archive, int *ret_in, struct cove_err *e)
{
    AUTO_CLOSE int identity = -1;
    struct age_task task = { .box = i, .in = archive, .done = on_age_ended };
    int ends[2], rc;

    if (age_open_identity(k, &identity, e) < 0)
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "pipe");
    task.identity = identity;
    task.out = ends[1];
    rc = age_start(k, &task, &k->boxes[i].waking->age, e);
    close(ends[1]);
    *ret_in = ends[0];
    return rc;
}

static int unpack(struct keeper *k, uint32_t i, const struct saved_info *s, struct cove_err *e)
{
    struct box *b = &k->boxes[i];
    AUTO_CLOSE int archive = -1;
    AUTO_CLOSE int pipe_end = -1;
    struct saver_task task = {
        .box = i,
        .ids = { b->info.id_base, b->id_count },
        .files = &b->waking->files,
        .out = -1,
        .order = { .work = SAVER_UNPACK_TREE, .expect = s->report },
        .done = on_unpacked,
    };

    if (open_archive(k, i, s, &archive, e) < 0 ||
        creation_make_files(k, i, &b->waking->files, e) < 0 ||
        (s->encrypted && decrypt(k, i, archive, &pipe_end, e) < 0))
        return -1;
    task.in = s->encrypted ? pipe_end : archive;
    fault_point("wake-files", b);
    if (saver_run_start(k, &task, &b->waking->run, e) < 0)
        return -1;
    fault_point("wake-unpacking", b);
    return creation_build_ahead(k, i, &b->waking->files, &b->waking->ahead, e);
}

/* ------------------------------------------------------------------ a slot for it */

bool waking_has_layers(const struct keeper *k, const char *id)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/" SAVED_LAYERS, id);
    return faccessat(k->saved_dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int waking_open_template(const struct keeper *k, const char *id, struct template *ret,
                         struct cove_err *e)
{
    AUTO_CLOSE int dir = -1;

    if (saved_open_dir(k, id, &dir, e) < 0)
        return -1;
    return template_open_at(k->state_dir, dir, ret, e);
}

static int check_quota(struct keeper *k, const struct saved_info *s, struct cove_err *e)
{
    struct keeper_claim claim = { 0 };

    text_copy(claim.tenant, sizeof(claim.tenant), s->box.tenant);
    text_copy(claim.project, sizeof(claim.project), s->box.project);
    text_copy(claim.key, sizeof(claim.key), s->box.key);
    return quota_check_claim(k, &claim, e);
}

/* The woken sandbox has the owner, name, key and dialect that it had before. */
static void set_identity(struct keeper *k, uint32_t i, const struct saved_info *s,
                         const struct limits *limits)
{
    struct box *b = &k->boxes[i];

    text_copy(b->info.tenant, sizeof(b->info.tenant), s->box.tenant);
    text_copy(b->info.project, sizeof(b->info.project), s->box.project);
    text_copy(b->info.key, sizeof(b->info.key), s->box.key);
    b->info.flags = s->box.flags & ~(uint32_t)(BOX_IS_WAKING | BOX_WAKE_FAILED);
    b->info.dialect = s->box.dialect;
    b->info.lifetime_ms = s->box.lifetime_ms ? s->box.lifetime_ms : k->config.lifetime_ms;
    b->reuse_ms = k->config.reuse_ms;
    b->wanted = *limits;
    b->promised = true;
    boxes_save(k, i);
}

static int begin(struct keeper *k, uint32_t saved, uint64_t lifetime_ms, uint32_t *ret,
                 struct cove_err *e)
{
    const struct saved_info *s = &k->saved[saved].info;
    struct waking *w;
    struct limits limits;

    box_limits_resolve(k, s->box.template, s->box.tenant, &limits);
    box_limits_narrow(snapshots_of_box(k, &s->box), &limits);
    if (check_quota(k, s, e) < 0 ||
        creation_take_slot(k, s->box.template, snapshots_of_box(k, &s->box), &limits, s->box.id,
                           ret, e) < 0)
        return -1;
    set_identity(k, *ret, s, &limits);
    w = calloc(1, sizeof(*w));
    if (!w) {
        death_begin(k, *ret, END_GONE, 0);
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    }
    *w = (struct waking){ .lifetime_ms = lifetime_ms,
                          .created_unix_ms = s->box.created_unix_ms,
                          .files = { .dir = -1 },
                          .ahead = { .go = -1 } };
    k->boxes[*ret].waking = w;
    fault_point("wake-slot", &k->boxes[*ret]);
    saved_flag(k, s->box.id, BOX_WAKE_FAILED, BOX_IS_WAKING);
    if (unpack(k, *ret, s, e) == 0)
        return 0;
    saved_flag(k, s->box.id, BOX_IS_WAKING, BOX_WAKE_FAILED);
    log_error("saved sandbox not woken, it stays saved", e, LOG_S("sandbox", s->box.id));
    death_begin(k, *ret, END_GONE, 0);
    return -1;
}

/* ------------------------------------------------------------------ asked for */

static bool is_unpacked(const struct box *b)
{
    return b->waking && b->waking->run;
}

/* The request waits until the remains of the old sandbox are swept and one more saver may run. waking_tick()
 * then begins. */
static void wait_for_turn(struct keeper *k, struct saved *s, uint64_t lifetime_ms,
                          const struct waiter *w)
{
    struct waiter *copy = malloc(sizeof(*copy));

    if (!copy)
        return; /* the client runs into its own deadline */
    if (!s->waiters)
        s->asked_ms = clock_boot_ms();
    *copy = *w;
    copy->next = s->waiters;
    s->waiters = copy;
    s->lifetime_ms = lifetime_ms;
    k->wakes_due = true;
}

int waking_begin(struct keeper *k, uint32_t saved, uint64_t lifetime_ms, const struct waiter *w,
                 struct cove_err *e)
{
    struct saved *s = &k->saved[saved];
    struct box *old = boxes_by_id(k, s->info.box.id);
    uint32_t i;

    if (lifetime_ms > LIFETIME_MAX_MS)
        return cove_fail(e, COVE_INVALID, "lifetime is longer than 365 days");
    if (old && old->info.state == BOX_BUILDING) {
        waiters_add(old, w); /* somebody has asked already, and the sandbox is being woken */
        return 0;
    }
    if (old || s->waiters || !saver_run_has_place(k, s->info.box.tenant, is_unpacked)) {
        wait_for_turn(k, s, lifetime_ms, w);
        return 0;
    }
    if (begin(k, saved, lifetime_ms, &i, e) < 0)
        return -1;
    waiters_add(&k->boxes[i], w);
    return 0;
}

/* A sandbox that is not saved, or not any more, is a good answer, too: whoever asks twice gets the sandbox
 * that the first request woke. */
int waking_ask(struct keeper *k, const struct keeper_extend *args, const struct waiter *w,
               struct cove_err *e)
{
    uint32_t i;

    if (saved_find_id(k, args->tenant, args->id, &i) ||
        saved_find_new(k, args->tenant, args->id, &i))
        return waking_begin(k, i, args->lifetime_ms, w, e);
    if (boxes_find_owned(k, args->tenant, args->id, &i, e) < 0 ||
        life_thaw(k, i, args->lifetime_ms, e) < 0)
        return -1;
    waiters_add(&k->boxes[i], w);
    waiters_answer_box(k, i, false);
    return 0;
}

static void begin_for_waiters(struct keeper *k, uint32_t saved)
{
    struct saved *s = &k->saved[saved];
    struct cove_err err = { 0 };
    uint32_t i;

    if (begin(k, saved, s->lifetime_ms, &i, &err) == 0)
        waiters_move(&s->waiters, &k->boxes[i]);
    else
        waiters_fail_list(k, &s->waiters, &err);
}

/* Finds the saved sandbox that was asked for first, among those that can be woken now. */
static bool find_next(const struct keeper *k, uint32_t *ret)
{
    const struct state *table = state_saved(k->state);
    bool found = false;

    for (uint32_t i = 0; table && i < state_box_count(table); i++) {
        const struct saved *s = &k->saved[i];

        if (!s->waiters || (found && s->asked_ms >= k->saved[*ret].asked_ms) ||
            boxes_by_id(k, s->info.box.id) ||
            !saver_run_has_place(k, s->info.box.tenant, is_unpacked))
            continue;
        *ret = i;
        found = true;
    }
    return found;
}

void waking_tick(struct keeper *k)
{
    uint32_t next;

    if (!k->wakes_due || k->stopping)
        return;
    k->wakes_due = false;
    while (find_next(k, &next))
        begin_for_waiters(k, next);
}

/* ------------------------------------------------------------------ it lives */

int waking_prepare(struct keeper *k, uint32_t i, struct cove_err *e)
{
    AUTO_CLOSE int dir = -1;

    fault_point("wake-built", &k->boxes[i]);
    if (saved_open_dir(k, k->boxes[i].info.id, &dir, e) < 0)
        return -1;
    return network_restore(k, i, dir, e);
}

bool waking_lost_init(struct keeper *k, uint32_t i)
{
    struct cove_err err = { 0 };

    if (!k->boxes[i].waking)
        return false;
    cove_fail(&err, COVE_GONE, "the init of the sandbox died while it was being woken");
    waking_fail(k, i, &err);
    return true;
}

/* created_ms counts from the first start of the sandbox. That may lie before the machine's own start, where
 * the clock begins, and then wraps below zero; only differences of it are used. */
void waking_set_times(struct keeper *k, uint32_t i, uint64_t now)
{
    struct box *b = &k->boxes[i];
    uint64_t life = b->waking->lifetime_ms ? b->waking->lifetime_ms : b->info.lifetime_ms;

    b->info.dies_at_ms = now + life;
    b->info.created_ms = now - (clock_unix_ms() - b->waking->created_unix_ms);
    b->info.created_unix_ms = b->waking->created_unix_ms;
    b->info.reuse_until_ms = now + b->reuse_ms;
    if (b->info.flags & BOX_OWN_PROJECT || b->info.reuse_until_ms > b->info.dies_at_ms)
        b->info.reuse_until_ms = b->info.dies_at_ms;
}

static void forget(struct waking *w)
{
    job_abandon(w->run);
    job_abandon(w->age);
    job_abandon(w->fetch);
    build_ahead_done(&w->ahead);
    cove_close(w->files.dir);
    free(w);
}

void waking_is_live(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    char aside[SAVED_ASIDE] = "";
    uint32_t saved;

    log_event(LOG_LEVEL_INFO, "saved sandbox woken", LOG_S("sandbox", b->info.id),
              LOG_S("tenant", b->info.tenant), LOG_S("project", b->info.project),
              LOG_N("duration_ms", clock_boot_ms() - b->build_began_ms));
    forget(b->waking);
    b->waking = NULL;
    fault_point("wake-live", b);
    if (saved_find_id(k, b->info.tenant, b->info.id, &saved))
        saved_forget(k, saved, aside);
    waiters_answer_box(k, i, true); /* nobody has to wait until the store is tidied up */
    if (aside[0])
        saved_remove_dir(k, aside);
    fault_point("wake-dropped", b);
}

void waking_on_death(struct keeper *k, uint32_t i)
{
    struct waking *w = k->boxes[i].waking;

    if (!w)
        return;
    saved_flag(k, k->boxes[i].info.id, BOX_IS_WAKING, 0);
    forget(w);
    k->bucket.due_ms = 0; /* its objects in the bucket may be released again */
    k->wakes_due = true;
    k->boxes[i].waking = NULL;
}
