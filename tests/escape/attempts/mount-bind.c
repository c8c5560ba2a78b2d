// class: mounts
// promise: no folder is bound over another
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(mount("/proc", "/mnt", NULL, MS_BIND, NULL));
}
