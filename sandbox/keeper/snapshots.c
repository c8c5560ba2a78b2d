/*
 * Snapshots: the files of a sandbox at one moment (capture.c takes them), which new sandboxes are made of. The
 * table is in memory; each snapshot has a directory below state_dir/snapshots:
 *
 *   info      its record, with a word and its value on each line; written last, so that a directory
 *             without it belongs to a capture that was cut off
 *   run       its manifest, if it has one of its own
 *   layers    the list of layers at the bottom of all, the same file as the template's; `base` has none
 *   removed   nobody finds the snapshot any more; its files stay as long as somebody needs them
 *
 * A snapshot stands on its parent: the snapshot that its sandbox was made of. So a snapshot is in use as long
 * as there is a sandbox or another snapshot that was made of it.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/store.h"

enum {
    TICK_MS = 1000,
    DROPS_MAX = 2,
    PASSING_MS = 60000, /* the sandboxes of a fork are made within this time */
};

/* ------------------------------------------------------------------ the table */

static struct snapshot *find_id(const struct keeper *k, const char *id)
{
    for (uint32_t i = 0; *id && i < k->snapshots.count; i++)
        if (strcmp(k->snapshots.items[i].info.id, id) == 0)
            return &k->snapshots.items[i];
    return NULL;
}

const struct snapshot *snapshots_parent(const struct keeper *k, const struct snapshot *s)
{
    return find_id(k, s->parent);
}

const struct snapshot *snapshots_of_box(const struct keeper *k, const struct box_info *b)
{
    return find_id(k, b->snapshot);
}

struct snapshot *snapshots_find(const struct keeper *k, const char *tenant, const char *word)
{
    for (uint32_t i = 0; *word && i < k->snapshots.count; i++)
        if (snapshot_is_named(&k->snapshots.items[i], tenant, word))
            return &k->snapshots.items[i];
    return NULL;
}

uint64_t snapshots_count(const struct keeper *k, const char *tenant, uint64_t *ret_bytes)
{
    uint64_t count = 0;

    *ret_bytes = 0;
    for (uint32_t i = 0; i < k->snapshots.count; i++) {
        const struct snapshot *s = &k->snapshots.items[i];

        if (strcmp(s->info.tenant, tenant) != 0)
            continue;
        count += !snapshot_is_own_name(s->info.name);
        *ret_bytes += s->info.bytes;
    }
    return count;
}

static struct snapshot *append(struct keeper *k, const struct snapshot *s)
{
    struct snapshots *all = &k->snapshots;

    if (all->count == all->room) {
        uint32_t room = all->room ? 2 * all->room : 64;
        struct snapshot *items = realloc(all->items, room * sizeof(*items));

        if (!items)
            return NULL;
        all->items = items;
        all->room = room;
    }
    all->items[all->count] = *s;
    return &all->items[all->count++];
}

/* ------------------------------------------------------------------ its directory */

int snapshots_open_dir(const struct keeper *k, const char *id)
{
    return openat(k->disk.snapshots_dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int snapshots_save(struct keeper *k, const struct snapshot *s, struct cove_err *e)
{
    AUTO_CLOSE int dir = snapshots_open_dir(k, s->info.id);

    return dir < 0 ? cove_fail_errno(e, COVE_INTERNAL, "directory of the snapshot")
                   : snapshot_info_write(dir, s, e);
}

/* ------------------------------------------------------------------ made and removed */

int snapshots_begin(struct keeper *k, const struct box_info *b, const char *id, struct cove_err *e)
{
    AUTO_CLOSE int dir = -1;
    char list[64];

    snprintf(list, sizeof(list), "%s/layers", b->id);
    if (mkdirat(k->disk.snapshots_dir, id, 0700) < 0 || (dir = snapshots_open_dir(k, id)) < 0 ||
        (linkat(k->boxes_dir, list, dir, "layers", 0) < 0 && errno != ENOENT))
        return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL,
                               "directory of the snapshot");
    return 0;
}

void snapshots_mark_removed(struct keeper *k, struct snapshot *s)
{
    AUTO_CLOSE int dir = snapshots_open_dir(k, s->info.id);
    AUTO_CLOSE int fd = -1;

    if (dir >= 0)
        fd = openat(dir, "removed", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    s->removed = true;
    k->snapshots.next_ms = 0;
}

void snapshots_drop(struct keeper *k, const struct snapshot *s)
{
    struct snapshot *kept = append(k, s);

    if (!kept)
        return;
    kept->info.created_unix_ms = 0; /* forget() then takes no room back: none was given */
    snapshots_mark_removed(k, kept);
}

/* The new snapshot takes its name and its one tag, which is in info.tags, away from the snapshot that had
 * them until now. */
int snapshots_add(struct keeper *k, const struct snapshot *s, struct cove_err *e)
{
    struct snapshot *added = append(k, s);

    if (!added)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    added->info.tags[0] = '\0';
    if ((s->info.name[0] ? snapshot_take_tag(k, added, s->info.name, s->info.tags, e)
                         : snapshots_save(k, added, e)) < 0) {
        assert(added == &k->snapshots.items[k->snapshots.count - 1]);
        k->snapshots.count--;
        return -1;
    }
    snapshot_manifest_load(k, added);
    disk_adjust_limit(&k->disk, s->info.sandbox, s->info.bytes, true);
    return 0;
}

int snapshots_remove(struct keeper *k, const struct keeper_snapshot_name *args, struct cove_err *e)
{
    struct snapshot *s = snapshots_find(k, args->tenant, args->name);

    if (!s)
        return cove_fail(e, COVE_NOT_FOUND, "no snapshot '%.60s'", args->name);
    log_event(LOG_LEVEL_INFO, "snapshot removed", LOG_S("snapshot", s->info.id),
              LOG_S("tenant", s->info.tenant), LOG_S("name", s->info.name));
    snapshots_mark_removed(k, s);
    return 0;
}

void snapshots_list(const struct keeper *k, const struct keeper_snapshots *args,
                    struct keeper_snapshot_list *ret)
{
    uint64_t i = args->from;

    *ret = (struct keeper_snapshot_list){ 0 };
    for (; i < k->snapshots.count && ret->head.count < KEEPER_SNAPSHOT_PAGE; i++) {
        const struct snapshot *s = &k->snapshots.items[i];

        if (!s->removed && !(s->info.flags & CAPTURE_PASSING) &&
            !snapshot_is_own_name(s->info.name) &&
            (!args->tenant[0] || strcmp(s->info.tenant, args->tenant) == 0))
            ret->items[ret->head.count++] = s->info;
    }
    ret->head.more = i < k->snapshots.count;
    ret->head.next = i;
}

/* ------------------------------------------------------------------ by the clock */

static bool in_use(const struct keeper *k, const struct snapshot *s)
{
    for (uint32_t i = 0; i < k->snapshots.count; i++)
        if (strcmp(k->snapshots.items[i].parent, s->info.id) == 0)
            return true;
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (k->boxes[i].info.state != BOX_EMPTY &&
            strcmp(k->boxes[i].info.snapshot, s->info.id) == 0)
            return true;
    return saved_stands_on(k, s->info.id);
}

static bool has_passed(const struct snapshot *s)
{
    return s->info.flags & CAPTURE_PASSING &&
           clock_unix_ms() > s->info.created_unix_ms + PASSING_MS;
}

static pid_t sweep_async(const struct keeper *k, const struct snapshot *s)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    title_set("cove: sweeper");
    setpriority(PRIO_PROCESS, 0, 10); /* nobody waits for the sweeper */
    disk_snapshot_drop(&k->disk, s->info.id);
    _exit(0);
}

uint64_t snapshots_tick(struct keeper *k, uint64_t now, uint64_t next)
{
    struct snapshots *all = &k->snapshots;

    if (now < all->next_ms || all->count == 0)
        return all->count ? earliest_ms(next, all->next_ms) : next;
    all->next_ms = now + TICK_MS;
    for (uint32_t i = 0; i < all->count && all->sweepers < DROPS_MAX; i++) {
        struct snapshot *s = &all->items[i];

        if (s->sweeper || !(s->removed || has_passed(s)) || in_use(k, s))
            continue;
        if (!s->removed)
            snapshots_mark_removed(k, s);
        s->sweeper = sweep_async(k, s);
        if (s->sweeper > 0)
            all->sweepers++;
        else
            s->sweeper = 0;
    }
    return earliest_ms(next, all->next_ms);
}

/* The files of a snapshot are gone: takes the snapshot out of the table, and takes back the room on disk
 * that its sandbox was given for it. */
static void forget(struct keeper *k, uint32_t i)
{
    struct snapshots *all = &k->snapshots;
    const struct snapshot *s = &all->items[i];

    snapshot_manifest_forget(k, &all->items[i]);
    if (s->info.created_unix_ms)
        disk_adjust_limit(&k->disk, s->info.sandbox, s->info.bytes, false);
    all->items[i] = all->items[--all->count];
    all->next_ms = 0;
}

void snapshots_reap(struct keeper *k)
{
    for (uint32_t i = k->snapshots.count; i > 0; i--) {
        struct snapshot *s = &k->snapshots.items[i - 1];

        if (s->sweeper <= 0 || waitpid(s->sweeper, NULL, WNOHANG) != s->sweeper)
            continue;
        s->sweeper = 0;
        assert(k->snapshots.sweepers > 0);
        k->snapshots.sweepers--;
        if (faccessat(k->disk.snapshots_dir, s->info.id, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            forget(k, i - 1);
    }
}

/* ------------------------------------------------------------------ start and end */

static void load_one(struct keeper *k, const char *id)
{
    AUTO_CLOSE int dir = snapshots_open_dir(k, id), files = -1;
    struct snapshot s = { 0 }, *kept;
    struct cove_err err = { 0 };
    bool whole;

    if (dir < 0)
        return;
    text_copy(s.info.id, sizeof(s.info.id), id);
    whole = snapshot_info_read(dir, &s);
    s.removed = !whole || faccessat(dir, "removed", F_OK, 0) == 0;
    kept = append(k, &s);
    if (kept)
        snapshot_manifest_load(k, kept);
    if (kept && !s.removed && disk_snapshot_open(&k->disk, id, &files, &err) < 0)
        log_error("a snapshot's files are not there", &err, LOG_S("snapshot", id),
                  LOG_S("tenant", s.info.tenant), LOG_S("name", s.info.name));
}

void snapshots_load(struct keeper *k)
{
    int fd = openat(k->disk.snapshots_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    while (dir && (d = readdir(dir)))
        if (text_is_id(d->d_name))
            load_one(k, d->d_name);
    if (dir)
        closedir(dir);
    snapshot_drop_outdated(k);
}

/* When the server stops for good no sandbox lives any more: snapshots that only sandboxes needed are removed
 * now, so that nothing is left of them. */
void snapshots_done(struct keeper *k, bool for_good)
{
    bool again = for_good;

    while (again) {
        again = false;
        for (uint32_t i = k->snapshots.count; i > 0; i--) {
            struct snapshot *s = &k->snapshots.items[i - 1];

            if (!(s->removed || s->info.flags & CAPTURE_PASSING) || in_use(k, s))
                continue;
            if (s->sweeper > 0)
                waitpid(s->sweeper, NULL, 0);
            disk_snapshot_drop(&k->disk, s->info.id);
            snapshot_manifest_forget(k, s);
            *s = k->snapshots.items[--k->snapshots.count];
            again = true;
        }
    }
    for (uint32_t i = 0; i < k->snapshots.count; i++)
        manifest_free(k->snapshots.items[i].manifest);
    free(k->snapshots.items);
    k->snapshots = (struct snapshots){ 0 };
}
