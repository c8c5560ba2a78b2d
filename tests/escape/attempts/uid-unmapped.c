// class: identity
// promise: ids outside of the sandbox's range cannot be taken
// refused: EINVAL
// control: host
// as: root
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_setresuid, 1000000, 1000000, 1000000));
}
