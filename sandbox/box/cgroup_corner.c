/*
 * Where sandboxes' cgroups lie: which hierarchies the machine has, and the keeper's corner in them. Which
 * controller is where is found out once, at start.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/cgroup_private.h"
#include "sandbox/box/tools.h"

const char *const cgroup_controller_names[CGROUP_CONTROLLERS] = {
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

/* A line of /proc/self/mountinfo: "... ... ... root MOUNTPOINT opts ... - TYPE source SUPEROPTS". */
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
            if (has_word(super, cgroup_controller_names[c], ","))
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

int cgroup_make_dir(int parent, const char *name, int *ret_fd, struct cove_err *e)
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

/* Hands the controllers that are on v2 down to the children of `dir`. */
static void enable_controllers(int dir, const bool on_v2[CGROUP_CONTROLLERS])
{
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        char text[16];

        snprintf(text, sizeof(text), "+%s", cgroup_controller_names[c]);
        if (on_v2[c])
            write_file_at(dir, "cgroup.subtree_control", text, NULL);
    }
}

/* The kernel hands nothing down while processes are in `dir` itself. This is checked at the start, not at the
 * first sandbox. */
static int check_handed_down(int dir, const bool on_v2[CGROUP_CONTROLLERS], const char *path,
                             struct cove_err *e)
{
    char handed[256] = "";

    read_file_at(dir, "cgroup.subtree_control", handed, sizeof(handed));
    for (int c = 0; c < CGROUP_CPU; c++)
        if (on_v2[c] && !has_word(handed, cgroup_controller_names[c], " \n"))
            return cove_fail(e, COVE_UNSUPPORTED,
                             "%s holds processes and so cannot hand the %s controller down", path,
                             cgroup_controller_names[c]);
    return 0;
}

/* A cgroup that hands controllers down may hold no process itself. So the processes in it (the keeper, or the one
 * that systemd started in the sandboxes' unit) are moved into a leaf beside the sandboxes. */
static int empty_into_leaf(int base, struct cove_err *e)
{
    AUTO_CLOSE int leaf = -1;
    char pids[4096], *save, *pid;

    if (cgroup_make_dir(base, "server", &leaf, e) < 0)
        return -1;
    if (read_file_at(base, "cgroup.procs", pids, sizeof(pids)) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "cgroup.procs");
    for (pid = strtok_r(pids, "\n", &save); pid; pid = strtok_r(NULL, "\n", &save))
        if (write_file_at(leaf, "cgroup.procs", pid, e) < 0 && errno != ESRCH) /* ESRCH: it ended */
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

int cgroup_set_number(int dir, const char *file, uint64_t n, struct cove_err *e)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
    return write_file_at(dir, file, text, e);
}

/* 100 is everybody's weight on v2, 1024 on v1, where 2 is the least. */
uint64_t cgroup_shares_of(uint64_t weight)
{
    uint64_t shares = weight * 1024 / 100;

    return shares < 2 ? 2 : shares;
}

/*
 * At the top of a hierarchy our corner competes with single processes of the machine, each of which has the weight
 * of a cgroup. With the usual weight all sandboxes together would get the cpu time of one worker thread, and a command
 * would wait a tenth of a second for its turn behind the requests that started other commands. Beside a service of
 * systemd's the weights are the units' (CPUWeight=), and are left alone.
 */
static void weigh_corner(const struct cgroups *cg)
{
    if (cg->on_v2[CGROUP_CPU])
        cgroup_set_number(cg->v2, "cpu.weight", CORNER_WEIGHT, NULL);
    else if (cg->v1[CGROUP_CPU] >= 0)
        cgroup_set_number(cg->v1[CGROUP_CPU], "cpu.shares", cgroup_shares_of(CORNER_WEIGHT), NULL);
}

static uint64_t kernel_number(const char *path)
{
    char text[32] = "";

    read_file_at(AT_FDCWD, path, text, sizeof(text));
    return strtoull(text, NULL, 10);
}

/*
 * max_sandboxes x pids_max may be more than the process numbers and threads that the machine has. All sandboxes
 * together leave a quarter of these free: otherwise a tenant with enough sandboxes could keep everybody, the
 * keeper included, from starting anything.
 */
static void bound_processes(const struct cgroups *cg)
{
    uint64_t numbers = kernel_number("/proc/sys/kernel/pid_max");
    uint64_t threads = kernel_number("/proc/sys/kernel/threads-max");
    uint64_t all = threads && threads < numbers ? threads : numbers;

    if (all)
        cgroup_set_number(cg->on_v2[CGROUP_PIDS] ? cg->v2 : cg->v1[CGROUP_PIDS], "pids.max",
                          all / 4 * 3, NULL);
}

/*
 * The kernel has one bound on what waits in TCP sockets of all processes (the last number of tcp_mem, in pages). When it
 * is reached each socket of the machine, nginx's included, gets along with a few KiB. All sandboxes together have half
 * of it. On v2 there is no such limit, and a sandbox's sockets are in its memory limit.
 */
static void bound_sockets(const struct cgroups *cg)
{
    char text[96] = "", *last;
    uint64_t pages;

    if (cg->on_v2[CGROUP_MEMORY] ||
        read_file_at(AT_FDCWD, "/proc/sys/net/ipv4/tcp_mem", text, sizeof(text)) <= 0)
        return;
    last = strrchr(text, '\t');
    pages = last ? strtoull(last, NULL, 10) : 0;
    if (pages)
        cgroup_set_number(cg->v1[CGROUP_MEMORY], "memory.kmem.tcp.limit_in_bytes",
                          pages / 2 * (uint64_t)sysconf(_SC_PAGESIZE), NULL);
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
        cg->on_v2[c] = has_word(available, cgroup_controller_names[c], " \n");
    enable_controllers(base, cg->on_v2);
    if (has_word(available, "hugetlb", " \n"))
        write_file_at(base, "cgroup.subtree_control", "+hugetlb", NULL);
    if (check_handed_down(base, cg->on_v2, path, e) < 0 ||
        cgroup_make_dir(base, name, &cg->v2, e) < 0)
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
        if (mount < 0 || cgroup_make_dir(mount, name, &cg->v1[c], e) < 0)
            return -1;
    }
    for (int c = 0; c < CGROUP_CPU; c++)
        if (!cg->on_v2[c] && cg->v1[c] < 0)
            return cove_fail(e, COVE_UNSUPPORTED, "this kernel offers no %s cgroup controller",
                             cgroup_controller_names[c]);
    bound_processes(cg);
    bound_sockets(cg);
    if (place == CGROUP_AT_ROOT)
        weigh_corner(cg);
    return 0;
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
