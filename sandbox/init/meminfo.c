/* /proc/meminfo as the sandbox's own memory, written anew whenever a command starts. See
 * procfiles.c. */
#include "config.h" /* _GNU_SOURCE */

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

enum { MEMINFO_BYTES = 1024 }; /* always as long, so that one write replaces it whole */

void meminfo_setup(struct init *in)
{
    in->meminfo_fd = open("/dev/.proc/meminfo", O_WRONLY | O_CLOEXEC);
}

static uint64_t kib(uint64_t bytes)
{
    return bytes / 1024;
}

void meminfo_refresh(struct init *in)
{
    struct memory_now now;
    char text[MEMINFO_BYTES + 1];
    uint64_t free_bytes;
    int len;

    if (in->meminfo_fd < 0 || !cgroup_memory_now(in, &now))
        return;
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
