/*
 * Pausing to storage. The steps, and what is true after each of them if all power fails there:
 *
 *   freeze    nothing in the sandbox runs                              it is frozen, as by a pause
 *   pack      a saver writes <state_dir>/saved/.new-ID and verifies    it is frozen
 *   sync      record, manifest and attributes beside the archive,
 *             and the saver syncs all of them                          it is frozen
 *   commit    .new-ID is renamed to ID                                 it is saved
 *   end       the sandbox is killed and swept like any other           it is saved
 *
 * Up to the commit a failure of any kind (no room, a saver that dies) sets the sandbox going again as it
 * was; so does whoever uses it meanwhile. If its init dies meanwhile, nothing is lost: packing needs
 * the files only.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

enum {
    FREEZE_LOOK_MS = 2,
    FREEZE_MAX_MS = 5000,
    SAVE_RETRY_MS = 60000,
    PLACE_LOOK_MS = 100,
    PROGRESS_MS = 10000,
};

enum saving_step { SAVING_FREEZE, SAVING_PACK, SAVING_SEAL, SAVING_SYNC };

struct saving {
    enum saving_step step;
    bool was_live;
    uint64_t began_ms;
    uint64_t look_ms;       /* when saving_tick() is due next */
    int dir;                /* .new-ID */
    struct job *run;        /* the saver; NULL: none runs */
    struct saved_info info; /* from SAVING_SYNC on: what is written into the store */
    /* The rest is used only if the archive is encrypted. */
    bool encrypted;
    struct job *age;
    int archive;                /* the finished archive, to be read once more */
    struct saver_report packed; /* what the saver has sent to age; entries 0: not all of it yet */
};

static void new_name(const char *id, char out[64])
{
    snprintf(out, 64, SAVED_NEW "%s", id);
}

/* ------------------------------------------------------------------ the end of it, for good or bad */

static void forget(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];

    job_abandon(b->saving->run);
    job_abandon(b->saving->age);
    cove_close(b->saving->archive);
    cove_close(b->saving->dir);
    free(b->saving);
    b->saving = NULL;
    b->info.flags &= ~(uint32_t)BOX_IS_SAVING;
}

static void give_up(struct keeper *k, uint32_t i, const struct cove_err *err)
{
    struct box *b = &k->boxes[i];
    char name[64];

    new_name(b->info.id, name);
    forget(k, i);
    saved_remove_dir(k, name);
    boxes_save(k, i);
    waiters_fail(k, i, err);
}

void saving_cancel(struct keeper *k, uint32_t i, const char *why)
{
    struct cove_err err = { 0 };

    if (!k->boxes[i].saving)
        return;
    log_event(LOG_LEVEL_INFO, "sandbox not saved", LOG_S("sandbox", k->boxes[i].info.id),
              LOG_S("because", why));
    cove_fail(&err, COVE_CONFLICT, "the sandbox was not paused: %s", why);
    give_up(k, i, &err);
}

/* Saving has failed: a sandbox that ran before goes on. A sandbox whose init has died meanwhile is lost. */
static void fail(struct keeper *k, uint32_t i, const struct cove_err *err)
{
    struct box *b = &k->boxes[i];
    bool was_live = b->saving->was_live;

    log_error(b->dead ? "sandbox lost: its init died, and it could not be saved"
                      : "sandbox not saved, it stays",
              err, LOG_S("sandbox", b->info.id), LOG_S("tenant", b->info.tenant));
    give_up(k, i, err);
    b->save_at_ms = clock_boot_ms() + SAVE_RETRY_MS;
    if (b->info.state != BOX_FROZEN)
        return;
    if (b->info.dies_at_ms <= clock_boot_ms())
        life_keep_frozen(k, i); /* its lifetime is over: it was to be saved for that reason */
    else if (was_live)
        life_thaw(k, i, 0, NULL);
}

/* ------------------------------------------------------------------ commit */

static int move_into_store(struct keeper *k, const struct box *b, struct cove_err *e)
{
    char name[64];

    new_name(b->info.id, name);
    if (renameat(k->saved_dir, name, k->saved_dir, b->info.id) < 0 || fsync(k->saved_dir) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "putting a sandbox into the store");
    fault_point("save-renamed", b);
    return 0;
}

static int commit(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];

    if (saved_check_room(k, b->info.tenant, b->saving->info.stored_bytes, e) < 0 ||
        move_into_store(k, b, e) < 0)
        return -1;
    return saved_put(k, &b->saving->info, SAVED_IS_HERE, e);
}

/* Writes everything that is kept beside the archive, as it is now. */
static int write_down(struct keeper *k, uint32_t i, bool *changed, struct cove_err *e)
{
    struct saving *s = k->boxes[i].saving;

    return saving_notes_write(k, &k->boxes[i], s->dir, &s->info, changed, e);
}

static void log_saved(const struct box_info *b, const struct saver_report *r, uint64_t began_ms)
{
    log_event(LOG_LEVEL_INFO, "sandbox saved", LOG_S("sandbox", b->id), LOG_S("tenant", b->tenant),
              LOG_S("project", b->project), LOG_N("entries", r->entries),
              LOG_N("content_bytes", r->content_bytes), LOG_N("archive_bytes", r->archive_bytes),
              LOG_N("sockets_left_out", r->sockets_left_out),
              LOG_N("duration_ms", clock_boot_ms() - began_ms));
}

static void put_away(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct cove_err err = { 0 };
    AUTO_CLOSE int dir = -1;

    if (commit(k, i, &err) < 0) {
        fail(k, i, &err);
        return;
    }
    log_saved(&b->info, &b->saving->info.report, b->saving->began_ms);
    dir = take_fd(&b->saving->dir);
    forget(k, i);
    attributes_restore(k, b->info.id, dir, NULL); /* workers see only what was kept */
    fault_point("save-known", b);
    if (b->dead)
        waiters_answer(k, i, MSG_DONE, NULL, 0);
    else
        death_begin(k, i, END_SAVED, 0);
    fault_point("save-dying", b);
}

/* The saver, which has read the archive back, syncs it with the files beside it. */
static void begin_sync(struct keeper *k, uint32_t i)
{
    static const char *const names[] = { SAVED_ARCHIVE, SAVED_AGE,      SAVED_ATTRIBUTES,
                                         SAVED_NETWORK, SAVED_MANIFEST, SAVED_RECORD,
                                         NULL };
    struct saving *s = k->boxes[i].saving;
    struct cove_err err = { 0 };

    s->step = SAVING_SYNC;
    if (saver_run_sync(s->run, s->dir, names, &err) < 0)
        fail(k, i, &err);
}

/* Anything that changed while the saver was syncing is written and synced as well. */
static void on_synced(struct keeper *k, uint32_t i, const struct cove_err *failed)
{
    struct cove_err err = { 0 };
    bool changed = false;

    fault_point("save-synced", &k->boxes[i]);
    if (failed)
        fail(k, i, failed);
    else if (write_down(k, i, &changed, &err) < 0)
        fail(k, i, &err);
    else if (changed)
        begin_sync(k, i);
    else
        put_away(k, i);
}

static void on_archive(struct keeper *k, uint32_t i, const struct saver_report *report,
                       const struct saver_report *stored)
{
    struct saving *s = k->boxes[i].saving;
    struct cove_err err = { 0 };
    bool changed;

    s->info = (struct saved_info){
        .report = *report,
        .saved_unix_ms = clock_unix_ms(),
        .stored_bytes = stored->archive_bytes,
        .encrypted = s->encrypted,
    };
    memcpy(s->info.stored_digest, stored->digest, sizeof(s->info.stored_digest));
    if (write_down(k, i, &changed, &err) < 0) {
        fail(k, i, &err);
        return;
    }
    fault_point("save-written", &k->boxes[i]);
    begin_sync(k, i);
}

/* ------------------------------------------------------------------ encrypted: read again */

static void on_read_again(struct keeper *k, uint32_t i, const struct saver_report *stored,
                          struct cove_err *err)
{
    const struct saver_report packed = k->boxes[i].saving->packed;

    if (stored)
        on_archive(k, i, &packed, stored);
    else
        fail(k, i, err);
}

/* Both the saver and age have ended. The encrypted archive is read once more, for its digest. */
static void read_again(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct cove_err err = { 0 };
    struct saver_task task = {
        .box = i,
        .ids = { b->info.id_base, b->id_count },
        .in = b->saving->archive,
        .out = -1,
        .order = { .work = SAVER_DIGEST_FILE },
        .done = on_read_again,
        .synced = on_synced,
    };

    if (saver_run_start(k, &task, &b->saving->run, &err) < 0)
        fail(k, i, &err);
}

static void on_age_ended(struct keeper *k, uint32_t i, int status)
{
    bool is_missing = WIFEXITED(status) && WEXITSTATUS(status) == AGE_MISSING;
    struct saving *s = k->boxes[i].saving;
    struct cove_err err = { 0 };

    s->age = NULL;
    if (status != 0) {
        cove_fail(&err, is_missing ? COVE_UNSUPPORTED : COVE_INTERNAL,
                  is_missing ? "age is not installed" : "age did not encrypt the archive");
        fail(k, i, &err);
    } else if (s->step == SAVING_SEAL) {
        read_again(k, i);
    }
}

static void on_packed(struct keeper *k, uint32_t i, const struct saver_report *report,
                      struct cove_err *err)
{
    struct saving *s = k->boxes[i].saving;

    fault_point("save-packed", &k->boxes[i]);
    if (!report) {
        fail(k, i, err);
    } else if (!s->encrypted) {
        on_archive(k, i, report, report);
    } else {
        job_abandon(s->run);
        s->run = NULL;
        s->packed = *report;
        s->step = SAVING_SEAL;
        if (!s->age)
            read_again(k, i);
    }
}

/* ------------------------------------------------------------------ freeze, pack */

static int make_dir(struct keeper *k, uint32_t i, int *ret_archive, struct cove_err *e)
{
    struct saving *s = k->boxes[i].saving;
    char name[64];

    new_name(k->boxes[i].info.id, name);
    if (sweep_tree(k->saved_dir, name, e) < 0)
        return -1;
    if (mkdirat(k->saved_dir, name, 0700) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "directory of a saved sandbox");
    s->dir = openat(k->saved_dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dir >= 0)
        *ret_archive = openat(s->dir, s->encrypted ? SAVED_AGE : SAVED_ARCHIVE,
                              O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return *ret_archive < 0 ? cove_fail_errno(e, COVE_LIMIT, "archive of a sandbox") : 0;
}

/* The saver is at work: the files that its report will fill are made meanwhile. */
static void make_notes(int dir)
{
    static const char *const names[] = { SAVED_MANIFEST, SAVED_RECORD };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        cove_close(openat(dir, names[i], O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}

/* Puts a process of age between the saver and the archive. */
static int encrypt(struct keeper *k, uint32_t i, int archive, int *ret_out, struct cove_err *e)
{
    struct saving *s = k->boxes[i].saving;
    struct age_task task = { .box = i, .out = archive, .identity = -1, .done = on_age_ended };
    int ends[2], rc;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "pipe");
    task.in = ends[0];
    rc = age_start(k, &task, &s->age, e);
    close(ends[0]);
    *ret_out = ends[1];
    s->archive = fcntl(archive, F_DUPFD_CLOEXEC, 3);
    return rc;
}

static int pack(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];
    AUTO_CLOSE int files_fd = -1;
    AUTO_CLOSE int archive = -1;
    AUTO_CLOSE int pipe_end = -1;
    bool changed;
    struct disk_files files = { .dir = b->build.files, .is_mount = true, .is_lost = true };
    struct saver_task task = {
        .box = i,
        .ids = { b->info.id_base, b->id_count },
        .files = &files,
        .in = -1,
        .order = { .work = SAVER_PACK_TREE,
                   .max_bytes = saved_room(k, b->info.tenant),
                   .reserve_bytes = k->disk.reserve_bytes },
        .done = on_packed,
        .synced = b->saving->encrypted ? NULL : on_synced,
    };

    if (files.dir < 0) {
        if (disk_open_files(&k->disk, b->info.id, &files_fd, e) < 0)
            return -1;
        files = (struct disk_files){ .dir = files_fd };
    }
    if (make_dir(k, i, &archive, e) < 0 || saving_notes_keep(k, b, b->saving->dir, &changed, e) < 0)
        return -1;
    if (b->saving->encrypted && encrypt(k, i, archive, &pipe_end, e) < 0)
        return -1;
    task.out = b->saving->encrypted ? pipe_end : archive;
    b->saving->step = SAVING_PACK;
    b->saving->look_ms = clock_boot_ms() + PROGRESS_MS;
    fault_point("save-frozen", b);
    if (saver_run_start(k, &task, &b->saving->run, e) < 0)
        return -1;
    make_notes(b->saving->dir);
    fault_point("save-packing", b);
    return 0;
}

uint64_t saving_due_ms(const struct box *b)
{
    return b->saving->look_ms;
}

static void log_progress(const struct box *b, uint64_t now)
{
    const struct saving *s = b->saving;
    struct stat st;

    if (fstatat(s->dir, s->encrypted ? SAVED_AGE : SAVED_ARCHIVE, &st, AT_SYMLINK_NOFOLLOW) == 0)
        log_event(LOG_LEVEL_INFO, "sandbox is being saved", LOG_S("sandbox", b->info.id),
                  LOG_S("tenant", b->info.tenant), LOG_N("archive_bytes", st.st_size),
                  LOG_N("duration_ms", now - s->began_ms));
}

static bool is_packed(const struct box *b)
{
    return b->saving && b->saving->step != SAVING_FREEZE;
}

void saving_tick(struct keeper *k, uint32_t i, uint64_t now)
{
    struct box *b = &k->boxes[i];
    struct cove_err err = { 0 };

    if (is_packed(b)) {
        log_progress(b, now);
        b->saving->look_ms = now + PROGRESS_MS;
    } else if (cgroup_is_frozen(&k->cgroups, b->info.id)) {
        if (!saver_run_has_place(k, b->info.tenant, is_packed))
            b->saving->look_ms = now + PLACE_LOOK_MS; /* it stays frozen and waits */
        else if (pack(k, i, &err) < 0)
            fail(k, i, &err);
    } else if (now < b->saving->began_ms + FREEZE_MAX_MS) {
        b->saving->look_ms = now + FREEZE_LOOK_MS;
    } else {
        cove_fail(&err, COVE_TIMEOUT, "sandbox '%s' did not freeze", b->info.id);
        fail(k, i, &err);
    }
}

/* When init has ended, all processes of the sandbox have ended, so its files do not change any more. */
bool saving_survives(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct cove_err err = { 0 };

    if (!b->saving)
        return false;
    log_event(LOG_LEVEL_WARN,
              "the init of a sandbox died while it was being saved: its files are saved",
              LOG_S("sandbox", b->info.id), LOG_S("tenant", b->info.tenant));
    if (b->saving->step != SAVING_FREEZE || pack(k, i, &err) == 0)
        return true;
    give_up(k, i, &err);
    return false;
}

/* ------------------------------------------------------------------ the beginning */

static int check(struct keeper *k, const struct box *b, struct cove_err *e)
{
    if (b->info.state == BOX_AGEING)
        return cove_fail(e, COVE_CONFLICT,
                         "sandbox '%s' cannot be paused: a newer one has taken its place",
                         b->info.id);
    if (b->capture)
        return cove_fail(e, COVE_BUSY, "a snapshot of sandbox '%s' is being taken", b->info.id);
    if (saved_check_room(k, b->info.tenant, 0, e) < 0)
        return -1;
    return disk_check_room(&k->disk, e);
}

int saving_begin(struct keeper *k, uint32_t i, const struct waiter *w, struct cove_err *e)
{
    struct box *b = &k->boxes[i];
    bool was_live = b->info.state == BOX_LIVE;

    if (!b->saving) {
        if (check(k, b, e) < 0 ||
            (was_live && cgroup_freeze_begin(&k->cgroups, b->info.id, true, e) < 0))
            return -1;
        b->saving = calloc(1, sizeof(*b->saving));
        if (!b->saving)
            return cove_fail(e, COVE_INTERNAL, "out of memory");
        *b->saving = (struct saving){ .was_live = was_live,
                                      .began_ms = clock_boot_ms(),
                                      .encrypted = k->config.store_recipient[0] != 0,
                                      .archive = -1,
                                      .dir = -1 };
        b->info.flags |= BOX_IS_SAVING;
        b->freeze_began_ms = 0; /* requests that wait for the freeze now wait for the save */
        if (was_live)
            b->info.frozen_ms = clock_boot_ms();
        boxes_set_state(k, i, BOX_FROZEN);
        fault_point("save-begun", b);
    }
    if (w)
        waiters_add(b, w);
    return 0;
}

int saving_ask(struct keeper *k, const struct keeper_which *args, const struct waiter *w,
               struct cove_err *e)
{
    uint32_t i;

    if (saved_find_id(k, args->tenant, args->id, &i)) {
        keeper_answer(k, w, MSG_DONE, NULL, 0);
        return 0;
    }
    if (boxes_find_owned(k, args->tenant, args->id, &i, e) < 0)
        return -1;
    return saving_begin(k, i, w, e);
}

bool saving_loses_nothing(const struct keeper *k, const struct box_info *b)
{
    return k->config.save_in_memory || !dialect_has(b->dialect, DIALECT_KEEPS_IN_MEMORY);
}
