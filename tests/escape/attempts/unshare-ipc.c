// class: namespaces
// promise: no new namespace: ipc
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWIPC));
}
