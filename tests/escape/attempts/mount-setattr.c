// class: mounts
// promise: the new mount API is closed: mount_setattr
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    struct mount_attr attr = { .attr_clr = MOUNT_ATTR_RDONLY };

    /* EINVAL: on a host /proc/sys is no mount of its own. */
    return PAST(syscall(SYS_mount_setattr, AT_FDCWD, "/proc/sys", 0, &attr, sizeof(attr)), EINVAL);
}
