// class: mounts
// promise: the cgroup tree cannot be reached by mounting it
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(mount("cgroup2", "/mnt", "cgroup2", 0, NULL));
}
