/*
 * cgroups: on v2 all of a sandbox's limits, its freezing and its killing are in one directory. On
 * hybrid hosts the controllers may still be on v1 while v2 has freezing and killing only; then
 * limits go to the v1 directories of the same name. Which is where is found out once, at start.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/cgroup.h"
#include "sandbox/box/tools.h"

static const char *const controller_names[CGROUP_CONTROLLERS] = {
    [CGROUP_MEMORY] = "memory",
    [CGROUP_PIDS] = "pids",
    [CGROUP_CPU] = "cpu",
};

enum { CORNER_WEIGHT = 800 }; /* of all sandboxes together; 100 is one process of the machine */

/* ------------------------------------------------------------------ finding the hierarchies */

static bool has_word(const char *list, const char *word, const char *separators)
{
    char copy[512], *save, *at;

    text_copy(copy, sizeof(copy), list);
    for (at = strtok_r(copy, separators, &save); at; at = strtok_r(NULL, separators, &save))
        if (strcmp(at, word) == 0)
            return true;
    return false;
}

/* A line of /proc/self/mountinfo: "... ... ... root MOUNTPOINT opts ... - TYPE source SUPEROPTS".
 */
static bool parse_mount(char *line, const char **ret_point, const char **ret_type,
                        const char **ret_super)
{
    char *dash = strstr(line, " - "), *save, *field = NULL;

    if (!dash)
        return false;
    *dash = '\0';
    field = strtok_r(line, " ", &save);
    for (int i = 0; field && i < 4; i++)
        field = strtok_r(NULL, " ", &save);
    *ret_point = field;
    *ret_type = strtok_r(dash + 3, " ", &save);
    strtok_r(NULL, " ", &save);
    *ret_super = strtok_r(NULL, " \n", &save);
    return *ret_point && *ret_type && *ret_super;
}

struct hierarchies {
    char v2[256];
    char v1[CGROUP_CONTROLLERS][256];
};

static int find_hierarchies(struct hierarchies *h, struct cove_err *e)
{
    char line[4096];
    FILE *f = fopen("/proc/self/mountinfo", "re");

    if (!f)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "/proc/self/mountinfo");
    while (fgets(line, sizeof(line), f)) {
        const char *point, *type, *super;

        if (!parse_mount(line, &point, &type, &super))
            continue;
        if (strcmp(type, "cgroup2") == 0 && !h->v2[0])
            text_copy(h->v2, sizeof(h->v2), point);
        for (int c = 0; strcmp(type, "cgroup") == 0 && c < CGROUP_CONTROLLERS; c++)
            if (has_word(super, controller_names[c], ","))
                text_copy(h->v1[c], sizeof(h->v1[c]), point);
    }
    fclose(f);
    if (!h->v2[0])
        return cove_fail(e, COVE_UNSUPPORTED,
                         "no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup");
    return 0;
}

static bool is_delegated(const char *path)
{
    char value[8];
    ssize_t n = getxattr(path, "user.delegate", value, sizeof(value));

    if (n <= 0)
        n = getxattr(path, "trusted.delegate", value, sizeof(value));
    return n > 0 && value[0] == '1';
}

/*
 * On v2 a cgroup that hands controllers down may hold no process, and systemd starts a service's
 * main process in the service's own cgroup: a keeper whose sandboxes were below that could never be
 * started again while they live. So they have a unit of their own, NAME-sandboxes.service, next to
 * the keeper's; it is looked for beside each cgroup that we are in.
 */
static bool find_sandboxes_unit(const char *mount, const char *own, const char *name, char *out,
                                size_t size)
{
    char parent[1024];
    char *slash;

    if (!text_copy(parent, sizeof(parent), own))
        return false;
    while ((slash = strrchr(parent, '/'))) {
        *slash = '\0';
        if ((size_t)snprintf(out, size, "%s%s/%s-sandboxes.service", mount, parent, name) < size &&
            is_delegated(out))
            return true;
    }
    return false;
}

enum cgroup_place cgroup_find_place(const char *mount, const char *own, const char *name, char *out,
                                    size_t size)
{
    if (find_sandboxes_unit(mount, own, name, out, size))
        return CGROUP_BESIDE;
    if ((size_t)snprintf(out, size, "%s%s", mount, own) < size && is_delegated(out))
        return CGROUP_WITHIN;
    snprintf(out, size, "%s", mount);
    return CGROUP_AT_ROOT;
}

/* Where on v2 this process is: "/system.slice/cove.service", "/" if it cannot be told. */
static void find_own(char *out, size_t size)
{
    char text[1024], *line = NULL;

    if (read_file_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) > 0)
        line = strstr(text, "0::/");
    if (line)
        line[strcspn(line, "\n")] = '\0';
    snprintf(out, size, "%s", line ? line + 3 : "/");
}

/* ------------------------------------------------------------------ our corner */

static int make_dir(int parent, const char *name, int *ret_fd, struct cove_err *e)
{
    int fd;

    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "cgroup '%s'", name);
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "cgroup '%s'", name);
    *ret_fd = fd;
    return 0;
}

/* Hand the controllers that are on v2 down to the children of `dir`. */
static void enable_controllers(int dir, const bool on_v2[CGROUP_CONTROLLERS])
{
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        char text[16];

        snprintf(text, sizeof(text), "+%s", controller_names[c]);
        if (on_v2[c])
            write_file_at(dir, "cgroup.subtree_control", text, NULL);
    }
}

/* The kernel refuses where processes are in `dir` itself; told now, not at the first sandbox. */
static int check_handed_down(int dir, const bool on_v2[CGROUP_CONTROLLERS], const char *path,
                             struct cove_err *e)
{
    char handed[256] = "";

    read_file_at(dir, "cgroup.subtree_control", handed, sizeof(handed));
    for (int c = 0; c < CGROUP_CPU; c++)
        if (on_v2[c] && !has_word(handed, controller_names[c], " \n"))
            return cove_fail(e, COVE_UNSUPPORTED,
                             "%s holds processes and so cannot hand the %s controller down", path,
                             controller_names[c]);
    return 0;
}

/* A cgroup that hands controllers down holds no process itself: move who is there (we, or what
 * systemd started in the sandboxes' unit to keep it) into a leaf beside the sandboxes. */
static int empty_into_leaf(int base, struct cove_err *e)
{
    AUTO_CLOSE int leaf = -1;
    char pids[4096], *save, *pid;

    if (make_dir(base, "server", &leaf, e) < 0)
        return -1;
    if (read_file_at(base, "cgroup.procs", pids, sizeof(pids)) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "cgroup.procs");
    for (pid = strtok_r(pids, "\n", &save); pid; pid = strtok_r(NULL, "\n", &save))
        if (write_file_at(leaf, "cgroup.procs", pid, e) < 0 && errno != ESRCH) /* it ended */
            return -1;
    return 0;
}

/* Huge pages are set aside at boot for some program of this machine and are no part of a sandbox's
 * memory limit: all sandboxes together get none. A kernel without the controller, or one that has it
 * on v1, has no such files here. */
static void forbid_huge_pages(int dir)
{
    DIR *files = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *entry;

    while (files && (entry = readdir(files))) {
        const char *end = strrchr(entry->d_name, '.');

        if (strncmp(entry->d_name, "hugetlb.", 8) == 0 && end && strcmp(end, ".max") == 0)
            write_file_at(dir, entry->d_name, "0", NULL);
    }
    if (files)
        closedir(files);
}

static int set_number(int dir, const char *file, uint64_t n, struct cove_err *e)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
    return write_file_at(dir, file, text, e);
}

/* 100 is everybody's weight on v2, 1024 on v1, where 2 is the least. */
static uint64_t shares_of(uint64_t weight)
{
    uint64_t shares = weight * 1024 / 100;

    return shares < 2 ? 2 : shares;
}

/*
 * At the top of a hierarchy our corner competes with single processes of the machine, each of which weighs as much
 * as a cgroup. With the usual weight all sandboxes together would get the cpu time of one worker thread, and a command
 * would wait a tenth of a second for its turn behind the requests that started other commands. Beside a service of
 * systemd's the weights are the units' (CPUWeight=), and are left alone.
 */
static void weigh_corner(const struct cgroups *cg)
{
    if (cg->on_v2[CGROUP_CPU])
        set_number(cg->v2, "cpu.weight", CORNER_WEIGHT, NULL);
    else if (cg->v1[CGROUP_CPU] >= 0)
        set_number(cg->v1[CGROUP_CPU], "cpu.shares", shares_of(CORNER_WEIGHT), NULL);
}

static int init_v2(struct cgroups *cg, const char *mount, const char *name,
                   enum cgroup_place *ret_place, struct cove_err *e)
{
    char path[1024], own[1024], available[256] = "";
    AUTO_CLOSE int base = -1;
    enum cgroup_place place;

    find_own(own, sizeof(own));
    place = cgroup_find_place(mount, own, name, path, sizeof(path));
    base = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (base < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "%s", path);
    if (place != CGROUP_AT_ROOT && empty_into_leaf(base, e) < 0)
        return -1;
    read_file_at(base, "cgroup.controllers", available, sizeof(available));
    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        cg->on_v2[c] = has_word(available, controller_names[c], " \n");
    enable_controllers(base, cg->on_v2);
    if (has_word(available, "hugetlb", " \n"))
        write_file_at(base, "cgroup.subtree_control", "+hugetlb", NULL);
    if (check_handed_down(base, cg->on_v2, path, e) < 0 || make_dir(base, name, &cg->v2, e) < 0)
        return -1;
    enable_controllers(cg->v2, cg->on_v2);
    forbid_huge_pages(cg->v2);
    if (faccessat(cg->v2, "cgroup.kill", W_OK, 0) < 0)
        return cove_fail(e, COVE_UNSUPPORTED, "this kernel has no cgroup.kill (5.14 or newer has)");
    *ret_place = place;
    return 0;
}

int cgroup_init(struct cgroups *cg, const char *name, struct cove_err *e)
{
    struct hierarchies h = { 0 };
    enum cgroup_place place = CGROUP_AT_ROOT;

    *cg = (struct cgroups){ .v2 = -1, .v1 = { -1, -1, -1 } };
    if (find_hierarchies(&h, e) < 0 || init_v2(cg, h.v2, name, &place, e) < 0)
        return -1;
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        AUTO_CLOSE int mount = -1;

        if (cg->on_v2[c] || !h.v1[c][0])
            continue;
        mount = open(h.v1[c], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (mount < 0 || make_dir(mount, name, &cg->v1[c], e) < 0)
            return -1;
    }
    for (int c = 0; c < CGROUP_CPU; c++)
        if (!cg->on_v2[c] && cg->v1[c] < 0)
            return cove_fail(e, COVE_UNSUPPORTED, "this kernel offers no %s cgroup controller",
                             controller_names[c]);
    if (place == CGROUP_AT_ROOT)
        weigh_corner(cg);
    return 0;
}

/* ------------------------------------------------------------------ one sandbox */

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
        if (set_number(dir, "memory.max", l->memory_bytes, e) < 0)
            return -1;
        write_file_at(dir, "memory.swap.max", "0", NULL); /* not there without swap accounting */
    }
    if (on_v2[CGROUP_PIDS] && l->pids && set_number(dir, "pids.max", l->pids, e) < 0)
        return -1;
    if (!on_v2[CGROUP_CPU])
        return 0;
    snprintf(quota, sizeof(quota), "%llu 100000", (unsigned long long)l->cpu_percent * 1000);
    if (needs_quota(l, fresh) &&
        write_file_at(dir, "cpu.max", l->cpu_percent ? quota : "max 100000", e) < 0)
        return -1;
    return l->cpu_weight ? set_number(dir, "cpu.weight", l->cpu_weight, e) : 0;
}

/* With swap accounting there are two limits, and at no moment may the one with swap be the lower.
 */
static int set_memory_v1(int dir, uint64_t bytes, struct cove_err *e)
{
    if (set_number(dir, "memory.limit_in_bytes", bytes, NULL) < 0) {
        set_number(dir, "memory.memsw.limit_in_bytes", bytes, NULL);
        return set_number(dir, "memory.limit_in_bytes", bytes, e);
    }
    set_number(dir, "memory.memsw.limit_in_bytes", bytes, NULL);
    return 0;
}

static int set_cpu_v1(int dir, const struct cgroup_limits *l, bool fresh, struct cove_err *e)
{
    char quota[32];

    snprintf(quota, sizeof(quota), "%llu", (unsigned long long)l->cpu_percent * 1000);
    if (needs_quota(l, fresh) &&
        write_file_at(dir, "cpu.cfs_quota_us", l->cpu_percent ? quota : "-1", e) < 0)
        return -1;
    return l->cpu_weight ? set_number(dir, "cpu.shares", shares_of(l->cpu_weight), e) : 0;
}

static int set_limit_v1(int dir, enum cgroup_controller c, const struct cgroup_limits *l,
                        bool fresh, struct cove_err *e)
{
    switch (c) {
    case CGROUP_MEMORY:
        write_file_at(dir, "memory.swappiness", "0", NULL);
        return l->memory_bytes ? set_memory_v1(dir, l->memory_bytes, e) : 0;
    case CGROUP_PIDS:
        return l->pids ? set_number(dir, "pids.max", l->pids, e) : 0;
    case CGROUP_CPU:
        return set_cpu_v1(dir, l, fresh, e);
    default:
        return 0;
    }
}

/*
 * init makes one child cgroup per command, so it owns the directory and its cgroup.procs, and
 * nothing else: limits stay the keeper's. Depth and number are bounded in case init is not what it
 * was.
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
 * A folder of a host's mount leads, with enough "..", to the host's root, and init is not to be
 * trusted with that. What it gets is the same folder as the root of a mount of its own, which hangs
 * nowhere.
 */
static int detach(int *fd, struct cove_err *e)
{
    AUTO_CLOSE int tree = open_tree(*fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    int dir = tree < 0 ? -1 : openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "detaching the sandbox's cgroup");
    cove_close(*fd);
    *fd = dir;
    return 0;
}

int cgroup_create_box(const struct cgroups *cg, const char *id, const struct cgroup_limits *limits,
                      uid_t root_uid, struct cgroup_box *ret, struct cove_err *e)
{
    struct cgroup_box b = { -1, -1, -1 };
    int dirs[CGROUP_CONTROLLERS] = { -1, -1, -1 }, rc = 0;

    if (make_dir(cg->v2, id, &b.v2, e) < 0)
        return -1;
    if (set_limits_v2(b.v2, cg->on_v2, limits, true, e) < 0 || delegate_to(b.v2, root_uid, e) < 0)
        rc = -1;
    for (int c = 0; rc == 0 && c < CGROUP_CONTROLLERS; c++)
        if (cg->v1[c] >= 0 &&
            (make_dir(cg->v1[c], id, &dirs[c], e) < 0 ||
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
        return set_number(cg->v2, path, weight, e);
    if (box_file(cg->v1[CGROUP_CPU], id, "cpu.shares", path) == 0)
        return set_number(cg->v1[CGROUP_CPU], path, shares_of(weight), e);
    return cove_fail(e, COVE_UNSUPPORTED, "no cpu controller");
}

/* The v2 hierarchy tells this whether it has the cpu controller or not. */
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

/* The number behind a word at the beginning of a line. */
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
            return cove_fail_errno(e, COVE_INTERNAL, "entering the %s cgroup", controller_names[c]);
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

/* rmdir a directory's children, then itself. Only the kernel's own files are in it, which need no
 * unlink. */
static int remove_dir(int parent, const char *id)
{
    int fd = parent >= 0 ? openat(parent, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    struct dirent *d;
    DIR *dir;

    if (fd < 0)
        return 0;
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

int cgroup_remove_box(const struct cgroups *cg, const char *id)
{
    int rc = remove_dir(cg->v2, id);

    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        if (remove_dir(cg->v1[c], id) < 0)
            rc = -1;
    return rc;
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

static void kill_one(void *arg, const char *id)
{
    cgroup_kill_box(arg, id);
}

static void remove_one(void *arg, const char *id)
{
    for (int i = 0; i < 200 && cgroup_remove_box(arg, id) < 0; i++)
        poll(NULL, 0, 10);
}

static void remove_corner(int dir, const char *name)
{
    AUTO_CLOSE int parent = dir < 0 ? -1 : openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (parent >= 0)
        unlinkat(parent, name, AT_REMOVEDIR);
}

void cgroup_remove_all(struct cgroups *cg, const char *name)
{
    cgroup_each_box(cg, kill_one, cg);
    cgroup_each_box(cg, remove_one, cg);
    remove_corner(cg->v2, name);
    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        remove_corner(cg->v1[c], name);
}
