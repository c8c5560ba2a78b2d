// class: namespaces
// promise: no new namespace: user
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWUSER));
}
