// class: namespaces
// promise: no new namespace: pid
#include "attempt.h"

int main(void)
{
    return TRY(unshare(CLONE_NEWPID));
}
