// class: namespaces
// promise: no new namespace: time
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(unshare(0x80));
}
