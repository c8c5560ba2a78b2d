// class: mounts
// promise: masks over /proc are not taken off
// refused: EPERM
#include "attempt.h"

int main(void)
{
    return TRY(umount2("/proc/kallsyms", MNT_DETACH));
}
