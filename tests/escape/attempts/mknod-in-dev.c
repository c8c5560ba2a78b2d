// class: devices
// promise: no device is made where devices work
// refused: EACCES
#include "attempt.h"

int main(void)
{
    return TRY(mknod("/dev/kmsg", S_IFCHR | 0666, makedev(1, 11)));
}
