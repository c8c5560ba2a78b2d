// class: mounts
// promise: the root is not exchanged
// refused: EPERM
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_pivot_root, "/", "/"));
}
