// class: mounts
// promise: mounts are not made shared with the host again
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL));
}
