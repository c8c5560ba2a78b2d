// class: namespaces
// promise: the clock's offsets are not set
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    /* Those of a namespace that has no process yet; the own ones cannot be set by anybody. */
    int rc = unshare(CLONE_NEWTIME), fd = rc < 0 ? -1 : open("/proc/self/timens_offsets", O_WRONLY);

    return fd < 0 ? refused("open") : TRY(write(fd, "monotonic 1000 0", 16));
}
