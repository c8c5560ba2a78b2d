/*
 * What the keeper does after a restart. Shared memory says which sandboxes there were, the kernel says which
 * processes and cgroups there are. A sandbox on which both agree is taken over as if nothing had happened;
 * everything else is brought to a clean end. Nothing that workers can write is looked at.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/store.h"

static bool lives(const struct keeper *k, const struct box_info *b)
{
    return b->init_pid > 1 && b->init_start != 0 &&
           process_start_time((pid_t)b->init_pid) == b->init_start &&
           cgroup_has_pid(&k->cgroups, b->id, (pid_t)b->init_pid);
}

/* The pidfd was stored at the process's birth (fdstore.c), or it is opened here before the start time is
 * compared. Either way it cannot stand for another process that got the same pid. */
static int adopt_box(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    uint32_t id_count;

    b->build.pid = (pid_t)b->info.init_pid;
    b->build.pidfd = fdstore_take_box(&k->fdstore, b->info.id, b->build.pid);
    if (b->build.pidfd < 0) {
        b->build.pidfd = pidfd_open(b->build.pid, 0);
        if (b->build.pidfd >= 0) {
            fcntl(b->build.pidfd, F_SETFD, FD_CLOEXEC);
            fdstore_put_box(&k->fdstore, b->info.id, b->build.pidfd);
        }
    }
    b->build.pidfd = fd_raise(b->build.pidfd, BUILD_HIGH_FD);
    if (!lives(k, &b->info)) {
        fdstore_drop_box(&k->fdstore, b->info.id);
        b->build.pidfd = cove_close(b->build.pidfd);
        return -1;
    }
    b->promised = b->info.tenant[0] != '\0';
    if ((id_count = userns_count(b->build.pid, b->info.id_base)) > 0)
        b->id_count = id_count;
    boxes_file(k, i);
    if (b->info.flags & BOX_CAPTURED)
        capture_thaw(k, i);
    return boxes_watch_exit(k, i, NULL);
}

static unsigned adopt_all(struct keeper *k)
{
    unsigned living = 0;

    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct box *b = &k->boxes[i];

        state_box_read(k->state, i, &b->info);
        if (b->info.state == BOX_EMPTY)
            continue;
        if (!text_is_id(b->info.id)) {
            b->info = (struct box_info){ .generation = b->info.generation };
            state_box_write(k->state, i, &b->info);
            continue;
        }
        b->id_count = (uint32_t)k->config.id_count;
        boxes_file(k, i);
        if (adopt_box(k, i) < 0 || !boxes_runs(k, i))
            death_begin(k, i, END_GONE, 0);
        else
            living++;
    }
    return living;
}

static bool is_known(const struct keeper *k, const char *id)
{
    return boxes_by_id(k, id) != NULL;
}

static void end_stray_cgroup(void *arg, const char *id)
{
    struct keeper *k = arg;

    if (is_known(k, id))
        return;
    log_event(LOG_LEVEL_WARN, "a sandbox that no record names was ended", LOG_S("sandbox", id));
    cgroup_kill_box(&k->cgroups, id);
    for (int tries = 0; tries < 200 && cgroup_remove_box(&k->cgroups, id) < 0; tries++)
        usleep(5000);
}

/* Removes the directories of sandboxes that nobody knows, one by one, before the first sandbox is made. */
static void sweep_strays(struct keeper *k)
{
    int fd = openat(k->boxes_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    while (dir && (d = readdir(dir)))
        if (text_is_id(d->d_name) && !is_known(k, d->d_name))
            disk_sweep(&k->disk, d->d_name);
    if (dir)
        closedir(dir);
}

/* Removes files below run_dir whose name is the id of a sandbox that nobody knows. */
static void unlink_strays(struct keeper *k, const char *folder)
{
    char path[256];
    DIR *dir;
    struct dirent *d;

    snprintf(path, sizeof(path), "%s/%s", k->config.run_dir, folder);
    dir = opendir(path);
    while (dir && (d = readdir(dir)))
        if (text_is_id(d->d_name) && !is_known(k, d->d_name) && !saved_knows(k, d->d_name) &&
            !ended_knows(k, d->d_name))
            unlinkat(dirfd(dir), d->d_name, 0);
    if (dir)
        closedir(dir);
}

int adopt_boxes(struct keeper *k, bool kept, struct cove_err *e)
{
    unsigned living = adopt_all(k);

    (void)e;
    saved_settle(k);
    state_rebuild_hints(k->state);
    cgroup_each_box(&k->cgroups, end_stray_cgroup, k);
    sweep_strays(k);
    unlink_strays(k, "boxes");
    unlink_strays(k, ATTRIBUTES_DIR);
    if (living == 0)
        template_sweep_old(k->state_dir);
    if (kept)
        log_event(LOG_LEVEL_INFO, "state taken over", LOG_N("sandboxes", living),
                  LOG_N("pidfds", k->fdstore.boxes));
    return 0;
}
