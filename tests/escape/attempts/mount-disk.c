// class: mounts
// promise: the host's disk is not mounted
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(mount(world("HOST_DISK"), "/mnt", world("HOST_DISK_TYPE"), 0, NULL));
}
