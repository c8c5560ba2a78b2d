/* User ids: inside 0 and up, on the host a range that nobody else has. */
#include <fcntl.h>
#include <stdio.h>

#include "cove/mem.h"
#include "cove/weak.h"
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

/*
 * In the child, with a /proc/sys/user that can still be written: from here on this user namespace
 * has no room for another namespace of any kind. seccomp refuses to make them as well; this holds
 * for whoever gets round it.
 */
int userns_forbid_more(int sysctl_dir, struct cove_err *e)
{
    static const char *const kinds[] = {
        "user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"
    };
    char path[48];

    for (size_t i = 0; !weak("namespaces") && i < ARRAY_SIZE(kinds); i++) {
        snprintf(path, sizeof(path), "max_%s_namespaces", kinds[i]);
        if (write_file_at(sysctl_dir, path, "0", e) < 0)
            return -1;
    }
    return 0;
}
