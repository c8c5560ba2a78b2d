/*
 * What a sandbox reads of the machine's size: its own limits, so that build tools do not start a
 * job per host cpu. Small files in a folder of /dev, bound over /proc's. meminfo is written anew by
 * init (init_meminfo.c) whenever a command starts; cpuinfo and stat show as many cpus as the
 * sandbox may run on, and stay as they were when it was made.
 *
 * Why not lxcfs: it is one more privileged program that every read goes through, one whose death
 * hangs every sandbox, and what it offers beyond this (live figures within one command) few
 * programs look at. uptime is the kernel's own, in a time namespace (build.c), so that it agrees
 * with what ps reckons ages from; sysinfo(2) has that uptime too, but the machine's memory: a
 * system call cannot be answered by a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "sandbox/box/procfiles.h"

enum { PROC_FILE_MAX = 256 * 1024 };

static int cpus_allowed(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);
}

/* ------------------------------------------------------------------ what stands in them */

/* Blocks, each beginning with "processor : N": the first ones, as many as there are cpus. */
static void write_cpuinfo(FILE *real, struct buf *out)
{
    int left = cpus_allowed();
    char line[2048];

    while (fgets(line, sizeof(line), real)) {
        if (strncmp(line, "processor\t", 10) == 0 && left-- == 0)
            return;
        buf_add(out, line, strlen(line));
    }
}

/* How long before the sandbox's beginning the machine's was, in seconds; 0 without a time
 * namespace. What we are told of /proc/stat is still the machine's: ours begins with execve. */
static long long boot_offset(void)
{
    long long seconds = 0;
    char line[128];
    FILE *f = fopen("/proc/self/timens_offsets", "re");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "boottime %lld", &seconds) == 1)
            break;
    if (f)
        fclose(f);
    return -seconds;
}

/* "cpuN ..." lines of cpus that are not ours are left out; boot time and the rest stay, ps needs
 * them. */
static void write_stat(FILE *real, struct buf *out)
{
    int left = cpus_allowed();
    char line[8192];

    while (fgets(line, sizeof(line), real)) {
        bool one_cpu = strncmp(line, "cpu", 3) == 0 && line[3] != ' ';
        long long boot;

        if (sscanf(line, "btime %lld", &boot) == 1)
            snprintf(line, sizeof(line), "btime %lld\n", boot + boot_offset());
        if (strncmp(line, "intr ", 5) == 0 || strncmp(line, "softirq ", 8) == 0 ||
            (one_cpu && left-- <= 0))
            continue;
        buf_add(out, line, strlen(line));
    }
}

static void write_swaps(FILE *real, struct buf *out)
{
    (void)real;
    buf_addf(out, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
}

/* How busy the machine is, is nobody's business in here; make -l then goes by what it started
 * itself. */
static void write_loadavg(FILE *real, struct buf *out)
{
    (void)real;
    buf_addf(out, "0.00 0.00 0.00 1/1 1\n");
}

/* init fills it in before the first command. */
static void write_meminfo(FILE *real, struct buf *out)
{
    (void)real;
    buf_addf(out, "MemTotal:              0 kB\n");
}

static const struct {
    const char *name;
    void (*write)(FILE *real, struct buf *out);
} files[] = {
    { "meminfo", write_meminfo }, { "cpuinfo", write_cpuinfo }, { "stat", write_stat },
    { "swaps", write_swaps },     { "loadavg", write_loadavg },
};

/* ------------------------------------------------------------------ putting them in place */

static int fill_file(int fd, const char *proc_path, void (*fill)(FILE *, struct buf *))
{
    FILE *real = fopen(proc_path, "re");
    struct buf text;
    ssize_t n = -1;

    if (!real)
        return -1;
    buf_init(&text, PROC_FILE_MAX);
    fill(real, &text);
    if (!text.overflow && text.len > 0)
        n = write(fd, text.data, text.len);
    buf_done(&text);
    fclose(real);
    return n < 0 ? -1 : 0;
}

static int bind_read_only(const char *from, const char *to)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
    AUTO_CLOSE int tree = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return -1;
    return move_mount(tree, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH);
}

int procfiles_setup(struct cove_err *e)
{
    char own[64], proc[64];

    if (mkdir("/dev/" PROC_DIR, PROC_DIR_MODE) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "/dev/" PROC_DIR);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        AUTO_CLOSE int fd = -1;

        snprintf(own, sizeof(own), "/dev/" PROC_DIR "/%s", files[i].name);
        snprintf(proc, sizeof(proc), "/proc/%s", files[i].name);
        fd = open(own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        if (fd < 0 || fill_file(fd, proc, files[i].write) < 0 || bind_read_only(own, proc) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "%s", proc);
    }
    return 0;
}
