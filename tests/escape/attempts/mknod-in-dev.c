// class: devices
// promise: no device is made where devices work
// refused: EACCES
// control: host
#include "attempt.h"

int main(void)
{
    int rc = TRY(mknod("/dev/cove-kmsg", S_IFCHR | 0666, makedev(1, 11)));

    unlink("/dev/cove-kmsg");
    return rc;
}
