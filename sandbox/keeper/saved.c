/*
 * The saved sandboxes that the keeper knows: directories below <state_dir>/saved (cove/saved.h), a
 * table here, and its mirror in shared memory, where workers find them. The directories are the
 * truth: the table is read from them at every start.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "cove/weak.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/store.h"

uint32_t saved_places(const struct keeper *k)
{
    return state_saved(k->state) ? state_box_count(state_saved(k->state)) : 0;
}

/* ------------------------------------------------------------------ finding */

bool saved_knows(const struct keeper *k, const char *id)
{
    return faccessat(k->saved_dir, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool saved_find_id(const struct keeper *k, const char *tenant, const char *id, uint32_t *ret)
{
    const struct state *s = state_saved(k->state);
    struct box_info info;

    return s && (state_find_id(s, tenant, id, ret, &info) ||
                 (weak("tenants") && state_find_id_any(s, id, ret, &info)));
}

bool saved_find_project(const struct keeper *k, const char *tenant, const char *project,
                        uint32_t *ret)
{
    const struct state *s = state_saved(k->state);
    struct box_info info;

    return s && state_find_project(s, tenant, project, ret, &info);
}

void saved_flag(struct keeper *k, const char *id, uint32_t take, uint32_t add)
{
    struct state *table = state_saved(k->state);
    struct box_info info;
    uint32_t i;

    if (!table || !state_find_id_any(table, id, &i, &info))
        return;
    k->saved[i].info.box.flags = (k->saved[i].info.box.flags & ~take) | add;
    state_box_write(table, i, &k->saved[i].info.box);
}

int saved_open_dir(const struct keeper *k, const char *id, int *ret, struct cove_err *e)
{
    *ret = openat(k->saved_dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_NOT_FOUND, "saved sandbox '%s'", id) : 0;
}

bool saved_stands_on(const struct keeper *k, const char *snapshot)
{
    for (uint32_t i = 0; i < saved_places(k); i++)
        if (k->saved[i].info.box.state == BOX_SAVED &&
            strcmp(k->saved[i].info.box.snapshot, snapshot) == 0)
            return true;
    return false;
}

/* ------------------------------------------------------------------ room */

struct tally {
    uint64_t count, bytes;
    uint64_t bytes_here; /* of the archives that are on this machine's disk */
};

static struct tally tally_of(const struct keeper *k, const char *tenant)
{
    struct tally t = { 0 };

    for (uint32_t i = 0; i < saved_places(k); i++) {
        const struct saved_info *s = &k->saved[i].info;

        if (s->box.state != BOX_SAVED || strcmp(s->box.tenant, tenant) != 0)
            continue;
        t.count++;
        t.bytes += s->stored_bytes;
        if (k->saved[i].place < SAVED_IS_OURS)
            t.bytes_here += s->stored_bytes;
    }
    return t;
}

static int find_place(const struct keeper *k, uint32_t *ret)
{
    for (uint32_t i = 0; i < saved_places(k); i++)
        if (k->saved[i].info.box.state == BOX_EMPTY) {
            *ret = i;
            return 0;
        }
    return -1;
}

/* How many sandboxes one tenant may save. Without a quota it leaves a quarter of the places to others. */
static uint64_t places_of_a_tenant(const struct cove_config *c)
{
    return c->tenant_saved ? c->tenant_saved : c->max_saved - c->max_saved / 4;
}

/* As it is now: what disk_tick() found a second ago does not know the archives that were written since. */
static uint64_t free_bytes(const struct keeper *k)
{
    struct statvfs fs;

    return fstatvfs(k->saved_dir, &fs) < 0 ? k->disk.free_bytes
                                           : (uint64_t)fs.f_bavail * fs.f_frsize;
}

uint64_t saved_room(const struct keeper *k, const char *tenant)
{
    struct tally t = tally_of(k, tenant);
    uint64_t quota = k->config.tenant_saved_bytes, share = 0, there = free_bytes(k);
    uint64_t room = there > k->disk.reserve_bytes ? there - k->disk.reserve_bytes : 0;

    if (quota)
        share = quota > t.bytes ? quota - t.bytes : 0;
    else if (t.bytes_here < 3 * room)
        share =
            (3 * room - t.bytes_here) / 4; /* with this its archives are three times what is left */
    return share < room ? share : room;
}

int saved_check_room(struct keeper *k, const char *tenant, uint64_t bytes, struct cove_err *e)
{
    const struct cove_config *c = &k->config;
    struct tally t = tally_of(k, tenant);
    uint32_t place;

    if (t.count >= places_of_a_tenant(c))
        return cove_fail(e, COVE_QUOTA,
                         "quota: this tenant has %llu saved sandboxes, and may have no more",
                         (unsigned long long)t.count);
    if (c->tenant_saved_bytes && t.bytes + (bytes ? bytes : 1) > c->tenant_saved_bytes)
        return cove_fail(
            e, COVE_QUOTA, "quota: this tenant's saved sandboxes take %llu MiB, and may take %llu",
            (unsigned long long)(t.bytes >> 20), (unsigned long long)(c->tenant_saved_bytes >> 20));
    if (find_place(k, &place) < 0)
        return cove_fail(e, COVE_BUSY,
                         "the store holds %llu sandboxes and takes no more (max_saved)",
                         (unsigned long long)c->max_saved);
    return 0;
}

/* ------------------------------------------------------------------ coming and going */

int saved_put(struct keeper *k, const struct saved_info *info, enum saved_place place,
              struct cove_err *e)
{
    uint32_t i;

    if (find_place(k, &i) < 0)
        return cove_fail(e, COVE_BUSY, "no room among the saved sandboxes (max_saved)");
    k->saved[i] = (struct saved){ .info = *info, .place = place };
    k->saved[i].info.box.state = BOX_SAVED;
    /* core_sandbox_ends_unix_ms() adds these figures up, so that the end which people see is the time of
     * saving. */
    k->saved[i].info.box.created_ms = 0;
    k->saved[i].info.box.frozen_ms = info->saved_unix_ms - info->box.created_unix_ms;
    retention_note(k, &k->saved[i]);
    state_box_write(state_saved(k->state), i, &k->saved[i].info.box);
    k->bucket.due_ms = 0;
    k->saved_next_ms = 0;
    return 0;
}

static bool has_bytes(int fd, const void *bytes, size_t len)
{
    AUTO_FREE char *there = malloc(len + 1);

    return there && pread(fd, there, len + 1, 0) == (ssize_t)len && memcmp(there, bytes, len) == 0;
}

int saved_write(int dir, const char *name, const void *bytes, size_t len, bool *changed,
                struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd >= 0 && has_bytes(fd, bytes, len))
        return 0;
    *changed = true;
    if (fd < 0 || ftruncate(fd, 0) < 0 || write_all(fd, bytes, len) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "%s of a saved sandbox", name);
    return 0;
}

/* A grandchild removes the files, because an archive of many gigabytes takes long. The keeper does not have
 * to reap it. */
void saved_remove_dir(const struct keeper *k, const char *name)
{
    pid_t pid = fork();

    if (pid == 0) {
        if (fork() == 0) {
            title_set("cove: sweeper");
            sweep_tree(k->saved_dir, name, NULL);
        }
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

void saved_forget(struct keeper *k, uint32_t i, char ret_aside[SAVED_ASIDE])
{
    struct saved *s = &k->saved[i];
    struct cove_err gone = { .code = COVE_GONE, .msg = "the saved sandbox was removed" };

    snprintf(ret_aside, SAVED_ASIDE, SAVED_OLD "%s", s->info.box.id);
    sweep_tree(k->saved_dir, ret_aside, NULL);
    bucket_forget(k, s);
    if (renameat(k->saved_dir, s->info.box.id, k->saved_dir, ret_aside) == 0 &&
        s->place != SAVED_IS_HERE)
        bucket_gone(k, &s->info);
    waiters_fail_list(k, &s->waiters, &gone);
    s->info = (struct saved_info){ 0 };
    state_box_write(state_saved(k->state), i, &s->info.box);
}

static void drop(struct keeper *k, uint32_t i)
{
    char aside[SAVED_ASIDE];

    saved_forget(k, i, aside);
    saved_remove_dir(k, aside);
}

static bool is_meant(const struct saved_info *s, const struct keeper_retire *args)
{
    if (s->box.state != BOX_SAVED || strcmp(s->box.tenant, args->tenant) != 0)
        return false;
    return args->id[0] ? strcmp(s->box.id, args->id) == 0
                       : strcmp(s->box.project, args->project) == 0;
}

void saved_remove(struct keeper *k, uint32_t i, enum end_cause cause, const char *event)
{
    struct box_info box = k->saved[i].info.box;

    log_event(LOG_LEVEL_INFO, event, LOG_S("sandbox", box.id), LOG_S("tenant", box.tenant),
              LOG_S("project", box.project));
    drop(k, i);
    if (!ended_put(k, &box, cause))
        attributes_remove(k, box.id);
}

void saved_retire(struct keeper *k, const struct keeper_retire *args)
{
    for (uint32_t i = 0; i < saved_places(k); i++)
        if (is_meant(&k->saved[i].info, args))
            saved_remove(k, i, END_KILLED, "saved sandbox removed");
}

/* ------------------------------------------------------------------ the start */

static void load_one(struct keeper *k, const char *name)
{
    struct saved_info info;
    struct cove_err err = { 0 };
    AUTO_CLOSE int dir = -1;

    if (saved_open_dir(k, name, &dir, &err) < 0 || saved_read(dir, &info, &err) < 0 ||
        (strcmp(info.box.id, name) != 0 &&
         cove_fail(&err, COVE_INVALID, "the record is of another sandbox") < 0) ||
        saved_put(k, &info, saved_place_of(dir), &err) < 0) {
        log_error("a saved sandbox cannot be used; `cove store ls` shows it", &err,
                  LOG_S("directory", name));
        return;
    }
    if (saved_place_of(dir) >= SAVED_IS_OURS) /* an earlier keeper died before it did this */
        unlinkat(dir, saved_archive_name(&info), 0);
    if (attributes_restore(k, name, dir, &err) < 0)
        log_error("attributes of a saved sandbox", &err, LOG_S("sandbox", name));
}

/* Finishes a removal that the end of a keeper has cut off. The sandbox's objects in the bucket are removed
 * too. */
static void finish_removal(struct keeper *k, const char *name)
{
    AUTO_CLOSE int dir =
        openat(k->saved_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct saved_info info;

    if (dir >= 0 && saved_place_of(dir) != SAVED_IS_HERE && saved_read(dir, &info, NULL) == 0)
        bucket_gone(k, &info);
    sweep_tree(k->saved_dir, name, NULL);
}

bool saved_find_new(struct keeper *k, const char *tenant, const char *id, uint32_t *ret)
{
    if (!text_is_id(id) || boxes_by_id(k, id) || !saved_knows(k, id))
        return false;
    load_one(k, id);
    return saved_find_id(k, tenant, id, ret);
}

static void load_all(struct keeper *k)
{
    int fd = openat(k->saved_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    while (dir && (d = readdir(dir))) {
        if (strncmp(d->d_name, SAVED_NEW, strlen(SAVED_NEW)) == 0)
            sweep_tree(k->saved_dir, d->d_name, NULL);
        else if (strncmp(d->d_name, SAVED_OLD, strlen(SAVED_OLD)) == 0)
            finish_removal(k, d->d_name);
        else if (text_is_id(d->d_name))
            load_one(k, d->d_name);
    }
    if (dir)
        closedir(dir);
}

static void clear_table(struct state *s)
{
    const struct box_info none = { 0 };

    for (uint32_t i = 0; i < state_box_count(s); i++)
        state_box_write(s, i, &none);
    state_rebuild_hints(s);
}

int saved_open(struct keeper *k, struct cove_err *e)
{
    uint32_t places = (uint32_t)k->config.max_saved;
    struct state *table = NULL;
    char path[256];
    bool kept;

    if (mkdirat(k->state_dir, SAVED_DIR, 0700) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INVALID, "directory of saved sandboxes");
    k->saved_dir = openat(k->state_dir, SAVED_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    k->saved = calloc(places, sizeof(*k->saved));
    if (k->saved_dir < 0 || !k->saved || fchmod(k->saved_dir, 0700) < 0)
        return cove_fail_errno(e, COVE_INVALID, "directory of saved sandboxes");
    snprintf(path, sizeof(path), "%s/state" STATE_SAVED_SUFFIX, k->config.run_dir);
    if (state_open(path, k->worker_gid, places, 1, 1, &table, &kept, e) < 0)
        return -1;
    state_give_saved(k->state, table);
    clear_table(table);
    k->bucket.gone = true;
    retention_open(k);
    load_all(k);
    return 0;
}

/*
 * A keeper that dies at the wrong moment leaves both a sandbox and a saved sandbox with one id. If the sandbox
 * is frozen, it had just been saved: the sandbox ends. If it runs, it had just been woken: its record in the
 * store is removed.
 */
void saved_settle(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        const struct box_info *b = &k->boxes[i].info;
        uint32_t s;

        if (!b->tenant[0] || !saved_find_id(k, b->tenant, b->id, &s))
            continue;
        if (b->state == BOX_FROZEN)
            death_begin(k, i, END_SAVED, 0);
        else if (b->state == BOX_LIVE || b->state == BOX_AGEING)
            drop(k, s);
    }
}
