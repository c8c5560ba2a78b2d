// class: kernel
// promise: x32 numbers are no way round the filter
// refused: ENOSYS
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(syscall(0x40000000 + 272 /* unshare */, CLONE_NEWUSER));
}
