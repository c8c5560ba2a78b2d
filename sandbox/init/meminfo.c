/* /proc/meminfo as the sandbox's own memory, written anew whenever a command starts. See
 * procfiles.c. */
#include "config.h" /* _GNU_SOURCE */

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

/* What the file says is left as it is while the use has changed by less than a figure that nobody would notice, for a second at
   most: reading the statistics that the other lines are made of takes the kernel longer than all else here. */
enum { SAME_BYTES = 128 * 1024, SAME_MS = 1000 };

enum { MEMINFO_BYTES = 1024 }; /* always as long, so that one write replaces it whole */

void meminfo_setup(struct init *in)
{
    in->meminfo_fd = open("/dev/.proc/meminfo", O_WRONLY | O_CLOEXEC);
}

static uint64_t kib(uint64_t bytes)
{
    return bytes / 1024;
}

static bool is_about(uint64_t a, uint64_t b)
{
    return a > b ? a - b < SAME_BYTES : b - a < SAME_BYTES;
}

static bool is_current(struct init *in)
{
    const struct memory_now *told = &in->meminfo_told;

    return told->limit && clock_boot_ms() - in->meminfo_told_ms < SAME_MS &&
           told->limit == cgroup_memory_limit(in) && is_about(told->used, cgroup_memory_used(in));
}

void meminfo_refresh(struct init *in)
{
    struct memory_now now;
    char text[MEMINFO_BYTES + 1];
    uint64_t free_bytes;
    int len;

    if (in->meminfo_fd < 0 || is_current(in) || !cgroup_memory_now(in, &now))
        return;
    in->meminfo_told = now;
    in->meminfo_told_ms = clock_boot_ms();
    free_bytes = now.limit > now.used ? now.limit - now.used : 0;
    len = snprintf(text, sizeof(text),
                   "MemTotal:       %8llu kB\nMemFree:        %8llu kB\nMemAvailable:   %8llu kB\n"
                   "Buffers:        %8d kB\nCached:         %8llu kB\nSwapCached:     %8d kB\n"
                   "Active:         %8llu kB\nInactive:       %8d kB\nSwapTotal:      %8d kB\n"
                   "SwapFree:       %8d kB\nDirty:          %8d kB\nShmem:          %8llu kB\n"
                   "Slab:           %8d kB\nSReclaimable:   %8d kB\nSUnreclaim:     %8d kB\n",
                   (unsigned long long)kib(now.limit), (unsigned long long)kib(free_bytes),
                   (unsigned long long)kib(free_bytes + now.cache), 0,
                   (unsigned long long)kib(now.cache), 0, (unsigned long long)kib(now.used), 0, 0,
                   0, 0, (unsigned long long)kib(now.shmem), 0, 0, 0);
    if (len < 0 || len >= MEMINFO_BYTES)
        return;
    if (pwrite(in->meminfo_fd, text, (size_t)len, 0) != len)
        in->meminfo_fd = cove_close(in->meminfo_fd);
}
