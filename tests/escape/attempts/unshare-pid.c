// class: namespaces
// promise: no new namespace: pid
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWPID));
}
