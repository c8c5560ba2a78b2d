// class: kernel
// promise: no swap is switched
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return PAST(syscall(SYS_swapoff, "/dev/null"), EINVAL); /* which is no swap */
}
