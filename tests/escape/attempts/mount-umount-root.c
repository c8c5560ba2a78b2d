// class: mounts
// promise: the root is not unmounted from what it covers
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    /* EINVAL, EBUSY: whoever asks may unmount, and only this mount cannot be. */
    return PAST(umount2("/", MNT_DETACH), EINVAL, EBUSY);
}
