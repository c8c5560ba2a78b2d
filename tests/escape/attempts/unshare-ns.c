// class: namespaces
// promise: no new namespace: ns
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWNS));
}
