// class: mounts
// promise: the root is not exchanged
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    /* EBUSY, EINVAL: whoever asks may exchange roots, and only these two folders cannot be exchanged. */
    return PAST(syscall(SYS_pivot_root, "/", "/"), EBUSY, EINVAL);
}
