// class: mounts
// promise: the new mount API is closed: fspick
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(fspick(AT_FDCWD, "/dev/shm", 0));
}
