// class: mounts
// promise: no overlay of one's own is put over host folders
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(mount("overlay", "/mnt", "overlay", 0, "lowerdir=/usr:/etc"));
}
