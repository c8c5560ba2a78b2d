// class: identity
// promise: the bounding set holds nothing that reaches the kernel
// refused: EPERM
// weak: opens
#include "attempt.h"
#include <linux/capability.h>

int main(void)
{
    static const int dangerous[] = { CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_SYS_MODULE,
                                     CAP_SYS_RAWIO, CAP_NET_ADMIN,  CAP_NET_RAW,
                                     CAP_MKNOD,     CAP_SYS_TIME,   CAP_SYS_BOOT,
                                     CAP_BPF,       CAP_PERFMON,    CAP_DAC_READ_SEARCH };

    for (size_t i = 0; i < sizeof(dangerous) / sizeof(*dangerous); i++)
        if (prctl(PR_CAPBSET_READ, dangerous[i]) == 1)
            return verdict(dangerous[i], "capability in the bounding set");
    errno = EPERM;
    return refused("bounding set");
}
