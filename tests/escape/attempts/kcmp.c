// class: kernel
// promise: kernel pointers of two processes are not compared
// refused: EPERM
// as: root
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_kcmp, getpid(), 1, 0, 0, 0));
}
