// class: namespaces
// promise: no new namespace: time
#include "attempt.h"

int main(void)
{
    return TRY(unshare(0x80));
}
