// class: kernel
// promise: no module is loaded
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_init_module, "\177ELF", 4, ""));
}
