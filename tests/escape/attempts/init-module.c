// class: kernel
// promise: no module is loaded
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_init_module, "\177ELF", 4, ""));
}
