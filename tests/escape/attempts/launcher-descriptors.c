// class: processes
// promise: descriptors of init's launcher, and of what it makes, are not opened or copied
// refused: EPERM, EACCES
// weak: opens
#include "attempt.h"

static int try_one(const char *name)
{
    pid_t pid = process_called(name);
    char path[64];
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    snprintf(path, sizeof(path), "/proc/%d/fd/0", (int)pid);
    if (open(path, O_RDONLY) >= 0)
        return verdict(0, path);
    refused(path);
    return fd < 0 ? refused("pidfd_open") : TRY(syscall(SYS_pidfd_getfd, fd, 3, 0));
}

int main(void)
{
    return try_one("cove-launcher") == ESCAPED ? ESCAPED : try_one("cove-spare");
}
