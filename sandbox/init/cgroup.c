/*
 * A cgroup for each command, so that all it ever started can be killed, and the sandbox's counters,
 * which tell why a command ended. The directories come from the keeper as descriptors: init knows
 * no path of a cgroup.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

enum { SWEEP_AT_A_TIME = 16 };

static ssize_t read_at(int dir_fd, const char *name, char *out, size_t size)
{
    AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

    out[n > 0 ? n : 0] = '\0';
    return n;
}

/* The number after "key " at the start of a line; 0 if there is none. */
static uint64_t field(const char *text, const char *key)
{
    size_t len = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoull(line + len + 1, NULL, 10);
    }
    return 0;
}

/* --------------------------------------------------------------- counters and limits */

static const struct {
    int dir_fd;
    const char *v2, *v1; /* v1 NULL: the name is the same */
} counter_files[] = {
    [COUNTER_OOM] = { INIT_FD_MEMORY, "memory.events", "memory.oom_control" },
    [COUNTER_PIDS] = { INIT_FD_PIDS, "pids.events", NULL },
    [COUNTER_LIMIT] = { INIT_FD_MEMORY, "memory.max", "memory.limit_in_bytes" },
    [COUNTER_USED] = { INIT_FD_MEMORY, "memory.current", "memory.usage_in_bytes" },
    [COUNTER_STAT] = { INIT_FD_MEMORY, "memory.stat", NULL },
};

void cgroup_setup(struct init *in)
{
    struct stat st;

    in->has_cgroup = fstat(INIT_FD_CGROUP, &st) == 0 && S_ISDIR(st.st_mode);
    for (int i = 0; i < COUNTERS; i++)
        in->counter_fds[i] = -1;
}

static int counter_fd(struct init *in, enum counter which)
{
    int dir_fd = counter_files[which].dir_fd, *fd = &in->counter_fds[which];

    if (*fd < 0)
        *fd = openat(dir_fd, counter_files[which].v2, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 && counter_files[which].v1)
        *fd = openat(dir_fd, counter_files[which].v1, O_RDONLY | O_CLOEXEC);
    return *fd;
}

/* Reads a file that stays open while commands come: reading it from its start gives the current value each time, and takes
   less than opening it. */
static const char *read_again(int fd, char *out, size_t size)
{
    ssize_t n = fd < 0 ? -1 : pread(fd, out, size - 1, 0);

    out[n > 0 ? n : 0] = '\0';
    return out;
}

static uint64_t number_in(int fd)
{
    char text[32];

    return strtoull(read_again(fd, text, sizeof(text)), NULL, 10); /* "max" becomes 0: no figure */
}

static uint64_t field_in(int fd, const char *key)
{
    char text[512];

    return field(read_again(fd, text, sizeof(text)), key);
}

uint64_t cgroup_oom_kills(struct init *in)
{
    return field_in(counter_fd(in, COUNTER_OOM), "oom_kill");
}

uint64_t cgroup_pids_refused(struct init *in)
{
    return field_in(counter_fd(in, COUNTER_PIDS), "max");
}

uint64_t cgroup_memory_limit(struct init *in)
{
    return number_in(counter_fd(in, COUNTER_LIMIT));
}

uint64_t cgroup_memory_used(struct init *in)
{
    return number_in(counter_fd(in, COUNTER_USED));
}

bool cgroup_memory_now(struct init *in, struct memory_now *ret)
{
    struct memory_now now = { .limit = cgroup_memory_limit(in), .used = cgroup_memory_used(in) };
    char text[4096];

    if (now.limit == 0 || now.limit > (uint64_t)1
                                          << 50) /* v1 writes "none" as a very large number */
        return false;
    read_again(counter_fd(in, COUNTER_STAT), text, sizeof(text));
    now.cache = field(text, "file") + field(text, "cache");
    now.shmem = field(text, "shmem");
    *ret = now;
    return true;
}

uint64_t cgroup_pids_limit(void)
{
    char text[32];

    read_at(INIT_FD_PIDS, "pids.max", text, sizeof(text));
    return strtoull(text, NULL, 10);
}

/* --------------------------------------------------------------- one per command */

/* A cgroup's own number, which is its name, is not the number of the process in it: cgroups are used again. */
static void name_of(const struct command_cgroup *g, const char *file, char out[48])
{
    snprintf(out, 48, "c%" PRIu32 "%s%s", g->name, *file ? "/" : "", file);
}

static void files_close(struct cgroup_files *f)
{
    if (!f->name)
        return;
    f->name = 0;
    cove_close(f->dir_fd);
    cove_close(f->events_fd);
    cove_close(f->cpu_fd);
}

static void files_forget(struct init *in, uint32_t name)
{
    for (size_t i = 0; i < OPEN_CGROUPS; i++)
        if (in->open_cgroups[i].name == name)
            files_close(&in->open_cgroups[i]);
}

static const struct cgroup_files *files_find(const struct init *in, const struct command_cgroup *g)
{
    for (size_t i = 0; i < OPEN_CGROUPS; i++)
        if (in->open_cgroups[i].name == g->name)
            return &in->open_cgroups[i];
    return NULL;
}

/* NULL: the cgroup cannot be opened. */
static const struct cgroup_files *files_open(struct init *in, const struct command_cgroup *g)
{
    const struct cgroup_files *found = files_find(in, g);
    struct cgroup_files *f = &in->open_cgroups[in->next_open];
    char name[48];
    int dir_fd;

    if (found)
        return found;
    name_of(g, "", name);
    dir_fd = openat(INIT_FD_CGROUP, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return NULL;
    in->next_open = (in->next_open + 1) % OPEN_CGROUPS;
    files_close(f);
    *f = (struct cgroup_files){
        .name = g->name,
        .dir_fd = dir_fd,
        .events_fd = openat(dir_fd, "cgroup.events", O_RDONLY | O_CLOEXEC),
        .cpu_fd = openat(dir_fd, "cpu.stat", O_RDONLY | O_CLOEXEC),
    };
    return f;
}

static uint64_t cpu_usage(const struct init *in, const struct command_cgroup *g)
{
    const struct cgroup_files *files = files_find(in, g);
    char text[1024], name[48];

    if (files)
        return field_in(files->cpu_fd, "usage_usec");
    name_of(g, "cpu.stat", name);
    read_at(INIT_FD_CGROUP, name, text, sizeof(text));
    return field(text, "usage_usec");
}

static int make_one(struct init *in, struct command_cgroup *ret, struct cove_err *e)
{
    struct command_cgroup made = { .name = in->last_cgroup + 1 };
    char name[48];

    name_of(&made, "", name);
    if (mkdirat(INIT_FD_CGROUP, name, 0755) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "making a control group");
    in->last_cgroup = made.name;
    *ret = made;
    return 0;
}

/* Make the next command's cgroup while nobody waits for it. If that fails, it is tried again when
   the command comes. */
void cgroup_prepare(struct init *in)
{
    if (in->has_cgroup && in->idle_count == 0 && make_one(in, &in->idle[0], NULL) == 0)
        in->idle_count = 1;
}

int cgroup_make(struct init *in, struct command_cgroup *ret, int *ret_fd, struct cove_err *e)
{
    const struct cgroup_files *files;
    struct command_cgroup g;
    char name[48];

    *ret_fd = -1;
    if (!in->has_cgroup)
        return 0;
    if (in->idle_count > 0)
        g = in->idle[--in->idle_count];
    else if (make_one(in, &g, e) < 0)
        return -1;
    files = files_open(in, &g);
    if (!files) {
        cove_fail_errno(e, COVE_LIMIT, "opening a control group");
        name_of(&g, "", name);
        unlinkat(INIT_FD_CGROUP, name, AT_REMOVEDIR);
        return -1;
    }
    *ret = g;
    *ret_fd = files->dir_fd;
    return 0;
}

static int kill_all(struct command_cgroup *g)
{
    AUTO_CLOSE int fd = -1;
    char name[48];

    g->killed = true;
    name_of(g, "cgroup.kill", name);
    fd = openat(INIT_FD_CGROUP, name, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "1", 1) == 1 ? 0 : -1;
}

/* By the number of the process: its record may be gone, while what it started is still there. */
int cgroup_kill(struct init *in, uint32_t number)
{
    struct proc *p = proc_by_number(in, number);

    if (p && p->cgroup.name)
        return kill_all(&p->cgroup);
    for (size_t i = 0; i < in->lingering_count; i++)
        if (in->lingering[i].proc == number)
            return kill_all(&in->lingering[i].cgroup);
    errno = ENOENT;
    return -1;
}

uint64_t cgroup_cpu_us(const struct init *in, const struct command_cgroup *g)
{
    uint64_t now = g->name ? cpu_usage(in, g) : 0;

    return now > g->cpu_before_us ? now - g->cpu_before_us : 0;
}

/* --------------------------------------------------------------- leaving one, once it is empty */

static bool remove_one(struct init *in, const struct command_cgroup *g)
{
    char name[48];

    files_forget(in, g->name);
    name_of(g, "", name);
    return unlinkat(INIT_FD_CGROUP, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

static void remember(struct init *in, uint32_t number, const struct command_cgroup *g)
{
    if (in->lingering_count == in->lingering_room) {
        size_t room = in->lingering_room ? 2 * in->lingering_room : 16;
        struct lingering *more = reallocarray(in->lingering, room, sizeof(*more));

        if (!more)
            return; /* an empty directory stays behind until the sandbox ends */
        in->lingering = more;
        in->lingering_room = room;
    }
    in->lingering[in->lingering_count++] = (struct lingering){ number, *g };
}

/*
 * An empty cgroup that was never killed is as good as a new one: it has no process, is not frozen, has no
 * cgroup below it, and no limit, because no controller is on there. What it has counted of cpu time is taken off. Making and removing
 * a cgroup takes the kernel several times as long as these looks.
 */
static bool keep(struct init *in, const struct command_cgroup *g)
{
    const struct cgroup_files *files;
    char text[256];
    struct stat st;

    if (g->killed || in->idle_count == IDLE_CGROUPS || !(files = files_open(in, g)))
        return false;
    read_again(files->events_fd, text, sizeof(text));
    if (!strstr(text, "populated 0\n") || strstr(text, "frozen 1\n"))
        return false;
    if (fstat(files->dir_fd, &st) < 0 || st.st_nlink != 2)
        return false;
    in->idle[in->idle_count++] =
        (struct command_cgroup){ .name = g->name, .cpu_before_us = cpu_usage(in, g) };
    return true;
}

/* The process `number` has ended. Its cgroup is kept for the next command, or removed, now or when it is empty. */
void cgroup_leave(struct init *in, uint32_t number, struct command_cgroup *g)
{
    if (!g->name)
        return;
    if (keep(in, g) || remove_one(in, g))
        g->name = 0;
    else
        remember(in, number, g);
}

void cgroup_tidy(struct init *in)
{
    while (in->idle_count > 0)
        remove_one(in, &in->idle[--in->idle_count]);
    for (size_t i = 0; i < OPEN_CGROUPS; i++)
        files_close(&in->open_cgroups[i]);
}

/* The kernel has a page for each open file of a cgroup that was read. */
void cgroup_rest(struct init *in)
{
    for (int i = 0; i < COUNTERS; i++)
        in->counter_fds[i] = cove_close(in->counter_fds[i]);
    if (in->lingering_count == 0) {
        free(in->lingering);
        in->lingering = NULL;
        in->lingering_room = 0;
    }
}

/* Called when something was reaped. A few at a time, in turn: thousands of daemons must not slow
 * every end. */
void cgroup_sweep(struct init *in)
{
    for (int i = 0; i < SWEEP_AT_A_TIME && in->lingering_count > 0; i++) {
        in->sweep_at = (in->sweep_at + 1) % in->lingering_count;
        if (remove_one(in, &in->lingering[in->sweep_at].cgroup))
            in->lingering[in->sweep_at] = in->lingering[--in->lingering_count];
    }
}
