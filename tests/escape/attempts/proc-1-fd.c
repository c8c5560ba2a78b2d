// class: processes
// promise: init's descriptors are not opened through /proc
// refused: ENOENT
// as: root
// weak: opens
#include "attempt.h"

int main(void)
{
    char path[64];

    for (int fd = 3; fd < 64; fd++) {
        snprintf(path, sizeof(path), "/proc/1/fd/%d", fd);
        if (open(path, O_RDONLY) >= 0)
            return verdict(fd, "descriptor of init");
    }
    return refused("all of them");
}
