// class: kernel
// promise: the kernel's log is not read
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    char text[4096];

    return TRY(syscall(SYS_syslog, 3, text, sizeof(text)));
}
