// class: identity
// promise: the id map is written once, by the keeper
// refused: EPERM
#include "attempt.h"

int main(void)
{
    int fd = open("/proc/self/uid_map", O_WRONLY);

    return fd < 0 ? refused("open") : TRY(write(fd, "0 0 4294967295", 14));
}
