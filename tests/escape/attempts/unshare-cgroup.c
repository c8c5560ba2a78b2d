// class: namespaces
// promise: no new namespace: cgroup
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWCGROUP));
}
