// class: mounts
// promise: the new mount API is closed: mount_setattr
// refused: EPERM
#include "attempt.h"

int main(void)
{
    struct mount_attr attr = { .attr_clr = MOUNT_ATTR_RDONLY };

    return TRY(syscall(SYS_mount_setattr, AT_FDCWD, "/proc/sys", 0, &attr, sizeof(attr)));
}
