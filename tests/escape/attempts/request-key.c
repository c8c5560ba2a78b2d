// class: kernel
// promise: no key is asked for, and no helper started for it
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    /* ENOKEY: the helper was asked and had none */
    return PAST(syscall(SYS_request_key, "user", "cove-escape", "x", -3), ENOKEY);
}
