/* User ids: inside 0 and up, on the host a range that nobody else has. */
#include <fcntl.h>
#include <stdio.h>

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
