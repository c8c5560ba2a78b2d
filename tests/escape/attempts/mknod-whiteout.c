// class: devices
// promise: no device is made, not even overlayfs's harmless whiteout 0:0
// refused: EACCES
// control: host
#include "attempt.h"

int main(void)
{
    /* Not on an overlay, which makes no 0:0 for anybody. */
    int rc = TRY(mknod("/dev/shm/white", S_IFCHR | 0666, makedev(0, 0)));

    unlink("/dev/shm/white");
    return rc;
}
