// class: mounts
// promise: the host's disk is not mounted
// refused: EPERM
#include "attempt.h"

int main(void)
{
    return TRY(mount("/dev/vda", "/mnt", "ext4", MS_RDONLY, NULL));
}
