// class: namespaces
// promise: no new namespace: net
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWNET));
}
