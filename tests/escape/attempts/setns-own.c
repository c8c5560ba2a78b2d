// class: namespaces
// promise: nobody enters its own mount namespace anew, to begin at the namespace's first root
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    int fd = open("/proc/self/ns/mnt", O_RDONLY);

    return fd < 0 ? refused("open") : TRY(setns(fd, CLONE_NEWNS));
}
