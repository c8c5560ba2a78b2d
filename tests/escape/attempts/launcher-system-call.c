// class: processes
// promise: the arguments of a system call of init's launcher, a secret number among them, are not seen
// refused: EPERM, EACCES
// weak: opens
#include "attempt.h"

static int try_one(const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/syscall", (int)process_called(name));
    return read_to_stdout(path);
}

int main(void)
{
    return try_one("cove-launcher") == ESCAPED ? ESCAPED : try_one("cove-spare");
}
