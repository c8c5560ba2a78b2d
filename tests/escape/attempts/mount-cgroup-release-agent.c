// class: mounts
// promise: no cgroup hierarchy whose release_agent the host would run
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(mount("cgroup", "/mnt", "cgroup", 0, "memory"));
}
