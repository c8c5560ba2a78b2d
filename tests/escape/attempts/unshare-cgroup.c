// class: namespaces
// promise: no new namespace: cgroup
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWCGROUP));
}
