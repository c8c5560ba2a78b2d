// class: kernel
// promise: no key is asked for, and no helper started for it
// refused: EPERM
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_request_key, "user", "cove-escape", "x", -3));
}
