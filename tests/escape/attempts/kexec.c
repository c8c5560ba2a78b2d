// class: kernel
// promise: no other kernel is started
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_kexec_load, 0, 0, NULL, 0));
}
