// class: identity
// promise: capabilities that were given up do not come back
// refused: EPERM
// control: host
#include "attempt.h"
#include <linux/capability.h>

int main(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    const uint32_t admin =
        1u << CAP_SYS_ADMIN | 1u << CAP_SYS_MODULE | 1u << CAP_SYS_RAWIO | 1u << CAP_SYS_PTRACE;
    struct __user_cap_data_struct all[2] = { { admin, admin, 0 }, { 0, 0, 0 } };

    return TRY(syscall(SYS_capset, &head, all));
}
