// class: kernel
// promise: no module is unloaded
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return PAST(syscall(SYS_delete_module, "cove-no-such-module", O_NONBLOCK), ENOENT);
}
