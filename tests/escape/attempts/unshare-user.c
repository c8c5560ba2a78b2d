// class: namespaces
// promise: no new namespace: user
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWUSER));
}
