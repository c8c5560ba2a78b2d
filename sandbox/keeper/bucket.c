/*
 * Saved sandboxes on their way to a bucket (cove/bucket.h). They are saved on this machine first, as without a
 * bucket (saving.c), and are uploaded in the background. An empty file in a saved sandbox's directory is a mark
 * that tells where its archive is:
 *
 *   (none)     on this machine                                        next: upload() sets the mark
 *   uploading  on this machine, and parts of it may be in the bucket  next: cove-bucket uploads it, reads it back
 *   uploaded   only in the bucket, claimed by this machine            next: release() ends the claim
 *   bucket     only in the bucket, and any machine may claim it
 *
 * A step that fails, or during which something dies, is tried again later; until the mark "uploaded" is set the
 * archive stays on this machine. To wake a sandbox whose mark is "bucket", the keeper sets "uploaded", claims it,
 * and unpacks it while it arrives (waking.c). A sandbox that was woken or removed leaves a file saved/.gone-ID-MS,
 * which stays until its objects in the bucket are gone as well.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/keys.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/bucket_start.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

enum {
    JOBS_MAX = 2, /* uploads and releases at a time */
    RETRY_MS = 5000,
    RETRY_MAX_MS = 10 * 60000,
    IDLE_MS = 60000,
};

/* ------------------------------------------------------------------ marks */

static int set_mark(struct saved *s, int dir, enum saved_place place, struct cove_err *e)
{
    const char *was = saved_marks[s->place], *is = saved_marks[place];
    AUTO_CLOSE int fd = -1;

    if (was ? renameat(dir, was, dir, is) < 0
            : (fd = openat(dir, is, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "mark of a saved sandbox");
    if (fsync(dir) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "directory of a saved sandbox");
    s->place = place;
    return 0;
}

static uint64_t delay_ms(unsigned tries)
{
    uint64_t ms = (uint64_t)RETRY_MS << (tries < 8 ? tries : 8);
    uint32_t chance;

    text_random(&chance, sizeof(chance));
    ms = ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS;
    return ms / 2 + chance % (ms / 2);
}

static void try_later(struct keeper *k, struct saved *s, const char *event,
                      const struct cove_err *err)
{
    uint64_t ms = delay_ms(s->tries++);

    log_error(event, err, LOG_S("sandbox", s->info.box.id), LOG_S("tenant", s->info.box.tenant),
              LOG_N("again_in_ms", ms));
    s->try_at_ms = clock_boot_ms() + ms;
    k->bucket.due_ms = 0;
}

/* ------------------------------------------------------------------ up, and free for all */

static void end_step(struct keeper *k, struct saved *s)
{
    s->job = NULL;
    k->bucket.jobs--;
    k->bucket.due_ms = 0;
}

static void on_released(struct keeper *k, uint32_t i, const struct bucket_report *report,
                        struct cove_err *err)
{
    struct saved *s = &k->saved[i];
    AUTO_CLOSE int dir = -1;

    end_step(k, s);
    if (!report || saved_open_dir(k, s->info.box.id, &dir, err) < 0 ||
        set_mark(s, dir, SAVED_IS_THERE, err) < 0)
        try_later(k, s, "a saved sandbox in the bucket cannot be taken by other machines yet", err);
    else
        s->tries = 0;
}

static void on_uploaded(struct keeper *k, uint32_t i, const struct bucket_report *report,
                        struct cove_err *err)
{
    struct saved *s = &k->saved[i];
    AUTO_CLOSE int dir = -1;

    end_step(k, s);
    fault_point("bucket-put", NULL);
    if (!report || saved_open_dir(k, s->info.box.id, &dir, err) < 0 ||
        set_mark(s, dir, SAVED_IS_OURS, err) < 0) {
        try_later(k, s,
                  "a saved sandbox is not in the bucket yet, its archive stays on this machine",
                  err);
        return;
    }
    fault_point("bucket-marked", NULL);
    unlinkat(dir, saved_archive_name(&s->info), 0);
    s->tries = 0;
    log_event(LOG_LEVEL_INFO, "saved sandbox is in the bucket", LOG_S("sandbox", s->info.box.id),
              LOG_S("tenant", s->info.box.tenant), LOG_N("bytes", s->info.stored_bytes),
              LOG_N("requests", report->requests),
              LOG_N("duration_ms", clock_boot_ms() - s->began_ms));
}

static int write_seal(struct keeper *k, int dir, struct cove_err *e)
{
    char secret[TOKEN_SECRET_BYTES + 1], seal[SAVED_DIGEST_TEXT];
    AUTO_CLOSE int fd = -1;
    int rc = -1;

    if (read_file_at(k->state_dir, TOKEN_SECRET_FILE, secret, sizeof(secret)) == TOKEN_SECRET_BYTES)
        rc = saved_seal(dir, secret, TOKEN_SECRET_BYTES, seal, e);
    explicit_bzero(secret, sizeof(secret));
    if (rc == 0)
        fd = openat(dir, SAVED_SEAL, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, seal, strlen(seal)) != (ssize_t)strlen(seal))
        return cove_fail_errno(e, COVE_LIMIT, "seal of a saved sandbox");
    return 0;
}

static int upload(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct saved *s = &k->saved[i];
    struct bucket_task task = { .index = i, .out = -1, .done = on_uploaded };
    int notes[BUCKET_NOTES], count = 0, rc = -1;
    AUTO_CLOSE int dir = -1;

    bucket_order_of(&s->info, BUCKET_PUT, &task.order);
    if (saved_open_dir(k, s->info.box.id, &dir, e) < 0 || write_seal(k, dir, e) < 0 ||
        (s->place == SAVED_IS_HERE && set_mark(s, dir, SAVED_IS_LEAVING, e) < 0))
        return -1;
    task.in = openat(dir, saved_archive_name(&s->info), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (task.in < 0)
        return cove_fail_errno(e, COVE_NOT_FOUND, "archive of '%s'", s->info.box.id);
    for (unsigned n = 0; n < BUCKET_NOTES; n++) {
        notes[count] = openat(dir, bucket_notes[n], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (notes[count] >= 0) {
            task.order.notes |= 1u << n;
            count++;
        }
    }
    task.notes = notes;
    s->began_ms = clock_boot_ms();
    rc = bucket_run_start(k, &task, &s->job, e);
    while (count > 0)
        close(notes[--count]);
    close(task.in);
    fault_point("bucket-begun", NULL);
    return rc;
}

static int release(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct bucket_task task = { .index = i, .in = -1, .out = -1, .done = on_released };

    bucket_order_of(&k->saved[i].info, BUCKET_RELEASE, &task.order);
    return bucket_run_start(k, &task, &k->saved[i].job, e);
}

/* The next step for one saved sandbox. Nothing is done to it while it is being woken. */
static void next_step(struct keeper *k, uint32_t i, uint64_t now)
{
    struct saved *s = &k->saved[i];
    const struct box *b = boxes_by_id(k, s->info.box.id);
    struct cove_err err = { 0 };

    if (s->job || s->place == SAVED_IS_THERE || (b && b->info.state == BOX_BUILDING))
        return;
    if (now < s->try_at_ms) {
        if (s->try_at_ms < k->bucket.due_ms)
            k->bucket.due_ms = s->try_at_ms;
        return;
    }
    if (k->bucket.jobs >= JOBS_MAX)
        return; /* end_step() of one of them begins the next */
    if ((s->place == SAVED_IS_OURS ? release(k, i, &err) : upload(k, i, &err)) < 0)
        try_later(k, s, "work on a saved sandbox in the bucket could not begin", &err);
    else
        k->bucket.jobs++;
}

/* ------------------------------------------------------------------ out of the bucket */

void bucket_gone(struct keeper *k, const struct saved_info *info)
{
    char name[96];
    AUTO_CLOSE int fd = -1;

    snprintf(name, sizeof(name), SAVED_GONE "%s-%llu", info->box.id,
             (unsigned long long)info->saved_unix_ms);
    fd = openat(k->saved_dir, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fsync(k->saved_dir) < 0)
        log_event(LOG_LEVEL_ERROR,
                  "objects of a saved sandbox stay in the bucket: `cove store ls "
                  "--bucket` shows them",
                  LOG_S("sandbox", info->box.id));
    k->bucket.gone = true;
    k->bucket.due_ms = 0;
}

static bool parse_gone(const char *name, struct bucket_order *ret)
{
    size_t head = strlen(SAVED_GONE);

    *ret = (struct bucket_order){ .work = BUCKET_REMOVE };
    if (strncmp(name, SAVED_GONE, head) != 0 || strlen(name) < head + COVE_ID_LEN + 2)
        return false;
    memcpy(ret->id, name + head, COVE_ID_LEN);
    return text_is_id(ret->id) && name[head + COVE_ID_LEN] == '-' &&
           text_parse_u64(name + head + COVE_ID_LEN + 1, &ret->saved_unix_ms, NULL) == 0;
}

static void on_removed(struct keeper *k, uint32_t index, const struct bucket_report *report,
                       struct cove_err *err)
{
    uint64_t ms = delay_ms(k->bucket.gone_tries);

    (void)index;
    k->bucket.removal = NULL;
    k->bucket.due_ms = 0;
    if (report && unlinkat(k->saved_dir, k->bucket.removing, 0) == 0) {
        k->bucket.gone_tries = 0;
        return;
    }
    k->bucket.gone_tries++;
    k->bucket.gone_at_ms = clock_boot_ms() + ms;
    log_error("a saved sandbox that was woken or removed is still in the bucket", err,
              LOG_S("name", k->bucket.removing), LOG_N("again_in_ms", ms));
}

static bool find_gone(struct keeper *k, struct bucket_order *ret)
{
    int fd = openat(k->saved_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;
    bool found = false;

    while (dir && !found && (d = readdir(dir))) {
        found = parse_gone(d->d_name, ret);
        if (found)
            text_copy(k->bucket.removing, sizeof(k->bucket.removing), d->d_name);
    }
    if (dir)
        closedir(dir);
    return found;
}

static void remove_next(struct keeper *k, uint64_t now)
{
    struct bucket_task task = { .in = -1, .out = -1, .done = on_removed };
    struct cove_err err = { 0 };

    if (!k->bucket.gone || k->bucket.removal)
        return;
    if (now < k->bucket.gone_at_ms) {
        if (k->bucket.gone_at_ms < k->bucket.due_ms)
            k->bucket.due_ms = k->bucket.gone_at_ms;
        return;
    }
    k->bucket.gone = find_gone(k, &task.order);
    if (k->bucket.gone && bucket_run_start(k, &task, &k->bucket.removal, &err) < 0)
        on_removed(k, 0, NULL, &err);
}

/* ------------------------------------------------------------------ all of it */

uint64_t bucket_tick(struct keeper *k, uint64_t now, uint64_t next)
{
    uint32_t places = state_saved(k->state) ? state_box_count(state_saved(k->state)) : 0;

    if (!bucket_is_configured(&k->config) || k->stopping)
        return next;
    if (now >= k->bucket.due_ms) {
        k->bucket.due_ms = now + IDLE_MS;
        remove_next(k, now);
        for (uint32_t i = 0; i < places; i++)
            if (k->saved[i].info.box.state == BOX_SAVED)
                next_step(k, i, now);
    }
    return k->bucket.due_ms < next ? k->bucket.due_ms : next;
}

void bucket_forget(struct keeper *k, struct saved *s)
{
    job_abandon(s->job);
    if (s->job)
        end_step(k, s);
}

/* ------------------------------------------------------------------ to be woken */

int bucket_fetch(struct keeper *k, uint32_t saved, const struct bucket_task *how, struct job **ret,
                 struct cove_err *e)
{
    struct saved *s = &k->saved[saved];
    struct bucket_task task = *how;
    AUTO_CLOSE int dir = -1;

    bucket_order_of(&s->info, BUCKET_TAKE, &task.order);
    bucket_forget(k, s); /* a release that is about to begin must not happen now */
    if (s->place == SAVED_IS_THERE &&
        (saved_open_dir(k, s->info.box.id, &dir, e) < 0 || set_mark(s, dir, SAVED_IS_OURS, e) < 0))
        return -1;
    return bucket_run_start(k, &task, ret, e);
}
