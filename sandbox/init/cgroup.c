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

static void name_of(uint32_t number, const char *file, char out[48])
{
    snprintf(out, 48, "c%" PRIu32 "%s%s", number, *file ? "/" : "", file);
}

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

static int open_first(int dir_fd, const char *v2, const char *v1)
{
    int fd = openat(dir_fd, v2, O_RDONLY | O_CLOEXEC);

    return fd >= 0 || !v1 ? fd : openat(dir_fd, v1, O_RDONLY | O_CLOEXEC);
}

void cgroup_setup(struct init *in)
{
    struct stat st;

    in->has_cgroup = fstat(INIT_FD_CGROUP, &st) == 0 && S_ISDIR(st.st_mode);
    in->oom_fd = open_first(INIT_FD_MEMORY, "memory.events", "memory.oom_control");
    in->pids_fd = open_first(INIT_FD_PIDS, "pids.events", NULL);
    in->memory_fds[MEMORY_LIMIT] =
        open_first(INIT_FD_MEMORY, "memory.max", "memory.limit_in_bytes");
    in->memory_fds[MEMORY_USED] =
        open_first(INIT_FD_MEMORY, "memory.current", "memory.usage_in_bytes");
    in->memory_fds[MEMORY_STAT] = open_first(INIT_FD_MEMORY, "memory.stat", NULL);
    in->next_cgroup_fd = -1;
}

/* Reads a file that stays open: reading from its start gives the current value each time. */
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

static uint64_t counter(int fd, const char *key)
{
    char text[512];

    return field(read_again(fd, text, sizeof(text)), key);
}

uint64_t cgroup_oom_kills(const struct init *in)
{
    return counter(in->oom_fd, "oom_kill");
}

uint64_t cgroup_pids_refused(const struct init *in)
{
    return counter(in->pids_fd, "max");
}

uint64_t cgroup_memory_limit(const struct init *in)
{
    return number_in(in->memory_fds[MEMORY_LIMIT]);
}

bool cgroup_memory_now(const struct init *in, struct memory_now *ret)
{
    struct memory_now now = { .limit = cgroup_memory_limit(in),
                              .used = number_in(in->memory_fds[MEMORY_USED]) };
    char text[4096];

    if (now.limit == 0 || now.limit > (uint64_t)1
                                          << 50) /* v1 writes "none" as a very large number */
        return false;
    read_again(in->memory_fds[MEMORY_STAT], text, sizeof(text));
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

static int make_one(uint32_t number, struct cove_err *e)
{
    char name[48];
    int fd;

    name_of(number, "", name);
    if (mkdirat(INIT_FD_CGROUP, name, 0755) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "making a control group");
    fd = openat(INIT_FD_CGROUP, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        cove_fail_errno(e, COVE_LIMIT, "opening a control group");
        unlinkat(INIT_FD_CGROUP, name, AT_REMOVEDIR);
    }
    return fd;
}

/* Make the next command's cgroup while nobody waits for it. If that fails, it is tried again when
   the command comes. */
void cgroup_prepare(struct init *in)
{
    if (!in->has_cgroup || in->next_cgroup_fd >= 0)
        return;
    in->next_cgroup = in->last_number + 1;
    in->next_cgroup_fd = make_one(in->next_cgroup, NULL);
}

int cgroup_make(struct init *in, uint32_t number, int *ret_fd, struct cove_err *e)
{
    AUTO_CLOSE int fd = take_fd(&in->next_cgroup_fd);

    if (fd >= 0 && in->next_cgroup != number) { /* the spawn that it was made for failed */
        fd = cove_close(fd);
        cgroup_leave(in, in->next_cgroup);
    }
    if (fd < 0 && in->has_cgroup && (fd = make_one(number, e)) < 0)
        return -1;
    *ret_fd = take_fd(&fd);
    return 0;
}

int cgroup_kill(struct init *in, uint32_t number)
{
    AUTO_CLOSE int fd = -1;
    char name[48];

    errno = ENOENT;
    if (!in->has_cgroup)
        return -1;
    name_of(number, "cgroup.kill", name);
    fd = openat(INIT_FD_CGROUP, name, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "1", 1) == 1 ? 0 : -1;
}

uint64_t cgroup_cpu_us(struct init *in, uint32_t number)
{
    char name[48], text[1024];

    if (!in->has_cgroup)
        return 0;
    name_of(number, "cpu.stat", name);
    read_at(INIT_FD_CGROUP, name, text, sizeof(text));
    return field(text, "usage_usec");
}

/* --------------------------------------------------------------- removing one, once it is empty */

static bool remove_one(uint32_t number)
{
    char name[48];

    name_of(number, "", name);
    return unlinkat(INIT_FD_CGROUP, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

static void remember(struct init *in, uint32_t number)
{
    if (in->lingering_count == in->lingering_room) {
        size_t room = in->lingering_room ? 2 * in->lingering_room : 16;
        uint32_t *more = reallocarray(in->lingering, room, sizeof(*more));

        if (!more)
            return; /* an empty directory stays behind until the sandbox ends */
        in->lingering = more;
        in->lingering_room = room;
    }
    in->lingering[in->lingering_count++] = number;
}

void cgroup_leave(struct init *in, uint32_t number)
{
    if (!remove_one(number))
        remember(in, number);
}

/* Called when something was reaped. A few at a time, in turn: thousands of daemons must not slow
 * every end. */
void cgroup_sweep(struct init *in)
{
    for (int i = 0; i < SWEEP_AT_A_TIME && in->lingering_count > 0; i++) {
        in->sweep_at = (in->sweep_at + 1) % in->lingering_count;
        if (remove_one(in->lingering[in->sweep_at]))
            in->lingering[in->sweep_at] = in->lingering[--in->lingering_count];
    }
}
