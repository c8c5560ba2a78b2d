// class: kernel
// promise: no key is put into the kernel
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_add_key, "user", "cove", "x", 1, -3));
}
