// class: identity
// promise: capabilities that were given up do not come back
// refused: EPERM
#include "attempt.h"
#include <linux/capability.h>

int main(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct all[2] = { { ~0u, ~0u, 0 }, { 0x1ff, 0x1ff, 0 } };

    return TRY(syscall(SYS_capset, &head, all));
}
