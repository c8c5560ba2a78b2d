/*
 * What a sandbox sees of /proc: its limits instead of the machine's size, so that build tools do
 * not start a job per host cpu; nothing about the host, its load or its other tenants; and nothing
 * that can be written.
 *
 * Some files of /proc are covered by small files in a folder of /dev, bound over them. init
 * writes meminfo anew (sandbox/init/meminfo.c) whenever a command starts; cpuinfo and stat show as
 * many cpus as the sandbox may run on, and stay as they were when the sandbox was made.
 *
 * Why not lxcfs: it is one more privileged program that every read goes through, its death hangs
 * every sandbox, and few programs look at what it offers beyond this (live figures within one
 * command). uptime is the kernel's own, in a time namespace (setup.c), so that it agrees with what
 * ps reckons ages from; sysinfo(2) has that uptime too, but the machine's memory: a system call
 * cannot be answered by a file.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/libc.h"
#include "cove/mem.h"
#include "cove/weak.h"
#include "sandbox/setup/procfiles.h"

enum { PROC_FILE_MAX = 256 * 1024 };

static int cpus_allowed(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);
}

/* ------------------------------------------------------------------ what the files contain */

/*
 * Lines are read in pieces of this size, so that little stack is used: the pages of stack that the set-up has touched
 * stay with init. A line of /proc/stat may be longer than any buffer.
 */
enum { PIECE = 512 };

static bool ends_line(const char *piece)
{
    size_t len = strlen(piece);

    return len > 0 && piece[len - 1] == '\n';
}

/* The file is blocks that begin with "processor : N". Copies as many of them as the sandbox has cpus. */
static void write_cpuinfo(FILE *real, struct buf *out)
{
    int left = cpus_allowed();
    bool begins = true; /* the piece is the first of its line */
    char piece[PIECE];

    while (fgets(piece, sizeof(piece), real)) {
        if (begins && strncmp(piece, "processor\t", 10) == 0 && left-- == 0)
            return;
        buf_add(out, piece, strlen(piece));
        begins = ends_line(piece);
    }
}

/* Leaves out the "cpuN ..." lines of cpus that the sandbox does not have. The boot time, which is that of our time
 * namespace, and the rest stay: ps needs them. */
static void write_stat(FILE *real, struct buf *out)
{
    int left = cpus_allowed();
    bool begins = true, wanted = true;
    char piece[PIECE];

    while (fgets(piece, sizeof(piece), real)) {
        if (begins) {
            bool one_cpu = strncmp(piece, "cpu", 3) == 0 && piece[3] != ' ';

            wanted = strncmp(piece, "intr ", 5) != 0 && strncmp(piece, "softirq ", 8) != 0 &&
                     !(one_cpu && left-- <= 0);
        }
        if (wanted)
            buf_add(out, piece, strlen(piece));
        begins = ends_line(piece);
    }
}

/* The machine's load would tell about other tenants, so it is shown as zero; make -l then counts only the jobs
 * that it started itself. */
static void write_loadavg(FILE *real, struct buf *out)
{
    (void)real;
    buf_addf(out, "0.00 0.00 0.00 1/1 1\n");
}

/* A random UUID: the machine's own would tell tenants that they share a machine. */
static void write_boot_id(FILE *real, struct buf *out)
{
    uint8_t b[16];

    (void)real;
    if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
        return;                             /* an empty file is refused by fill_file() */
    b[6] = (uint8_t)(0x40 | (b[6] & 0x0f)); /* version 4, */
    b[8] = (uint8_t)(0x80 | (b[8] & 0x3f)); /* variant 1 */
    for (size_t i = 0; i < sizeof(b); i++)
        buf_addf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
    buf_add_char(out, '\n');
}

/* init writes meminfo before the first command starts. */
static void write_meminfo(FILE *real, struct buf *out)
{
    (void)real;
    buf_addf(out, "MemTotal:              0 kB\n");
}

static const struct stand_in {
    const char *name, *path; /* name: in our folder; path: below /proc */
    void (*write)(FILE *real, struct buf *out);
    bool wants_real; /* else `real` is NULL */
} files[] = {
    { "meminfo", "meminfo", write_meminfo, false },
    { "cpuinfo", "cpuinfo", write_cpuinfo, true },
    { "stat", "stat", write_stat, true },
    { "loadavg", "loadavg", write_loadavg, false },
    { "boot_id", "sys/kernel/random/boot_id", write_boot_id, false },
};

/* Entries of /proc that tell about the host or act on it. The kernel treats the sandbox's root as nobody there, so
 * this is a second barrier. The first entry exists on every kernel, which cover_all() needs. */
static const char *const hidden[] = {
    "cmdline",    "keys",       "kmsg",       "timer_list",  "sched_debug",  "latency_stats",
    "kallsyms",   "kcore",      "kpagecount", "kpageflags",  "kpagecgroup",  "sysrq-trigger",
    "interrupts", "key-users",  "mtrr",       "modules",     "iomem",        "ioports",
    "diskstats",  "partitions", "slabinfo",   "vmallocinfo", "pagetypeinfo", "timer_stats",
    "vmstat",     "zoneinfo",   "softirqs",   "buddyinfo",   "swaps",
};
static const char *const readonly[] = { "sys", "bus", "fs", "irq" };
static const char *const emptied[] = { "acpi", "asound", "scsi", "driver", "pressure" };

/* ------------------------------------------------------------------ putting them in place */

static int fill_file(int fd, const char *proc_path, const struct stand_in *f)
{
    FILE *real = f->wants_real ? fopen(proc_path, "re") : NULL;
    struct buf text;
    ssize_t n = -1;

    if (f->wants_real && !real)
        return -1;
    buf_init(&text, PROC_FILE_MAX);
    f->write(real, &text);
    if (!text.overflow && text.len > 0)
        n = write(fd, text.data, text.len);
    buf_done(&text);
    if (real)
        fclose(real);
    return n < 0 ? -1 : 0;
}

#define EMPTY "/dev/" PROC_DIR "/empty"

static int bind_read_only(const char *from, const char *to)
{
    /* Only /dev/null itself needs to be a device. */
    const uint64_t nodev = strcmp(from, "/dev/null") == 0 ? 0 : MOUNT_ATTR_NODEV;
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | nodev };
    AUTO_CLOSE int tree = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return -1;
    return move_mount(tree, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH);
}

/* The same in one call: a bind of a read-only mount is read-only too. */
static int bind_again(const char *from, const char *to)
{
    return mount(from, to, NULL, MS_BIND, NULL);
}

/*
 * Covers all these names with one file or folder. Only the first name takes all steps of bind_read_only(), the
 * others are binds of the first: that is a quarter of the calls. Some names exist on some kernels only. A bind
 * fails at once there, while bind_read_only() would make a mount first, and the kernel waits for all cpus before
 * it drops a mount that was never attached.
 */
static int cover_all(const char *const *names, size_t count, const char *with, struct cove_err *e)
{
    char first[64] = "", path[64];

    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "/proc/%s", names[i]);
        if ((first[0] ? bind_again(first, path) : bind_read_only(with, path)) == 0) {
            if (!first[0])
                memcpy(first, path, sizeof(first));
        } else if (errno != ENOENT) {
            return cove_fail_errno(e, COVE_INTERNAL, "covering %s", path);
        }
    }
    return 0;
}

static int make_read_only(const char *name, struct cove_err *e)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%s", name);
    if (bind_read_only(path, path) < 0 && errno != ENOENT)
        return cove_fail_errno(e, COVE_INTERNAL, "covering %s", path);
    return 0;
}

/* One empty folder covers all hidden directories: a file system for each would cost every memory cgroup of the
 * host a map entry. */
static int hide(struct cove_err *e)
{
    if (weak("proc"))
        return 0;
    if (cover_all(hidden, ARRAY_SIZE(hidden), "/dev/null", e) < 0 ||
        cover_all(emptied, ARRAY_SIZE(emptied), EMPTY, e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(readonly); i++)
        if (make_read_only(readonly[i], e) < 0)
            return -1;
    return 0;
}

static int put_in_place(const struct stand_in *f, struct cove_err *e)
{
    char own[64], proc[64];
    AUTO_CLOSE int fd = -1;

    snprintf(own, sizeof(own), "/dev/" PROC_DIR "/%s", f->name);
    snprintf(proc, sizeof(proc), "/proc/%s", f->path);
    fd = open(own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0 || fill_file(fd, proc, f) < 0 || bind_read_only(own, proc) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", proc);
    return 0;
}

/* The read-only /proc/sys is a mount over the first one, so files in it are covered after that. */
int procfiles_setup(struct cove_err *e)
{
    if (mkdir("/dev/" PROC_DIR, PROC_DIR_MODE) < 0 || mkdir(EMPTY, 0555) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "/dev/" PROC_DIR);
    if (hide(e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (put_in_place(&files[i], e) < 0)
            return -1;
    return 0;
}
