// class: kernel
// promise: no module is loaded from a file
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_finit_module, 0, "", 0));
}
