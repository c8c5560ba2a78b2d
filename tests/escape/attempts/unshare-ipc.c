// class: namespaces
// promise: no new namespace: ipc
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWIPC));
}
