// class: kernel
// promise: accounting is not switched
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_acct, NULL));
}
