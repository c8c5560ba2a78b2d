// class: namespaces
// promise: no new namespace: uts
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWUTS));
}
