/*
 * The cgroups of one sandbox. On v2 all of a sandbox's limits, its freezing and its killing are in one directory. On
 * hybrid hosts the controllers may still be on v1 while v2 has freezing and killing only; then
 * limits go to the v1 directories of the same name. cgroup_corner.c has found out which is where.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/cgroup_private.h"
#include "sandbox/box/tools.h"

enum { SOCKETS_PART = 4 }; /* a quarter of the memory limit, beside that limit */

/* The kernel goes through all cpu cgroups of the machine when a quota is written. A new cgroup has
 * none, so "none" needs no writing there. */
static bool needs_quota(const struct cgroup_limits *l, bool fresh)
{
    return l->cpu_percent || !fresh;
}

static int set_limits_v2(int dir, const bool on_v2[CGROUP_CONTROLLERS],
                         const struct cgroup_limits *l, bool fresh, struct cove_err *e)
{
    char quota[48];

    if (on_v2[CGROUP_MEMORY] && l->memory_bytes) {
        if (cgroup_set_number(dir, "memory.max", l->memory_bytes, e) < 0)
            return -1;
        write_file_at(dir, "memory.swap.max", "0", NULL); /* not there without swap accounting */
    }
    if (on_v2[CGROUP_PIDS] && l->pids && cgroup_set_number(dir, "pids.max", l->pids, e) < 0)
        return -1;
    if (!on_v2[CGROUP_CPU])
        return 0;
    snprintf(quota, sizeof(quota), "%llu 100000", (unsigned long long)l->cpu_percent * 1000);
    if (needs_quota(l, fresh) &&
        write_file_at(dir, "cpu.max", l->cpu_percent ? quota : "max 100000", e) < 0)
        return -1;
    return l->cpu_weight ? cgroup_set_number(dir, "cpu.weight", l->cpu_weight, e) : 0;
}

/* With swap accounting there are two limits: the one that includes swap may never be the lower one. What waits in
 * sockets of the network is in neither of them on v1, and has a limit of its own. */
static int set_memory_v1(int dir, uint64_t bytes, struct cove_err *e)
{
    cgroup_set_number(dir, "memory.kmem.tcp.limit_in_bytes", bytes / SOCKETS_PART, NULL);
    if (cgroup_set_number(dir, "memory.limit_in_bytes", bytes, NULL) < 0) {
        cgroup_set_number(dir, "memory.memsw.limit_in_bytes", bytes, NULL);
        return cgroup_set_number(dir, "memory.limit_in_bytes", bytes, e);
    }
    cgroup_set_number(dir, "memory.memsw.limit_in_bytes", bytes, NULL);
    return 0;
}

static int set_cpu_v1(int dir, const struct cgroup_limits *l, bool fresh, struct cove_err *e)
{
    char quota[32];

    snprintf(quota, sizeof(quota), "%llu", (unsigned long long)l->cpu_percent * 1000);
    if (needs_quota(l, fresh) &&
        write_file_at(dir, "cpu.cfs_quota_us", l->cpu_percent ? quota : "-1", e) < 0)
        return -1;
    return l->cpu_weight ? cgroup_set_number(dir, "cpu.shares", cgroup_shares_of(l->cpu_weight), e)
                         : 0;
}

static int set_limit_v1(int dir, enum cgroup_controller c, const struct cgroup_limits *l,
                        bool fresh, struct cove_err *e)
{
    switch (c) {
    case CGROUP_MEMORY:
        write_file_at(dir, "memory.swappiness", "0", NULL);
        return l->memory_bytes ? set_memory_v1(dir, l->memory_bytes, e) : 0;
    case CGROUP_PIDS:
        return l->pids ? cgroup_set_number(dir, "pids.max", l->pids, e) : 0;
    case CGROUP_CPU:
        return set_cpu_v1(dir, l, fresh, e);
    default:
        return 0;
    }
}

/*
 * init makes one child cgroup per command, so it owns the directory and its cgroup.procs, and
 * nothing else: limits stay the keeper's. Depth and number of cgroups are bounded in case init was taken
 * over.
 */
static int delegate_to(int dir, uid_t root_uid, struct cove_err *e)
{
    write_file_at(dir, "cgroup.max.depth", "1", NULL);
    write_file_at(dir, "cgroup.max.descendants", "4096", NULL);
    if (fchown(dir, root_uid, root_uid) < 0 ||
        fchownat(dir, "cgroup.procs", root_uid, root_uid, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "cgroup of the sandbox");
    return 0;
}

void cgroup_box_close(struct cgroup_box *b)
{
    b->v2 = cove_close(b->v2);
    b->memory = cove_close(b->memory);
    b->pids = cove_close(b->pids);
}

/*
 * From a folder of one of the host's mounts enough ".." lead to the host's root, and init must not get
 * there. So init gets the same folder as the root of a detached mount. Init gets the descriptor of that mount
 * itself: a folder opened by way of it would do as well, but the kernel waits for all cpus when a detached mount
 * is closed, which now happens after init has ended and not while a client waits for the sandbox.
 */
static int detach(int *fd, struct cove_err *e)
{
    int tree = open_tree(*fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (tree < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "detaching the sandbox's cgroup");
    cove_close(*fd);
    *fd = tree;
    return 0;
}

int cgroup_create_box(const struct cgroups *cg, const char *id, const struct cgroup_limits *limits,
                      uid_t root_uid, struct cgroup_box *ret, struct cove_err *e)
{
    struct cgroup_box b = { -1, -1, -1 };
    int dirs[CGROUP_CONTROLLERS] = { -1, -1, -1 }, rc = 0;

    if (cgroup_make_dir(cg->v2, id, &b.v2, e) < 0)
        return -1;
    if (set_limits_v2(b.v2, cg->on_v2, limits, true, e) < 0 || delegate_to(b.v2, root_uid, e) < 0)
        rc = -1;
    for (int c = 0; rc == 0 && c < CGROUP_CONTROLLERS; c++)
        if (cg->v1[c] >= 0 &&
            (cgroup_make_dir(cg->v1[c], id, &dirs[c], e) < 0 ||
             set_limit_v1(dirs[c], (enum cgroup_controller)c, limits, true, e) < 0))
            rc = -1;
    b.memory = dirs[CGROUP_MEMORY] >= 0 ? dirs[CGROUP_MEMORY] : dup(b.v2);
    b.pids = dirs[CGROUP_PIDS] >= 0 ? dirs[CGROUP_PIDS] : dup(b.v2);
    cove_close(dirs[CGROUP_CPU]);
    if (rc < 0 || detach(&b.v2, e) < 0 || detach(&b.memory, e) < 0 || detach(&b.pids, e) < 0) {
        cgroup_box_close(&b);
        cgroup_remove_box(cg, id);
        return -1;
    }
    *ret = b;
    return 0;
}

static int box_file(int parent, const char *id, const char *file, char path[128])
{
    return (size_t)snprintf(path, 128, "%s/%s", id, file) < 128 && parent >= 0 ? 0 : -1;
}

int cgroup_limit_box(const struct cgroups *cg, const char *id, const struct cgroup_limits *limits,
                     struct cove_err *e)
{
    AUTO_CLOSE int v2 = openat(cg->v2, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (v2 < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "cgroup of sandbox '%s'", id);
    if (set_limits_v2(v2, cg->on_v2, limits, false, e) < 0)
        return -1;
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        AUTO_CLOSE int dir =
            cg->v1[c] < 0 ? -1 : openat(cg->v1[c], id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (cg->v1[c] >= 0 &&
            (dir < 0 || set_limit_v1(dir, (enum cgroup_controller)c, limits, false, e) < 0))
            return -1;
    }
    return 0;
}

int cgroup_weigh_box(const struct cgroups *cg, const char *id, uint64_t weight, struct cove_err *e)
{
    char path[128];

    if (cg->on_v2[CGROUP_CPU] && box_file(cg->v2, id, "cpu.weight", path) == 0)
        return cgroup_set_number(cg->v2, path, weight, e);
    if (box_file(cg->v1[CGROUP_CPU], id, "cpu.shares", path) == 0)
        return cgroup_set_number(cg->v1[CGROUP_CPU], path, cgroup_shares_of(weight), e);
    return cove_fail(e, COVE_UNSUPPORTED, "no cpu controller");
}

/* The v2 hierarchy has this figure with and without the cpu controller. */
static uint64_t cpu_usec_in(const struct cgroups *cg, const char *path)
{
    char text[512];
    const char *at;

    if (read_file_at(cg->v2, path, text, sizeof(text)) <= 0)
        return 0;
    at = strstr(text, "usage_usec ");
    return at ? strtoull(at + 11, NULL, 10) : 0;
}

uint64_t cgroup_cpu_usec(const struct cgroups *cg, const char *id)
{
    char path[128];

    return box_file(cg->v2, id, "cpu.stat", path) < 0 ? 0 : cpu_usec_in(cg, path);
}

uint64_t cgroup_all_cpu_usec(const struct cgroups *cg)
{
    return cpu_usec_in(cg, "cpu.stat");
}

/* Returns the number behind a word at the beginning of a line. */
static uint64_t number_of(const char *text, const char *word)
{
    const char *at = text;
    size_t len = strlen(word);

    while (at && strncmp(at, word, len) != 0)
        at = (at = strchr(at, '\n')) ? at + 1 : NULL;
    return at ? strtoull(at + len, NULL, 10) : 0;
}

void cgroup_memory_bytes(const struct cgroups *cg, const char *id, uint64_t *ret_used,
                         uint64_t *ret_cache)
{
    bool v2 = cg->on_v2[CGROUP_MEMORY];
    int dir = v2 ? cg->v2 : cg->v1[CGROUP_MEMORY];
    char path[128], text[4096];

    *ret_used = *ret_cache = 0;
    if (box_file(dir, id, v2 ? "memory.current" : "memory.usage_in_bytes", path) == 0 &&
        read_file_at(dir, path, text, sizeof(text)) > 0)
        *ret_used = strtoull(text, NULL, 10);
    if (box_file(dir, id, "memory.stat", path) == 0 &&
        read_file_at(dir, path, text, sizeof(text)) > 0)
        *ret_cache = number_of(text, v2 ? "file " : "total_cache ");
}

static int pids_dir(const struct cgroups *cg)
{
    return cg->on_v2[CGROUP_PIDS] ? cg->v2 : cg->v1[CGROUP_PIDS];
}

static uint64_t pids_number(const struct cgroups *cg, const char *id, const char *file)
{
    char path[128], text[32];

    if (box_file(pids_dir(cg), *id ? id : ".", file, path) < 0 ||
        read_file_at(pids_dir(cg), path, text, sizeof(text)) <= 0)
        return 0;
    return strncmp(text, "max", 3) == 0 ? UINT64_MAX : strtoull(text, NULL, 10);
}

void cgroup_count_pids(const struct cgroups *cg, const char *id, uint64_t *ret_now,
                       uint64_t *ret_most)
{
    *ret_now = pids_number(cg, id, "pids.current");
    *ret_most = pids_number(cg, id, "pids.max");
}

int cgroup_limit_pids(const struct cgroups *cg, const char *id, uint64_t most, struct cove_err *e)
{
    char path[128];

    if (box_file(pids_dir(cg), *id ? id : ".", "pids.max", path) < 0)
        return cove_fail(e, COVE_UNSUPPORTED, "no pids controller");
    return cgroup_set_number(pids_dir(cg), path, most, e);
}

void cgroup_close_v1(struct cgroup_doors *doors)
{
    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        doors->fd[c] = cove_close(doors->fd[c]);
}

int cgroup_open_v1(const struct cgroups *cg, const char *id, struct cgroup_doors *ret,
                   struct cove_err *e)
{
    struct cgroup_doors doors = { { -1, -1, -1 } };
    char path[128];

    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        if (box_file(cg->v1[c], id, "tasks", path) < 0)
            continue;
        doors.fd[c] = openat(cg->v1[c], path, O_WRONLY | O_CLOEXEC);
        if (doors.fd[c] < 0) {
            cgroup_close_v1(&doors);
            return cove_fail_errno(e, COVE_INTERNAL, "cgroup of the sandbox");
        }
    }
    *ret = doors;
    return 0;
}

int cgroup_enter_v1(const struct cgroup_doors *doors, struct cove_err *e)
{
    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        if (doors->fd[c] >= 0 && write(doors->fd[c], "0", 1) != 1)
            return cove_fail_errno(e, COVE_INTERNAL, "entering the %s cgroup",
                                   cgroup_controller_names[c]);
    return 0;
}

void cgroup_kill_box(const struct cgroups *cg, const char *id)
{
    char path[128];

    if (box_file(cg->v2, id, "cgroup.kill", path) == 0)
        write_file_at(cg->v2, path, "1", NULL);
}

int cgroup_freeze_begin(const struct cgroups *cg, const char *id, bool freeze, struct cove_err *e)
{
    char path[128];

    if (box_file(cg->v2, id, "cgroup.freeze", path) < 0 ||
        write_file_at(cg->v2, path, freeze ? "1" : "0", e) < 0)
        return cove_context(e, "sandbox '%s'", id);
    return 0;
}

bool cgroup_is_frozen(const struct cgroups *cg, const char *id)
{
    char path[128], events[256];

    return box_file(cg->v2, id, "cgroup.events", path) == 0 &&
           read_file_at(cg->v2, path, events, sizeof(events)) > 0 &&
           strstr(events, "frozen 1") != NULL;
}

int cgroup_freeze_box(const struct cgroups *cg, const char *id, bool freeze, struct cove_err *e)
{
    if (cgroup_freeze_begin(cg, id, freeze, e) < 0)
        return -1;
    for (int i = 0; i < 100; i++) { /* tasks stop at their next return to user space */
        if (cgroup_is_frozen(cg, id) == freeze)
            return 0;
        poll(NULL, 0, 5);
    }
    return cove_fail(e, COVE_TIMEOUT, "sandbox '%s' did not %s within 500 ms", id,
                     freeze ? "freeze" : "thaw");
}

/* Removes the children of a directory, then the directory. The kernel's own files in it need no unlink. */
static int remove_dir(int parent, const char *id)
{
    int fd = parent >= 0 ? openat(parent, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    struct dirent *d;
    DIR *dir;

    if (fd < 0)
        return parent >= 0 && errno != ENOENT ? -1 : 0;
    dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -1;
    }
    while ((d = readdir(dir)))
        if (d->d_type == DT_DIR && d->d_name[0] != '.')
            unlinkat(fd, d->d_name, AT_REMOVEDIR);
    closedir(dir);
    return unlinkat(parent, id, AT_REMOVEDIR) < 0 && errno != ENOENT ? -1 : 0;
}

/* The one in v2 goes last: cgroup_each_box() finds sandboxes by it, also after a keeper that died halfway. */
int cgroup_remove_box(const struct cgroups *cg, const char *id)
{
    int rc = 0;

    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        if (remove_dir(cg->v1[c], id) < 0)
            rc = -1;
    return rc == 0 ? remove_dir(cg->v2, id) : -1;
}

bool cgroup_has_pid(const struct cgroups *cg, const char *id, pid_t pid)
{
    char path[64], text[4096], want[128];

    (void)cg;
    snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    if (read_file_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return false;
    snprintf(want, sizeof(want), "/%s", id);
    return strstr(text, want) != NULL;
}

void cgroup_each_box(const struct cgroups *cg, cgroup_box_fn each, void *arg)
{
    int fd = openat(cg->v2, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent *d;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir) {
        cove_close(fd);
        return;
    }
    while ((d = readdir(dir)))
        if (d->d_type == DT_DIR && text_is_id(d->d_name))
            each(arg, d->d_name);
    closedir(dir);
}
