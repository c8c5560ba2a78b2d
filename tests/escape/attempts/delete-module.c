// class: kernel
// promise: no module is unloaded
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_delete_module, "overlay", O_NONBLOCK));
}
