// class: devices
// promise: not even overlayfs's harmless 0:0 is made
// refused: EACCES
#include "attempt.h"

int main(void)
{
    return TRY(mknod("/workspace/white", S_IFCHR | 0666, makedev(0, 0)));
}
