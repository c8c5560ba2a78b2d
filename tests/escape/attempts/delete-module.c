// class: kernel
// promise: no module is unloaded
// refused: EPERM
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_delete_module, "overlay", O_NONBLOCK));
}
