// class: mounts
// promise: there is no second /proc without masks
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(mount("proc", "/mnt", "proc", 0, NULL));
}
