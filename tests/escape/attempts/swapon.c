// class: kernel
// promise: no swap is switched
// refused: EPERM
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_swapoff, "/swapfile"));
}
