// class: mounts
// promise: no file system is mounted inside
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(mount("none", "/mnt", "tmpfs", 0, NULL));
}
