// class: kernel
// promise: keyrings, which namespaces do not divide, are closed
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_keyctl, 0, -3, 1));
}
