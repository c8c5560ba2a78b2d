// class: mounts
// promise: /sys of the host is not mounted
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(mount("sysfs", "/mnt", "sysfs", 0, NULL));
}
