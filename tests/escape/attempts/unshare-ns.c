// class: namespaces
// promise: no new namespace: ns
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWNS));
}
