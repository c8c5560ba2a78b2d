// class: mounts
// promise: masks over /proc are not taken off
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    /* EINVAL: on a host nothing is mounted there. */
    return PAST(umount2("/proc/kallsyms", MNT_DETACH), EINVAL);
}
