// class: mounts
// promise: /proc/sys stays read-only
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    /* EINVAL: on a host /proc/sys is no mount of its own. */
    return PAST(mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL), EINVAL);
}
