// class: mounts
// promise: the new mount API is closed: move_mount
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(move_mount(AT_FDCWD, "/dev/shm", AT_FDCWD, "/mnt", 0));
}
