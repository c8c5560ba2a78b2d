// class: mounts
// promise: /proc/sys stays read-only
// refused: EPERM
#include "attempt.h"

int main(void)
{
    return TRY(mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
}
