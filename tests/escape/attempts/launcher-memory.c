// class: processes
// promise: the memory of init's launcher, and of what it makes, is not read
// refused: EPERM, EACCES
// weak: opens
#include "attempt.h"

static int try_one(const char *name)
{
    pid_t pid = process_called(name);
    char byte, path[64];
    struct iovec local = { &byte, 1 }, remote = { (void *)0x400000, 1 };
    int fd;

    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1)
        return verdict(0, "process_vm_readv");
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    fd = open(path, O_RDONLY);
    return fd < 0 ? refused(path) : TRY(pread(fd, &byte, 1, 0x400000));
}

int main(void)
{
    return try_one("cove-launcher") == ESCAPED ? ESCAPED : try_one("cove-spare");
}
