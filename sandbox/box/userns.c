/* User ids: inside 0 and up, on the host a range that nobody else has. */
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/box/tools.h"
#include "sandbox/box/userns.h"

int userns_write_maps(pid_t pid, const struct id_range *ids, struct cove_err *e)
{
    char path[48], map[64];

    snprintf(map, sizeof(map), "0 %u %u", ids->base, ids->count);
    snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    if (write_file_at(AT_FDCWD, path, map, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
    return write_file_at(AT_FDCWD, path, map, e);
}

uint32_t userns_count(pid_t pid, uint32_t base)
{
    char path[48], map[64];
    unsigned inside, outside, count;

    snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    if (read_file_at(AT_FDCWD, path, map, sizeof(map)) < 0 ||
        sscanf(map, "%u %u %u", &inside, &outside, &count) != 3)
        return 0;
    return inside == 0 && outside == base ? count : 0;
}

int userns_keep_capabilities(uint64_t wanted, struct cove_err *e)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[2];

    if (syscall(SYS_capget, &head, caps) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "reading capabilities");
    for (int i = 0; i < 2; i++)
        caps[i].inheritable = caps[i].permitted & (uint32_t)(wanted >> 32 * i);
    if (syscall(SYS_capset, &head, caps) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "capabilities for the set-up");
    for (int cap = 0; cap < 64; cap++)
        if (caps[cap / 32].inheritable & 1U << cap % 32 &&
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "capability %d for the set-up", cap);
    return 0;
}
