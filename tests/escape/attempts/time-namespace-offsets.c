// class: namespaces
// promise: the clock's offsets are not set
// refused: EPERM
#include "attempt.h"

int main(void)
{
    int fd = open("/proc/self/timens_offsets", O_WRONLY);

    return fd < 0 ? refused("open") : TRY(write(fd, "monotonic 1000 0", 16));
}
